package apiserver

// This file decides whether a webhook is called for a request.

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// invocation is a webhook call to make: its resource and kind, and the objects in that version. Under matchPolicy
// Equivalent, resource and kind can differ from those of the request.
type invocation struct {
	resource          schema.GroupVersionResource
	kind              schema.GroupVersionKind
	object, oldObject Document
}

// match decides whether the webhook is called. Rules and conditions are evaluated by the API server's own code. Rules come
// before selectors here, because of several reasons they are the one that users look for. match returns nil if the webhook
// is not called. An error refuses the request.
func (a *admissionRun) match(ctx context.Context, w *webhook, current Document) (*invocation, error) {
	attr, err := a.attributes(current, a.oldObject)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	call, pass := a.matchRules(w, attr), Pass{Webhook: w.Name}
	switch {
	case rules.IsExemptAdmissionConfigurationResource(attr): // no webhook may block its own repair
		pass.Why = "no webhook is ever called for " + attr.GetResource().Resource
	case call == nil:
		pass.Why, pass.Rules = fmt.Sprintf("its rules do not name %s of %s", a.Operation, a.resourceName()), true
	case !a.selectsNamespace(w, attr):
		pass.Why, pass.Namespace = fmt.Sprintf("its namespaceSelector leaves out namespace %q", attr.GetNamespace()), true
	case !selectsObject(w, attr):
		pass.Why = "its objectSelector leaves out an object with these labels"
	default:
		if err := a.fill(ctx, call, current); err != nil || w.conditions == nil {
			return call, err
		}
		if pass.Why, err = a.condition(ctx, w, attr, call); err != nil || pass.Why == "" {
			return call, err
		}
	}
	a.passed = append(a.passed, pass)
	return nil, nil
}

// condition returns why the conditions of a webhook forbid a call; empty if they do not.
func (a *admissionRun) condition(ctx context.Context, w *webhook, attr admission.Attributes, call *invocation) (string, error) {
	typed, typedOld, err := bothTyped(call.object, call.oldObject)
	if err != nil {
		return "", apierrors.NewInternalError(err)
	}
	versioned := &admission.VersionedAttributes{
		Attributes: attr, VersionedKind: call.kind,
		VersionedObject: admission.NewLazyObject(typed), VersionedOldObject: admission.NewLazyObject(typedOld),
	}
	authorize := cmp.Or[authorizer.UnconditionalAuthorizer](a.s.Authorizer, authorizer.AuthorizerFunc(mastersOnly))
	switch matched := w.conditions.Match(ctx, versioned, nil, authorize); {
	case matched.Error != nil:
		return "", apierrors.NewForbidden(a.Resource.GroupResource(), a.Name, matched.Error)
	case !matched.Matches:
		return fmt.Sprintf("its matchCondition %q is false", matched.FailedConditionName), nil
	}
	return "", nil
}

// resourceName returns the resource of the request in the form that rules use.
func (a *admissionRun) resourceName() string {
	name := a.Resource.GroupResource().String()
	if a.Subresource != "" {
		name += "/" + a.Subresource
	}
	return name
}

// selectsNamespace evaluates the namespaceSelector on the labels of the request's namespace. For a namespace that is
// created or updated, it uses the labels of the object itself. For one that is deleted, it adds the labels of the
// stored object. An object that belongs to no namespace is never exempt.
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

// namespaceLabels returns the labels that were given for a namespace, and the one that an API server puts on every
// namespace.
func (s *Server) namespaceLabels(name string) labels.Set {
	all := labels.Set{corev1.LabelMetadataName: name}
	maps.Copy(all, s.Namespaces[name])
	return all
}

// selectsObject evaluates the objectSelector on the new object and on the old one. Objects without metadata, such as
// the options of a CONNECT, match only the empty selector.
func selectsObject(w *webhook, attr admission.Attributes) bool {
	return w.objects.Empty() || slices.ContainsFunc([]runtime.Object{attr.GetObject(), attr.GetOldObject()}, func(o runtime.Object) bool {
		m, err := meta.Accessor(o)
		return err == nil && w.objects.Matches(labels.Set(m.GetLabels()))
	})
}

// matchRules finds a rule for the request, else under matchPolicy Equivalent one for another version of the resource. It
// returns the call without its objects, or nil.
func (a *admissionRun) matchRules(w *webhook, attr admission.Attributes) *invocation {
	for _, r := range w.Rules {
		if m := (rules.Matcher{Rule: r, Attr: attr}); m.Matches() {
			return &invocation{resource: a.Resource, kind: attr.GetKind()}
		}
	}
	if w.MatchPolicy == nil || *w.MatchPolicy != admissionregistrationv1.Equivalent {
		return nil
	}
	for _, r := range w.Rules {
		for _, other := range a.equivalents() {
			m := rules.Matcher{Rule: r, Attr: atResource{attr, other.Resource}}
			if !m.Matches() {
				continue
			}
			kind := attr.GetKind() // the object of a subresource, such as Scale, has its own versions
			if a.Subresource == "" || a.Subresource == "status" {
				kind = other.GroupVersionKind
			}
			return &invocation{resource: other.Resource, kind: kind}
		}
	}
	return nil
}

// fill sets the objects of a call, in its version.
func (a *admissionRun) fill(ctx context.Context, call *invocation, current Document) (err error) {
	if !a.ahead.Absent() && a.ahead.Kind != call.kind {
		if err := a.convertBack(ctx); err != nil {
			return err
		}
		current = a.current
	}
	if call.object, err = a.convert(ctx, current, call.kind); err == nil {
		call.oldObject, err = a.convert(ctx, a.oldObject, call.kind)
	}
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return nil
}

// atResource is a request as it would be for another version of its resource.
type atResource struct {
	admission.Attributes
	resource schema.GroupVersionResource
}

func (a atResource) GetResource() schema.GroupVersionResource { return a.resource }

// equivalents returns the other versions of the request's resource: those with the same plural.
func (a *admissionRun) equivalents() (all []*meta.RESTMapping) {
	kind, err := a.s.mapper().KindFor(a.Resource)
	if err != nil {
		return nil
	}
	kinds := []schema.GroupKind{kind.GroupKind()}
	if i := slices.Index(events, kind.GroupKind()); i >= 0 {
		kinds = append(kinds, events[1-i])
	}
	for _, kind := range kinds {
		for _, mapper := range a.s.mappers {
			mappings, _ := mapper.RESTMappings(kind) // none, if another mapper has the kind
			all = append(all, mappings...)
		}
	}
	return slices.DeleteFunc(all, func(m *meta.RESTMapping) bool {
		return m.Resource == a.Resource || m.Resource.Resource != a.Resource.Resource
	})
}

// events lists the two groups of one resource, which the API server stores together.
var events = []schema.GroupKind{{Kind: "Event"}, {Group: "events.k8s.io", Kind: "Event"}}
