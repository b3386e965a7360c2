package world

// This file is which webhooks an API server calls for a request. API servers' own code decides, and no code of the library.

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/authentication/user"

	"code.cloudfoundry.org/eirinix/internal/conditions"
)

// ask is a request that webhooks admit.
type ask struct {
	operation   admissionv1.Operation
	resource    metav1.GroupVersionResource
	kind        metav1.GroupVersionKind
	object, old *unstructured.Unstructured // one of them may be nil
	dry         bool
	subresource string // empty for the object itself
	user        string // empty for alice
	name, in    string // empty for those of the subject
	collected   bool   // it is one of a collection that is deleted, so the request names none
}

// by is the user of a request.
func (a ask) by() string { return cmp.Or(a.user, userName) }

// subject is the object that a request is about.
func (a ask) subject() *unstructured.Unstructured {
	if a.object == nil {
		return a.old
	}
	return a.object
}

// called is the name of the object that the request is about.
func (a ask) called() string {
	if a.collected {
		return ""
	}
	return cmp.Or(a.name, a.subject().GetName())
}

// namespace is that of the subject, or its name if it is one.
func (a ask) namespace() string {
	if a.resource.Resource == "namespaces" {
		return a.subject().GetName()
	}
	return cmp.Or(a.in, a.subject().GetNamespace())
}

// attributes describe the request for the code of API servers.
func (a ask) attributes() admission.Attributes {
	return admission.NewAttributesRecord(
		objectOf(a.object), objectOf(a.old), schema.GroupVersionKind(a.kind), a.namespace(), a.called(),
		schema.GroupVersionResource(a.resource), a.subresource, admission.Operation(a.operation), nil, a.dry, &user.DefaultInfo{Name: a.by()},
	)
}

// objectOf is a nil interface for no object.
func objectOf(o *unstructured.Unstructured) runtime.Object {
	if o == nil {
		return nil
	}
	return o
}

// selects reports whether an API server calls the webhook for the request.
func (h hook) selects(ctx context.Context, a ask, namespace labels.Set) (bool, error) {
	attributes := a.attributes()
	if !slices.ContainsFunc(h.Rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return (&rules.Matcher{Rule: r, Attr: attributes}).Matches()
	}) || namespace != nil && !selected(h.NamespaceSelector, namespace) {
		return false, nil
	}
	if !selectsObject(h.ObjectSelector, a.object) && !selectsObject(h.ObjectSelector, a.old) {
		return false, nil
	}
	if len(h.MatchConditions) == 0 {
		return true, nil
	}
	matched := h.conditions().Match(ctx, &admission.VersionedAttributes{
		Attributes: attributes, VersionedKind: schema.GroupVersionKind(a.kind),
		VersionedObject: admission.NewLazyObject(objectOf(a.object)), VersionedOldObject: admission.NewLazyObject(objectOf(a.old)),
	}, nil, nil)
	return matched.Matches, matched.Error
}

var compiled sync.Map // matchconditions.Matcher by the text of the conditions

// conditions are the matchConditions of the webhook, which are compiled once.
func (h hook) conditions() matchconditions.Matcher {
	key := fmt.Sprint(h.MatchConditions, *h.FailurePolicy)
	if known, ok := compiled.Load(key); ok {
		return known.(matchconditions.Matcher)
	}
	made := conditions.Matcher(admissionregistrationv1.MutatingWebhook{Name: h.Name, MatchConditions: h.MatchConditions, FailurePolicy: h.FailurePolicy})
	compiled.Store(key, made)
	return made
}

// selected evaluates a selector, which selects everything if there is none.
func selected(s *metav1.LabelSelector, of labels.Set) bool {
	if s == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(of)
}

// selectsObject evaluates a selector on the labels of an object that a request may lack.
func selectsObject(s *metav1.LabelSelector, o *unstructured.Unstructured) bool {
	return o != nil && selected(s, o.GetLabels())
}
