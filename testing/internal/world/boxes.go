package world

// This file is boxes: pods and namespaces with a label, and the steps that a seed draws for them. What the steps of a call must do
// together is reckoned in boxed.go.

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix"
)

const (
	boxed  = "box"             // the label of a box, and the begin of the names of the steps about boxes
	ribbon = "ribbon"          // a label that steps add and remove, and by which some of them select
	marks  = "example.com/box" // the begin of the annotations that steps add
	does   = "does-"           // the begin of the labels that are orders to steps

	ownerLabel = "owner"
	quietLabel = "quiet" // of boxes that the Conditions of some steps leave out
)

// The orders in the labels of a box.
const (
	deny, invalid, badRequest, elsewhereForbidden = "denies", "finds-invalid", "finds-bad", "is-forbidden-elsewhere"
	lacks                                         = "lacks-an-owner"
	fail, panics, hang                            = "fails", "panics", "hangs"
	dawdles                                       = "dawdles"      // takes most of its Timeout, if it has one
	failsUntied                                   = "fails-untied" // until another step gives it a ribbon
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
	alter
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
	rule        bool // it judges by a Rule
	both        bool // beside its Rule, it has callbacks that refuse nothing
	only        bool // its program has a Namespace
	implied     bool // it names no operations that are the default
	later       *shadowed
}

// drawBoxes draws the steps, which all versions of the program have.
func drawBoxes(rng *rand.Rand, modes bool) (all []boxStep) {
	n := 5 + rng.IntN(5)
	again, timed := rng.IntN(2) == 0, rng.IntN(3) // all have a Timeout, or all but the first ones, or some
	later, like := &shadowed{}, eirinix.Settings{}
	if rng.IntN(3) == 0 {
		like.MatchPolicy = admissionregistrationv1.Exact
	}
	if rng.IntN(3) == 0 {
		like.SideEffects = admissionregistrationv1.SideEffectClassNoneOnDryRun
	}
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
		s.later, s.MatchPolicy, s.SideEffects = later, like.MatchPolicy, like.SideEffects
		s.drawMore(rng)
		all = append(all, s)
	}
	return all
}

// drawMore draws the rest of a step.
func (s *boxStep) drawMore(rng *rand.Rand) {
	if s.rule = s.judges && rng.IntN(2) == 0; s.rule {
		s.Operations = slices.DeleteFunc(slices.Clone(s.Operations), func(o admissionregistrationv1.OperationType) bool { return o == admissionregistrationv1.Delete })
	}
	if s.implied = rng.IntN(2) == 0; !s.judges && rng.IntN(2) == 0 {
		s.act = alter
	}
	if rng.IntN(8) == 0 {
		s.Conditions = []admissionregistrationv1.MatchCondition{{Name: "not-quiet", Expression: "request.operation == 'DELETE' || !('" + quietLabel + "' in object.metadata.labels)"}}
	}
	if len(s.modes) == 0 && rng.IntN(6) == 0 {
		s.Mode = eirinix.ModeShadow
	}
	s.FixedMode = len(s.modes) > 0 && rng.IntN(4) == 0
}

// entry is the entry of the step in the ConfigMap of the modes, in one of the forms that people write.
func (s boxStep) entry() string {
	if s.number%2 == 0 {
		text := fmt.Sprintf("# by its team\n\n\t%s   where %s", strings.ToLower(string(s.modes[0])), ribbon)
		for _, m := range s.modes[1:] {
			text += "\n#" + string(eirinix.ModeShadow) + "\n " + strings.ToUpper(string(m)) + " 100%\n"
		}
		return text
	}
	text := fmt.Sprintf("%s 0%%\n%s where %s", eirinix.ModeShadow, s.modes[0], ribbon)
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
	case s.FixedMode:
	case len(s.modes) > 0 && a.kind.Kind == "Namespace" && a.subject().GetLabels()[ribbon] != "":
		mode = s.modes[0]
	case len(s.modes) > 1:
		mode = s.modes[1]
	}
	return mode, mode == eirinix.ModeWarn || mode == eirinix.ModeAudit
}

// fails reports whether a failure of the step fails its call.
func (s boxStep) fails() bool {
	return s.FailurePolicy == admissionregistrationv1.Fail && s.Mode != eirinix.ModeShadow
}

// box makes a box of a kind.
func (w *World) box(kind, name string, rng *rand.Rand) *unstructured.Unstructured {
	o := podIn("shop", name)
	if kind != "Pod" {
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
	if n := rng.IntN(3); n > 0 {
		labels[ownerLabel] = []string{"", "alice", "bob"}[n]
	}
	if rng.IntN(5) == 0 {
		labels[quietLabel] = "yes"
	}
	hung, all := false, rng.IntN(4)
	switch rng.IntN(8) {
	case 0: // one hangs, and nothing else is amiss
		all = 0
		labels[does+w.boxes[rng.IntN(len(w.boxes))].name] = hang
	case 2: // one makes a change that cannot be written, and nothing else is amiss
		all = 0
		labels[does+w.boxes[rng.IntN(len(w.boxes))].name] = unfit
	case 3: // some with Ignore fail, and nothing else is amiss
		all = 0
		for _, s := range w.boxes {
			if s.FailurePolicy == admissionregistrationv1.Ignore && rng.IntN(2) == 0 {
				labels[does+s.name] = []string{fail, panics, elsewhereForbidden}[rng.IntN(3)]
			}
		}
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
		what := []string{deny, invalid, lacks, badRequest, elsewhereForbidden, fail, panics, hang, dawdles, failsUntied, failsUntied}[rng.IntN(11)]
		if what == hang && hung {
			continue
		}
		hung = hung || what == hang
		labels[does+w.boxes[rng.IntN(len(w.boxes))].name] = what
	}
	o.SetLabels(labels)
	o.SetAnnotations(map[string]string{nonceKey: fmt.Sprintf("%016x", rng.Uint64())})
	furnish(o, rng)
	if rng.IntN(2) == 0 {
		_ = unstructured.SetNestedSlice(o.Object, managed(0), "metadata", "managedFields") // it is an object
	}
	return o
}

// beforeIt returns a box as it was before a change of its metadata and its status, and makes that change. A step with a Rule denies it,
// and some of the orders to steps were others.
func (w *World) beforeIt(box *unstructured.Unstructured, rng *rand.Rand) *unstructured.Unstructured {
	rules := slices.DeleteFunc(slices.Clone(w.boxes), func(s boxStep) bool {
		return !s.rule || s.kind.Kind != box.GetKind() || !slices.Contains(s.Operations, admissionregistrationv1.Update)
	})
	if orders := box.GetLabels(); len(rules) > 0 {
		orders[does+rules[rng.IntN(len(rules))].name] = []string{lacks, lacks, deny, invalid}[rng.IntN(4)]
		box.SetLabels(orders)
	}
	was := box.DeepCopy()
	box.Object["status"] = map[string]any{"phase": "Running"}
	notes, labels := box.GetAnnotations(), was.GetLabels()
	notes[noteKey+"changed"] = "yes"
	box.SetAnnotations(notes)
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if n := rng.IntN(8); strings.HasPrefix(name, does) && n < 3 {
			labels[name] = []string{fail, deny, lacks}[n]
		}
	}
	if rng.IntN(3) == 0 { // it is the owner that changes
		if labels[ownerLabel] == "" {
			labels[ownerLabel] = "alice"
		} else {
			delete(labels, ownerLabel)
		}
	}
	was.SetLabels(labels)
	return was
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
	own := w.stream("place", n)
	if a.kind.Kind == "Namespace" && own.IntN(3) == 0 {
		a.resource.Resource, a.kind.Kind = "nodes", node
	}
	in := []string{"shop", "shop", "shop", bank, system}[own.IntN(5)]
	made := func(name string) *unstructured.Unstructured {
		o := w.box(a.kind.Kind, name, rng)
		if a.kind.Kind == "Pod" {
			o.SetNamespace(in)
		}
		return o
	}
	name := fmt.Sprint("box", n)
	a.object = made(name)
	ill := false
	switch rng.IntN(8) {
	case 0, 7:
		a.operation, a.old, a.object, a.collected = admissionv1.Delete, a.object, nil, own.IntN(2) == 0
		if judges := slices.DeleteFunc(slices.Clone(w.boxes), func(s boxStep) bool {
			return s.kind.Kind != a.kind.Kind || !slices.Contains(s.Operations, admissionregistrationv1.Delete)
		}); len(judges) > 0 && own.IntN(2) == 0 {
			labels := a.old.GetLabels()
			labels[does+judges[own.IntN(len(judges))].name] = invalid
			a.old.SetLabels(labels)
		}
	case 1, 2:
		a.operation, a.old = admissionv1.Update, made(name)
	case 3:
		a.operation, a.old = admissionv1.Update, a.object.DeepCopy()
		a.object.SetResourceVersion("2")
		_ = unstructured.SetNestedSlice(a.object.Object, managed(1), "metadata", "managedFields") // it is an object
	case 5:
		a.operation, a.old = admissionv1.Update, w.beforeIt(a.object, rng)
	case 6:
		if a.kind.Kind == "Pod" && own.IntN(2) == 0 {
			a.object.SetGenerateName(name + "-")
			a.object.SetName("")
		}
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
		if len(step.Objects.MatchExpressions) == 0 && !step.leavesOut(a) && step.wants(a, a.object, false) && !slices.ContainsFunc(slices.Collect(maps.Keys(called)), of) {
			w.breaks("%s: step %s of every live version, which is about boxes, is not called for the %s of a %s (called: %s)", s.name, step.name, a.operation, a.kind.Kind, v.entries())
		}
	}
}

// boxesAt are the steps about boxes behind a path, in their order. The caller holds mu.
func (w *World) boxesAt(path string) []boxStep {
	return slices.DeleteFunc(slices.Clone(w.boxes), func(s boxStep) bool { return !slices.Contains(w.paths[path], cmp.Or(s.name, path)) })
}
