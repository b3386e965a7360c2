// Package apiserver is the admission of an API server in memory. It decides which webhooks to call, with the API
// server's own code for rules and CEL conditions. It sends AdmissionReviews to their handlers, checks the responses
// as an API server does, and applies patches with the API server's library. Tests and previews use it to show the
// behavior of a cluster.
//
// It does nothing that comes before or after admission. Objects are neither defaulted nor validated nor stored,
// unknown fields are not pruned, and managedFields are not kept. Between versions of a kind (matchPolicy Equivalent)
// it converts custom resources as strategy None does, and built-in kinds not at all.
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

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Server is the API server. Set its fields and Add programs before the first Send. From then on it is safe for
// concurrent use.
type Server struct {
	Scheme     *runtime.Scheme                    // of the Go types of objects
	Namespace  string                             // for objects that name none; default "default"
	Namespaces map[string]map[string]string       // labels of namespaces, by name; every namespace exists
	Authorizer authorizer.UnconditionalAuthorizer // for matchConditions; default: system:masters may do everything
	Version    string                             // "v1beta1" for a server that prefers that version of AdmissionReview

	mappers              []meta.RESTMapper
	mutating, validating []*webhook // in the order in which they are called
}

// Program is a program's handler with its webhook configurations, as in eirinix.Offline.
type Program struct {
	Handler    http.Handler
	Mutating   *admissionregistrationv1.MutatingWebhookConfiguration   // nil for none
	Validating *admissionregistrationv1.ValidatingWebhookConfiguration // nil for none
	Mapper     meta.RESTMapper
}

// Add adds the webhooks of a program. Configurations are called in the order of their names. The error joins all
// faults for which an API server would refuse a webhook. After an error the Server cannot be used.
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
			ready, err := newWebhook(c.Name, i, webhookconf.AsMutating(v), p.Handler)
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

// SideEffects returns the sideEffects of the webhook of that name; nil if there is none.
func (s *Server) SideEffects(name string) *admissionregistrationv1.SideEffectClass {
	for _, w := range slices.Concat(s.mutating, s.validating) {
		if w.Name == name {
			return w.SideEffects
		}
	}
	return nil
}

// mapper returns a mapper that knows the plurals and scopes of every program's kinds.
func (s *Server) mapper() meta.RESTMapper {
	return meta.FirstHitRESTMapper{MultiRESTMapper: s.mappers}
}

// UnknownKindError reports that no program's mapper knows a kind.
type UnknownKindError struct {
	Kind schema.GroupVersionKind
	err  error
}

func (e *UnknownKindError) Error() string {
	return fmt.Sprintf("nothing tells the plural of %s: %v", e.Kind, e.err)
}
func (e *UnknownKindError) Unwrap() error { return e.err }

// Place is the resource of a kind, and its scope.
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

// NamespaceOf returns the namespace to which a request for the object is sent.
func (s *Server) NamespaceOf(at Place, object *unstructured.Unstructured) string {
	if !at.Namespaced {
		return ""
	}
	return cmp.Or(object.GetNamespace(), s.Namespace, "default")
}
