// Package apiserver is the admission of an API server in memory: it decides as that does which webhooks to call (rules
// and CEL conditions with its own code), sends AdmissionReviews to their handlers, checks the answers as it does, and
// applies patches with its library. Tests and previews play with it what a cluster would do.
//
// What comes before and after admission it does not do: objects are neither defaulted nor validated nor stored,
// unknown fields are not pruned, and managedFields are not kept. Of other versions of a kind (matchPolicy Equivalent) it
// converts custom resources as strategy None does, and built-in kinds not at all.
package apiserver

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Server is the API server. Set its fields and Add programs before the first Send; from then on it is safe for
// concurrent use.
type Server struct {
	Scheme     *runtime.Scheme                    // of the Go types of objects
	Namespace  string                             // of objects that name none; default "default"
	Namespaces map[string]map[string]string       // labels of namespaces, each of which exists, by name
	Authorizer authorizer.UnconditionalAuthorizer // for matchConditions; default: system:masters may do everything
	Version    string                             // "v1beta1" for a server that prefers that of AdmissionReview

	mappers              []meta.RESTMapper
	mutating, validating []*webhook // in the order in which they are called
}

// Program is what a program serves and has registered, as eirinix.Offline holds it.
type Program struct {
	Handler    http.Handler
	Mutating   *admissionregistrationv1.MutatingWebhookConfiguration   // nil for none
	Validating *admissionregistrationv1.ValidatingWebhookConfiguration // nil for none
	Mapper     meta.RESTMapper
}

// Add takes in the webhooks of a program. Configurations are called in the order of their names. The error is joined of
// all for which an API server would refuse one; the Server is of no use then.
func (s *Server) Add(p Program) error {
	s.mappers = append(s.mappers, p.Mapper)
	var errs []error
	if c := p.Mutating; c != nil {
		for i, w := range c.Webhooks {
			ready, err := newWebhook(c.Name, i, w, p.Handler)
			s.mutating, errs = append(s.mutating, ready), append(errs, err)
		}
	}
	if c := p.Validating; c != nil {
		for i, v := range c.Webhooks {
			w := admissionregistrationv1.MutatingWebhook{ // which has all that a validating one has
				Name: v.Name, ClientConfig: v.ClientConfig, Rules: v.Rules, FailurePolicy: v.FailurePolicy, MatchPolicy: v.MatchPolicy,
				NamespaceSelector: v.NamespaceSelector, ObjectSelector: v.ObjectSelector, SideEffects: v.SideEffects,
				TimeoutSeconds: v.TimeoutSeconds, AdmissionReviewVersions: v.AdmissionReviewVersions, MatchConditions: v.MatchConditions,
			}
			ready, err := newWebhook(c.Name, i, w, p.Handler)
			s.validating, errs = append(s.validating, ready), append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, webhooks := range [][]*webhook{s.mutating, s.validating} {
		slices.SortStableFunc(webhooks, func(a, b *webhook) int { return cmp.Compare(a.configuration, b.configuration) })
	}
	return nil
}

// SideEffects is what the webhook of that name declares; nil where there is none.
func (s *Server) SideEffects(name string) *admissionregistrationv1.SideEffectClass {
	for _, w := range slices.Concat(s.mutating, s.validating) {
		if w.Name == name {
			return w.SideEffects
		}
	}
	return nil
}

// mapper knows plurals and scopes of every program's kinds.
func (s *Server) mapper() meta.RESTMapper {
	return meta.FirstHitRESTMapper{MultiRESTMapper: s.mappers}
}

// UnknownKindError tells that no program's mapper knows a kind.
type UnknownKindError struct {
	Kind schema.GroupVersionKind
	err  error
}

func (e *UnknownKindError) Error() string {
	return fmt.Sprintf("nothing tells the plural of %s: %v", e.Kind, e.err)
}
func (e *UnknownKindError) Unwrap() error { return e.err }

// Place is where the objects of a kind are found.
type Place struct {
	Resource   schema.GroupVersionResource
	Namespaced bool
}

// PlaceOf finds the place of a kind. Its error is an UnknownKindError.
func (s *Server) PlaceOf(kind schema.GroupVersionKind) (Place, error) {
	mapping, err := s.mapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return Place{}, &UnknownKindError{kind, err}
	}
	return Place{Resource: mapping.Resource, Namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace}, nil
}

// NamespaceOf is the namespace that a request for the object is sent to.
func (s *Server) NamespaceOf(at Place, object *unstructured.Unstructured) string {
	if !at.Namespaced {
		return ""
	}
	return cmp.Or(object.GetNamespace(), s.Namespace, "default")
}
