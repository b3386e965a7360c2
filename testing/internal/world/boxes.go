package world

// This file is boxes: pods and namespaces with a label, and the steps that a seed draws for them. What the steps of a call must do
// together is reckoned in boxed.go.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
)

const (
	boxed  = "box"             // the label of a box, and the begin of the names of the steps about boxes
	ribbon = "ribbon"          // a label that steps add and remove, and by which some of them select
	marks  = "example.com/box" // the begin of the annotations that steps add
	does   = "does-"           // the begin of the labels that are orders to steps
)

// The orders in the labels of a box.
const (
	deny, invalid, badRequest, elsewhereForbidden = "denies", "finds-invalid", "finds-bad", "is-forbidden-elsewhere"
	fail, panics, hang                            = "fails", "panics", "hangs"
	dawdles                                       = "dawdles" // takes most of its Timeout, if it has one
)

// The forms of steps about boxes.
const (
	typedForm   = iota
	treeForm    // of unstructured objects
	patchedForm // an Extension that returns PatchFromPod
	byHandForm  // one that makes its own patch
	silentForm  // one that returns the zero Response
)

// The changes that steps make. Those from replacePort on are about the ports of a pod's second container.
const (
	stamp = iota
	tie
	untie
	replacePort
	dropPort
	renamePort // and drop the one in front of it
	appendPort
	movePort
	changesOfBoxes
)

// boxStep is a step about boxes. It does nothing to a box without the mark of the step that it needs, if any.
type boxStep struct {
	eirinix.Settings
	name, needs string
	modes       []eirinix.Mode // of an entry in the ConfigMap: for namespaces with a ribbon, and for others if there are two
	kind        schema.GroupVersionKind
	form, act   int
	number      int
	judges      bool
}

// drawBoxes draws the steps, which all versions of the program have.
func drawBoxes(rng *rand.Rand, modes bool) (all []boxStep) {
	n := 5 + rng.IntN(5)
	again, timed := rng.IntN(2) == 0, rng.IntN(3) // all have a Timeout, or all but the first ones, or some
	for i := range n {
		s := boxStep{name: fmt.Sprint(boxed, i), number: i, kind: corev1.SchemeGroupVersion.WithKind("Pod"), judges: rng.IntN(3) == 0, form: rng.IntN(2), act: rng.IntN(changesOfBoxes)}
		if s.form = max(0, s.form-rng.IntN(2)); rng.IntN(4) == 0 {
			s.kind = corev1.SchemeGroupVersion.WithKind("Namespace")
			s.act = rng.IntN(replacePort)
		} else if !s.judges && rng.IntN(3) == 0 {
			s.form = []int{patchedForm, byHandForm, silentForm}[rng.IntN(3)]
		}
		if s.act != stamp && rng.IntN(2) == 0 {
			s.act = stamp
		}
		if !s.judges && rng.IntN(3) == 0 {
			s.needs = fmt.Sprint(boxed, rng.IntN(n))
		}
		s.Objects = &metav1.LabelSelector{MatchLabels: map[string]string{boxed: "yes"}}
		if rng.IntN(4) == 0 {
			s.Objects.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: ribbon, Operator: []metav1.LabelSelectorOperator{metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist}[rng.IntN(2)]}}
		}
		s.FailurePolicy = []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore}[rng.IntN(2)]
		s.Operations = [][]admissionregistrationv1.OperationType{
			{admissionregistrationv1.Create}, {admissionregistrationv1.Create, admissionregistrationv1.Update}, {admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete}, {admissionregistrationv1.Update},
		}[rng.IntN(4)]
		if !s.judges {
			s.Operations = slices.DeleteFunc(slices.Clone(s.Operations), func(o admissionregistrationv1.OperationType) bool { return o == admissionregistrationv1.Delete })
			if again && rng.IntN(6) > 0 {
				s.Reinvoke = admissionregistrationv1.IfNeededReinvocationPolicy
			}
		}
		if rng.IntN(3) == 0 || timed > 0 && i >= 2*(timed-1) {
			s.Timeout = time.Duration(1+rng.IntN(2)) * time.Second
		}
		if s.EveryUpdate = rng.IntN(8) == 0; rng.IntN(4) == 0 {
			s.Mode = []eirinix.Mode{eirinix.ModeWarn, eirinix.ModeAudit}[rng.IntN(2)]
		}
		for range rng.IntN(3) {
			if modes {
				s.modes = append(s.modes, []eirinix.Mode{eirinix.ModeDeny, eirinix.ModeWarn, eirinix.ModeAudit}[rng.IntN(3)])
			}
		}
		all = append(all, s)
	}
	return all
}

// entry is the entry of the step in the ConfigMap of the modes.
func (s boxStep) entry() string {
	text := fmt.Sprintf("%s where %s", s.modes[0], ribbon)
	for _, m := range s.modes[1:] {
		text += "\n" + string(m)
	}
	return text
}

// watches reports whether the step only watches a request, and in which mode. Namespaces have their own labels, and that of pods has
// no ribbon.
func (s boxStep) watches(a ask) (eirinix.Mode, bool) {
	mode := s.Mode
	switch {
	case len(s.modes) > 0 && a.kind.Kind == "Namespace" && a.subject().GetLabels()[ribbon] != "":
		mode = s.modes[0]
	case len(s.modes) > 1:
		mode = s.modes[1]
	}
	return mode, mode == eirinix.ModeWarn || mode == eirinix.ModeAudit
}

// fails reports whether a failure of the step fails its call.
func (s boxStep) fails() bool { return s.FailurePolicy == admissionregistrationv1.Fail }

// isTo reports whether a box has the step do something of these.
func (s boxStep) isTo(o metav1.Object, what ...string) string {
	if to := o.GetLabels()[does+s.name]; slices.Contains(what, to) {
		return to
	}
	return ""
}

// obeys follows the labels of a box.
func (s boxStep) obeys(ctx context.Context, o metav1.Object) error {
	switch s.isTo(o, deny, invalid, badRequest, elsewhereForbidden, fail, panics, hang, dawdles) {
	case dawdles:
		if s.Reinvoke == "" { // else it may run twice
			time.Sleep(s.Timeout * 8 / 10)
		}
	case deny:
		return eirinix.Deny("%s denies", s.name)
	case invalid:
		return eirinix.Invalid(field.ErrorList{field.Forbidden(field.NewPath(s.name), s.name+" denies")})
	case badRequest:
		return fmt.Errorf("it is wrong: %w", apierrors.NewBadRequest(s.name+" denies"))
	case elsewhereForbidden:
		return apierrors.NewForbidden(corev1.Resource("pods"), "another", errors.New("it is another one's"))
	case fail:
		return errors.New("it is to fail")
	case panics:
		panic("it is to panic")
	case hang:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// stamped counts the marks of steps.
func stamped(o metav1.Object) (n int) {
	for name := range o.GetAnnotations() {
		if strings.HasPrefix(name, marks) {
			n++
		}
	}
	return n
}

// saw is the text by which a step describes a box that it sees.
func (s boxStep) saw(o metav1.Object) string {
	return fmt.Sprintf("%s saw %d marks", s.name, stamped(o))
}

// changes makes the step's change.
func (s boxStep) changes(o metav1.Object) {
	notes, labels := maps.Clone(o.GetAnnotations()), maps.Clone(o.GetLabels())
	if s.needs != "" && notes[marks+s.needs] == "" {
		return
	}
	switch s.act {
	case stamp:
		notes[marks+s.name] = strconv.Itoa(stamped(o) + 1)
		o.SetAnnotations(notes)
	case tie:
		labels[ribbon] = s.name
		o.SetLabels(labels)
	case untie:
		delete(labels, ribbon)
		o.SetLabels(labels)
	default:
		switch o := o.(type) {
		case *corev1.Pod:
			s.changesPorts(&o.Spec.Containers[1])
		case *unstructured.Unstructured:
			s.changesTree(o.Object["spec"].(map[string]any)["containers"].([]any)[1].(map[string]any))
		}
	}
}

func (s boxStep) changesPorts(of *corev1.Container) {
	number := int32(7000 + s.number)
	switch ports := of.Ports; {
	case len(ports) < 2:
	case s.act == replacePort:
		ports[0] = corev1.ContainerPort{ContainerPort: number, Name: "new"}
	case s.act == dropPort:
		of.Ports = ports[1:]
	case s.act == renamePort:
		of.Ports = ports[1:]
		of.Ports[0].Name = "kept-" + s.name
	case s.act == appendPort && !slices.ContainsFunc(ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == number }):
		of.Ports = append(ports, corev1.ContainerPort{ContainerPort: number, Name: "more-" + s.name})
	case s.act == movePort:
		of.Ports = append(slices.Clone(ports[len(ports)-1:]), ports[:len(ports)-1]...)
	}
}

func (s boxStep) changesTree(of map[string]any) {
	number := int64(7000 + s.number)
	switch ports := of["ports"].([]any); {
	case len(ports) < 2:
	case s.act == replacePort:
		ports[0] = map[string]any{"containerPort": number, "name": "new"}
	case s.act == dropPort:
		of["ports"] = ports[1:]
	case s.act == renamePort:
		of["ports"] = ports[1:]
		ports[1].(map[string]any)["name"] = "kept-" + s.name
	case s.act == appendPort && !slices.ContainsFunc(ports, func(p any) bool { return p.(map[string]any)["containerPort"] == number }):
		of["ports"] = append(ports, map[string]any{"containerPort": number, "name": "more-" + s.name})
	case s.act == movePort:
		of["ports"] = append(slices.Clone(ports[len(ports)-1:]), ports[:len(ports)-1]...)
	}
}

// rules are those of a step about unstructured boxes.
func (s boxStep) rules() []admissionregistrationv1.RuleWithOperations {
	resource, scope := "pods", admissionregistrationv1.NamespacedScope
	if s.kind.Kind == "Namespace" {
		resource, scope = "namespaces", admissionregistrationv1.ClusterScope
	}
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: s.Operations, Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}, Scope: &scope},
	}}
}

// add gives the Manager the step.
func (s boxStep) add(m *eirinix.ExtensionManager) error {
	switch {
	case s.form >= patchedForm:
		return m.AddExtension(boxExtension{s})
	case s.form == treeForm:
		settings := s.Settings
		settings.Rules, settings.Operations = s.rules(), nil
		return addBox[*unstructured.Unstructured](m, s, settings)
	case s.kind.Kind == "Namespace":
		return addBox[*corev1.Namespace](m, s, s.Settings)
	}
	return addBox[*corev1.Pod](m, s, s.Settings)
}

func addBox[T client.Object](m *eirinix.ExtensionManager, s boxStep, settings eirinix.Settings) error {
	if !s.judges {
		return m.AddExtension(eirinix.Mutation[T]{ID: s.name, Settings: settings, Apply: func(ctx context.Context, c *eirinix.Call, o T) error {
			c.Warn("%s", s.saw(o))
			s.changes(o)
			return s.obeys(ctx, o)
		}})
	}
	judge := func(ctx context.Context, c *eirinix.Call, o T) error {
		c.Warn("%s", s.saw(o))
		err := s.obeys(ctx, o)
		o.SetAnnotations(nil) // it is the step's own
		return err
	}
	step := eirinix.Validation[T]{ID: s.name, Settings: settings}
	for _, operation := range s.Operations {
		switch operation {
		case admissionregistrationv1.Create:
			step.Create = judge
		case admissionregistrationv1.Update:
			step.Update = func(ctx context.Context, c *eirinix.Call, _, o T) error { return judge(ctx, c, o) }
		case admissionregistrationv1.Delete:
			step.Delete = judge
		}
	}
	return m.AddExtension(step)
}

// boxExtension is a step in EiriniX's form.
type boxExtension struct{ boxStep }

func (e boxExtension) Name() string               { return e.name }
func (e boxExtension) Settings() eirinix.Settings { return e.boxStep.Settings }

func (e boxExtension) Handle(ctx context.Context, m eirinix.Manager, pod *corev1.Pod, req admission.Request) admission.Response {
	saw := e.saw(pod)
	switch err := e.obeys(ctx, pod); {
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown && e.isTo(pod, elsewhereForbidden) == "":
		return admission.Denied(e.name + " denies").WithWarnings(saw)
	case err != nil:
		return admission.Errored(500, err)
	case e.form == silentForm:
		return admission.Response{}
	case e.form == byHandForm:
		return admission.Patched("", jsonpatch.NewOperation("add", "/metadata/annotations/"+strings.ReplaceAll(marks+e.name, "/", "~1"), strconv.Itoa(stamped(pod)+1))).WithWarnings(saw)
	}
	e.changes(pod)
	response := m.PatchFromPod(req, pod).WithWarnings(saw)
	pod.Labels, pod.Annotations = nil, nil // too late for the answer
	return response
}

// box makes a box of a kind.
func (w *World) box(kind, name string, rng *rand.Rand) *unstructured.Unstructured {
	o := podIn("shop", name)
	if kind == "Namespace" {
		o = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": map[string]any{"unknown": "of a later API"}}}
	} else {
		var ports []any
		for i, p := range rng.Perm(4)[:2+rng.IntN(3)] {
			port := map[string]any{"containerPort": int64(53), "protocol": []string{"TCP", "UDP"}[p%2], "unknown": int64(i)}
			if p > 1 {
				port["containerPort"] = int64(80)
			}
			ports = append(ports, port)
		}
		spec := o.Object["spec"].(map[string]any)
		spec["containers"] = append(spec["containers"].([]any), map[string]any{"name": "side", "image": "example.com/side", "ports": ports})
	}
	labels := map[string]string{boxed: "yes", corev1.LabelMetadataName: name}
	if rng.IntN(2) == 0 {
		labels[ribbon] = "yes"
	}
	hung, all := false, rng.IntN(4)
	switch rng.IntN(8) {
	case 0: // one hangs, and nothing else is amiss
		all = 0
		labels[does+w.boxes[rng.IntN(len(w.boxes))].name] = hang
	case 1: // all that have a Timeout take it, and one that has none hangs
		all = 0
		for _, s := range w.boxes {
			if s.Timeout > 0 {
				labels[does+s.name] = dawdles
			} else if !hung && rng.IntN(2) == 0 {
				labels[does+s.name], hung = hang, true
			}
		}
	}
	for range all {
		what := []string{deny, invalid, badRequest, elsewhereForbidden, fail, panics, hang, dawdles}[rng.IntN(8)]
		if what == hang && hung {
			continue
		}
		hung = hung || what == hang
		labels[does+w.boxes[rng.IntN(len(w.boxes))].name] = what
	}
	o.SetLabels(labels)
	o.SetAnnotations(map[string]string{nonceKey: fmt.Sprintf("%016x", rng.Uint64())})
	return o
}

// packs has an API server admit something about a box.
func (w *World) packs(rng *rand.Rand, n int) {
	s := w.servers[rng.IntN(len(w.servers))]
	if failing, frozen := s.state(); failing != 0 || frozen != nil {
		return
	}
	a := ask{operation: admissionv1.Create, resource: podResource, kind: podKind}
	if rng.IntN(3) == 0 {
		a.resource.Resource, a.kind.Kind = "namespaces", "Namespace"
	}
	name := fmt.Sprint("box", n)
	a.object = w.box(a.kind.Kind, name, rng)
	ill := false
	switch rng.IntN(8) {
	case 0:
		a.operation, a.old, a.object = admissionv1.Delete, a.object, nil
	case 1, 2:
		a.operation, a.old = admissionv1.Update, w.box(a.kind.Kind, name, rng)
	case 3:
		a.operation, a.old = admissionv1.Update, a.object.DeepCopy()
		a.object.SetResourceVersion("2")
	case 4:
		if ill = a.kind.Kind == "Pod"; ill {
			container(a.object)["image"] = int64(illImage)
		}
	}
	began, v, over := w.offers(s, a)
	if over {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	called := map[string]bool{}
	for _, one := range v.said {
		called[one.path()] = true
		if of := w.boxesAt(one.path()); len(of) > 0 {
			w.packedWell(s, one, of, ill, began)
		}
	}
	if v.failed != nil || v.denied != "" || a.settled() || !w.mustRun(lenient, began) || !w.reachable(began) || w.troubledSince(began, rough, slow, apart, evicted) {
		return
	}
	for _, step := range w.boxes {
		of := func(path string) bool {
			return called[path] && slices.ContainsFunc(w.boxesAt(path), func(b boxStep) bool { return b.name == step.name })
		}
		if len(step.Objects.MatchExpressions) == 0 && step.wants(a, a.object, false) && !slices.ContainsFunc(slices.Collect(maps.Keys(called)), of) {
			w.breaks("%s: step %s of every live version, which is about boxes, is not called for the %s of a %s (called: %s)", s.name, step.name, a.operation, a.kind.Kind, v.entries())
		}
	}
}

// boxesAt are the steps about boxes behind a path, in their order. The caller holds mu.
func (w *World) boxesAt(path string) []boxStep {
	return slices.DeleteFunc(slices.Clone(w.boxes), func(s boxStep) bool { return !slices.Contains(w.paths[path], cmp.Or(s.name, path)) })
}
