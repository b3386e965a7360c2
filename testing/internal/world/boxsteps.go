package world

// This file is the work of the steps about boxes.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
)

// isTo reports whether a box has the step do something of these.
func (s boxStep) isTo(o metav1.Object, what ...string) string {
	to := o.GetLabels()[does+s.name]
	if to == failsUntied && o.GetLabels()[ribbon] == "" {
		to = fail
	}
	if slices.Contains(what, to) {
		return to
	}
	return ""
}

// refusals are the codes and the reasons of orders to deny.
var refusals = map[string]metav1.Status{
	deny:       {Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden},
	invalid:    {Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid},
	lacks:      {Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid},
	badRequest: {Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest},
}

// order is the order of a box to the step.
func (s boxStep) order(o metav1.Object) string {
	return s.isTo(o, deny, invalid, lacks, badRequest, elsewhereForbidden, fail, panics, hang, dawdles)
}

// obeys follows an order.
func (s boxStep) obeys(ctx context.Context, order string, o metav1.Object) error {
	switch order {
	case dawdles:
		if s.Reinvoke == "" && s.Mode != eirinix.ModeShadow { // else it may run twice
			time.Sleep(s.Timeout * 8 / 10)
		}
	case deny:
		return eirinix.Deny("%s denies", s.name)
	case invalid:
		all := field.ErrorList{field.Forbidden(field.NewPath(s.name), s.name+" denies")}
		return apierrors.NewInvalid(s.kind.GroupKind(), cmp.Or(o.GetName(), o.GetGenerateName()), all) // as validators of controller-runtime do
	case lacks:
		return eirinix.Invalid(field.ErrorList{field.Required(field.NewPath("metadata", "labels").Key(ownerLabel), s.name+" denies")})
	case badRequest:
		return fmt.Errorf("it is wrong: %w", apierrors.NewBadRequest(s.name+" denies"))
	case elsewhereForbidden:
		return apierrors.NewForbidden(corev1.Resource("pods"), "another", errors.New("it is another one's"))
	case fail:
		return errors.New("it is to fail")
	case panics:
		s.later.panicked.Add(1)
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
	case alter:
		switch o := o.(type) {
		case *unstructured.Unstructured:
			alters(o.Object, s.name)
		case client.Object:
			altersTyped(o, s.name)
		}
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

// byHand is the patch that a step makes by itself: it sets its mark, and copies the nonce.
func (s boxStep) byHand(o metav1.Object) []jsonpatch.Operation {
	return []jsonpatch.Operation{
		jsonpatch.NewOperation("test", "/spec/containers/0/env/0/unknown", 1),
		jsonpatch.NewOperation("add", "/metadata/annotations/"+strings.ReplaceAll(marks+s.name, "/", "~1"), strconv.Itoa(stamped(o)+1)),
	}
}

// rawByHand is the same as a text, with an operation of which the form in Go has none.
func (s boxStep) rawByHand(o metav1.Object) []byte {
	var all []any
	for _, operation := range s.byHand(o) {
		all = append(all, operation)
	}
	all = append(all, map[string]string{"op": "copy", "from": "/metadata/annotations/" + nonceKey, "path": "/metadata/annotations/" + noteKey + s.name})
	text, _ := json.Marshal(all) // of texts
	return text
}

// changed returns an object as the step changes it.
func (s boxStep) changed(o *unstructured.Unstructured) *unstructured.Unstructured {
	if s.form != byHandForm {
		o = o.DeepCopy()
		if s.changes(o); s.addsMore() {
			notes := o.GetAnnotations()
			notes[moreKey] = s.name
			o.SetAnnotations(notes)
		}
		return o
	}
	is, err := patched(o, s.rawByHand(o))
	if err != nil {
		return o
	}
	if notes := is.GetAnnotations(); s.number%2 == 0 { // it copies nothing
		delete(notes, noteKey+s.name)
		is.SetAnnotations(notes)
	}
	return is
}

// rules are those of a step about unstructured boxes.
func (s boxStep) rules() []admissionregistrationv1.RuleWithOperations {
	resource, scope := "pods", admissionregistrationv1.NamespacedScope
	switch s.kind.Kind {
	case "Namespace":
		resource, scope = "namespaces", admissionregistrationv1.ClusterScope
	case node:
		resource, scope = "nodes", admissionregistrationv1.ClusterScope
	}
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: s.Operations, Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}, Scope: &scope},
	}}
}

// said are the Settings of the step, of which those that are the default may be left out.
func (s boxStep) settings() eirinix.Settings {
	settings := s.Settings
	switch {
	case s.form == treeForm:
		settings.Rules, settings.Operations = s.rules(), nil
	case s.implied && s.isDefault():
		settings.Operations = nil
	}
	return settings
}

// isDefault reports whether the step is for the operations for which it is without Settings.
func (s boxStep) isDefault() bool {
	create, update := slices.Contains(s.Operations, admissionregistrationv1.Create), slices.Contains(s.Operations, admissionregistrationv1.Update)
	switch {
	case s.rule:
		return create && update
	case s.judges:
		return true
	case s.kind.Kind == "Pod":
		return create && !update
	}
	return create && update
}

// add gives the Manager the step.
func (s boxStep) add(m *eirinix.ExtensionManager) error {
	switch {
	case s.form >= patchedForm:
		return m.AddExtension(boxExtension{s})
	case s.form == treeForm:
		return addBox[*unstructured.Unstructured](m, s, s.settings())
	case s.kind.Kind == "Namespace":
		return addBox[*corev1.Namespace](m, s, s.settings())
	case s.kind.Kind == node:
		return addBox[*corev1.Node](m, s, s.settings())
	}
	return addBox[*corev1.Pod](m, s, s.settings())
}

func addBox[T client.Object](m *eirinix.ExtensionManager, s boxStep, settings eirinix.Settings) error {
	if !s.judges {
		return m.AddExtension(eirinix.Mutation[T]{ID: s.name, Settings: settings, Apply: func(ctx context.Context, c *eirinix.Call, o T) error {
			s.notes(c, o)
			c.Warn("%s", s.saw(o))
			order, unfit := s.order(o), s.isUnfit(o)
			s.changes(o)
			if tree, ok := any(o).(*unstructured.Unstructured); ok && s.number%2 == 0 {
				oddly(tree)
			}
			if unfit {
				spoils(o)
			}
			return s.obeys(ctx, order, o)
		}})
	}
	judge := func(ctx context.Context, c *eirinix.Call, o T) error {
		s.notes(c, o)
		c.Warn("%s", s.saw(o))
		err := s.obeys(ctx, s.order(o), o)
		o.SetAnnotations(nil) // it is the step's own
		return err
	}
	step := eirinix.Validation[T]{ID: s.name, Settings: settings}
	if s.rule {
		if step.Rule = judge; s.both {
			step.Create = func(context.Context, *eirinix.Call, T) error { return nil }
			step.Update = func(context.Context, *eirinix.Call, T, T) error { return nil }
		}
		return m.AddExtension(step)
	}
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
func (e boxExtension) Settings() eirinix.Settings { return e.settings() }

func (e boxExtension) Handle(ctx context.Context, m eirinix.Manager, pod *corev1.Pod, req admission.Request) admission.Response {
	e.sees(req.UID, pod)
	saw := e.saw(pod)
	switch err := e.obeys(ctx, e.order(pod), pod); {
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown && e.isTo(pod, elsewhereForbidden) == "":
		return admission.Denied(e.name + " denies").WithWarnings(saw)
	case err != nil:
		return admission.Errored(500, err)
	case e.form == silentForm:
		return admission.Response{}
	case e.form == byHandForm && e.isUnfit(pod) && e.number%2 == 0:
		return admission.Patched("", jsonpatch.NewOperation("test", "/spec/containers/0/name", "another"))
	case e.form == byHandForm && e.isUnfit(pod):
		return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(`[{"op":"replace","path":"/spec/containers","value":"none"}]`)}}
	case e.form == byHandForm && e.number%2 == 0:
		return admission.Patched("", e.byHand(pod)...).WithWarnings(saw)
	case e.form == byHandForm:
		return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: true, Patch: e.rawByHand(pod), Warnings: []string{saw}}}
	}
	unfit := e.isUnfit(pod)
	if e.changes(pod); unfit {
		spoils(pod)
	}
	response := m.PatchFromPod(req, pod).WithWarnings(saw)
	if e.addsMore() && response.Allowed {
		more := jsonpatch.NewOperation("add", "/metadata/annotations/"+moreKey, e.name)
		response.Patches, response.PatchType = append(response.Patches, more), new(admissionv1.PatchTypeJSONPatch)
	}
	pod.Labels, pod.Annotations = nil, nil // too late for the answer
	return response
}

// moreKey is an annotation that some steps add to the patch of PatchFromPod.
const moreKey = noteKey + "more"

// addsMore reports whether the step does.
func (s boxStep) addsMore() bool { return s.form == patchedForm && s.number%2 == 1 }

// notes has a step in Shadow note the objects that it sees.
func (s boxStep) notes(c *eirinix.Call, o metav1.Object) { s.sees(c.UID, o) }

func (s boxStep) sees(id types.UID, o metav1.Object) {
	if s.Mode == eirinix.ModeShadow {
		s.later.note(id, s.name, s.looks(o))
	}
}

// looks is all that a step in Shadow notes of a box: the parts that steps change most.
func (s boxStep) looks(o metav1.Object) string {
	tree, ok := o.(*unstructured.Unstructured)
	if !ok {
		made, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return err.Error()
		}
		tree = &unstructured.Unstructured{Object: made}
	}
	spec, _ := tree.Object["spec"].(map[string]any)
	text := fmt.Sprint(s.saw(o), " ", o.GetLabels(), " ", len(o.GetAnnotations()), " ", spec["activeDeadlineSeconds"])
	for _, one := range itemsOf(spec, "containers") {
		of, _ := one.(map[string]any)
		text += fmt.Sprint(" ", len(itemsOf(of, "env")), " ", len(itemsOf(of, "args")), " ", len(itemsOf(of, "ports")), " ", len(itemsOf(of, "volumeMounts")))
	}
	return text
}
