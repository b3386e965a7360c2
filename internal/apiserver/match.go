package apiserver

import (
	"context"
	"fmt"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// invocation is a webhook that is to be called: for which resource and kind, which under matchPolicy Equivalent
// need not be those of the request, and with the objects in that version.
type invocation struct {
	resource          schema.GroupVersionResource
	kind              schema.GroupVersionKind
	object, oldObject Document
}

// match decides whether the webhook is called, in the API server's order: selectors, rules, equivalent rules,
// conditions. Rules and conditions are evaluated by its own code. It is nil where it is not. An error refuses the request.
func (a *admissionRun) match(ctx context.Context, w *webhook, current Document) (*invocation, error) {
	attr, err := a.attributes(current, a.oldObject)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	switch {
	case rules.IsExemptAdmissionConfigurationResource(attr): // no webhook may stand in the way of its own repair
		a.pass(w, "no webhook is ever called for "+attr.GetResource().Resource)
		return nil, nil
	case !a.selectsNamespace(w, attr):
		a.leftOut(w, attr, current, Pass{Why: fmt.Sprintf("its namespaceSelector leaves out namespace %q", attr.GetNamespace()), Namespace: true})
		return nil, nil
	case !selectsObject(w, attr):
		a.leftOut(w, attr, current, Pass{Why: "its objectSelector leaves out an object with these labels"})
		return nil, nil
	}
	call, err := a.matchRules(w, attr, current)
	if call == nil && err == nil {
		a.passed = append(a.passed, a.unnamed(w))
	}
	if call == nil || err != nil || w.conditions == nil {
		return call, err
	}
	typed, err := call.object.Typed()
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	typedOld, err := call.oldObject.Typed()
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	versioned := &admission.VersionedAttributes{
		Attributes: attr, VersionedKind: call.kind,
		VersionedObject: admission.NewLazyObject(typed), VersionedOldObject: admission.NewLazyObject(typedOld),
	}
	switch matched := w.conditions.Match(ctx, versioned, nil, a.s.authorizer()); {
	case matched.Error != nil:
		return nil, apierrors.NewForbidden(a.Resource.GroupResource(), a.Name, matched.Error)
	case !matched.Matches:
		a.pass(w, fmt.Sprintf("its matchCondition %q is false", matched.FailedConditionName))
		return nil, nil
	}
	return call, nil
}

// pass notes why a webhook is not called.
func (a *admissionRun) pass(w *webhook, why string) {
	a.passed = append(a.passed, Pass{Webhook: w.Name, Why: why})
}

// unnamed is the pass of a webhook whose rules are about other requests.
func (a *admissionRun) unnamed(w *webhook) Pass {
	return Pass{Webhook: w.Name, Why: fmt.Sprintf("its rules do not name %s of %s", a.Operation, a.resourceName()), Rules: true}
}

// leftOut notes that a selector leaves the object out. Where the rules do not name it either, that is what people want to
// know.
func (a *admissionRun) leftOut(w *webhook, attr admission.Attributes, current Document, pass Pass) {
	if call, err := a.matchRules(w, attr, current); call == nil && err == nil {
		pass = a.unnamed(w)
	}
	pass.Webhook = w.Name
	a.passed = append(a.passed, pass)
}

// resourceName is the resource of the request, as rules name it.
func (a *admissionRun) resourceName() string {
	name := a.Resource.GroupResource().String()
	if a.Subresource != "" {
		name += "/" + a.Subresource
	}
	return name
}

// selectsNamespace evaluates the namespaceSelector: on the labels of the object itself where that is a namespace, as it is
// stored where it goes away, and on none where an object belongs to no namespace, which is never exempt.
func (a *admissionRun) selectsNamespace(w *webhook, attr admission.Attributes) bool {
	isNamespace := attr.GetResource().Resource == "namespaces"
	if attr.GetNamespace() == "" && !isNamespace {
		return true
	}
	if op := attr.GetOperation(); isNamespace && attr.GetSubresource() == "" && (op == admission.Create || op == admission.Update) {
		if object, err := meta.Accessor(attr.GetObject()); err == nil {
			return w.namespaces.Matches(labels.Set(object.GetLabels()))
		}
	}
	all := a.s.namespaceLabels(attr.GetNamespace())
	if object, err := meta.Accessor(attr.GetOldObject()); err == nil && isNamespace && attr.GetSubresource() == "" {
		maps.Copy(all, object.GetLabels())
	}
	return w.namespaces.Matches(all)
}

// namespaceLabels are those that were given, and the one that an API server puts on every namespace.
func (s *Server) namespaceLabels(name string) labels.Set {
	all := labels.Set{corev1.LabelMetadataName: name}
	maps.Copy(all, s.Namespaces[name])
	return all
}

// selectsObject evaluates the objectSelector on the new object and on the old one. What has no metadata, such as the
// options of a CONNECT, is selected by the empty selector alone.
func selectsObject(w *webhook, attr admission.Attributes) bool {
	if w.objects.Empty() {
		return true
	}
	for _, object := range []runtime.Object{attr.GetObject(), attr.GetOldObject()} {
		if object == nil {
			continue
		}
		if m, err := meta.Accessor(object); err == nil && w.objects.Matches(labels.Set(m.GetLabels())) {
			return true
		}
	}
	return false
}

// matchRules finds a rule for the request, else under matchPolicy Equivalent one for another version of the resource.
func (a *admissionRun) matchRules(w *webhook, attr admission.Attributes, current Document) (*invocation, error) {
	for _, r := range w.Rules {
		if m := (rules.Matcher{Rule: r, Attr: attr}); m.Matches() {
			return &invocation{resource: a.Resource, kind: attr.GetKind(), object: current, oldObject: a.oldObject}, nil
		}
	}
	if w.MatchPolicy == nil || *w.MatchPolicy != admissionregistrationv1.Equivalent {
		return nil, nil
	}
	for _, r := range w.Rules {
		for _, other := range a.equivalents() {
			m := rules.Matcher{Rule: r, Attr: atResource{attr, other.Resource}}
			if !m.Matches() {
				continue
			}
			kind := attr.GetKind() // what goes over a subresource, such as Scale, has versions of its own
			if a.Subresource == "" || a.Subresource == "status" {
				kind = other.GroupVersionKind
			}
			call := &invocation{resource: other.Resource, kind: kind}
			var err error
			if call.object, err = convert(current, kind); err != nil {
				return nil, apierrors.NewInternalError(err)
			}
			if call.oldObject, err = convert(a.oldObject, kind); err != nil {
				return nil, apierrors.NewInternalError(err)
			}
			return call, nil
		}
	}
	return nil, nil
}

// atResource is a request as it would be for another version of its resource.
type atResource struct {
	admission.Attributes
	resource schema.GroupVersionResource
}

func (a atResource) GetResource() schema.GroupVersionResource { return a.resource }

// equivalents are the other versions of the request's resource.
func (a *admissionRun) equivalents() []*meta.RESTMapping {
	mapper := a.s.mapper()
	kind, err := mapper.KindFor(a.Resource)
	if err != nil {
		return nil
	}
	var all []*meta.RESTMapping
	kinds := []schema.GroupKind{kind.GroupKind()}
	if i := slices.Index(events, kind.GroupKind()); i >= 0 {
		kinds = append(kinds, events[1-i])
	}
	for _, kind := range kinds {
		all = append(all, a.versionsOf(kind)...)
	}
	return all
}

// events are one resource in two groups: the API server stores them together.
var events = []schema.GroupKind{{Kind: "Event"}, {Group: "events.k8s.io", Kind: "Event"}}

// versionsOf are the resources of a kind, but for the request's.
func (a *admissionRun) versionsOf(kind schema.GroupKind) (all []*meta.RESTMapping) {
	for _, mapper := range a.s.mappers {
		mappings, err := mapper.RESTMappings(kind)
		if err != nil {
			continue
		}
		for _, m := range mappings {
			if m.Resource != a.Resource && m.Resource.Resource == a.Resource.Resource {
				all = append(all, m)
			}
		}
	}
	return all
}

// convert gives an object in another version of its kind: as the scheme does, and a custom resource as strategy None
// does, which changes the apiVersion alone.
func convert(d Document, kind schema.GroupVersionKind) (Document, error) {
	if d.Absent() || d.Kind == kind {
		return d, nil
	}
	if !clientgoscheme.Scheme.Recognizes(d.Kind) {
		return NewDocument(kind, d.With(func(u *unstructured.Unstructured) { u.SetGroupVersionKind(kind) }).Raw), nil
	}
	return Document{}, fmt.Errorf("without a cluster nothing converts a %s of %s to %s, as an API server would; send the object in that version, or name both versions in Settings.Rules", d.Kind.Kind, d.Kind.GroupVersion(), kind.GroupVersion())
}
