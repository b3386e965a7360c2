// Package apiserver is the admission of an API server in memory. It decides which webhooks to call, with the API
// server's own code for rules and CEL conditions. It sends AdmissionReviews to their handlers, checks the responses
// as an API server does, and applies patches with the API server's library. Tests and previews use it to show the
// behavior of a cluster.
//
// It does nothing that comes before or after admission. Objects are neither defaulted nor validated nor stored,
// unknown fields are not pruned, and managedFields are not kept. Between versions of a kind (matchPolicy Equivalent)
// it converts custom resources with the program that has their conversion, or else as strategy None does. It does not
// convert built-in kinds.
package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/conditions"
	"code.cloudfoundry.org/eirinix/internal/inprocess"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/typedconf"
)

// Server is the API server. Set its fields and Add programs before the first Send. From then on it is safe for
// concurrent use.
type Server struct {
	Scheme     *runtime.Scheme                    // of the Go types of objects
	Namespace  string                             // for objects that name none; default "default"
	Namespaces map[string]map[string]string       // labels of namespaces, by name; every namespace exists
	Authorizer authorizer.UnconditionalAuthorizer // for matchConditions; default: system:masters may do everything
	Version    string                             // "v1beta1" for a server that prefers that version of AdmissionReview

	mappers     []meta.RESTMapper
	conversions []converter
	webhooks    []*webhook // mutating and validating ones, each in the order in which they are called
}

// Program is a program's handler with its webhook configurations, as in offline.Program.
type Program struct {
	Handler    http.Handler
	Mutating   *admissionregistrationv1.MutatingWebhookConfiguration   // nil for none
	Validating *admissionregistrationv1.ValidatingWebhookConfiguration // nil for none
	Mapper     meta.RESTMapper

	Conversions []Conversion
}

// Add adds the webhooks of a program. Configurations are called in the order of their names. The error joins all
// faults for which an API server would refuse a webhook. After an error the Server cannot be used.
func (s *Server) Add(p Program) error {
	s.mappers = append(s.mappers, p.Mapper)
	for _, c := range p.Conversions {
		s.conversions = append(s.conversions, converter{c, p.Handler})
	}
	var added []*webhook
	if c := p.Mutating; c != nil {
		for i, w := range c.Webhooks {
			added = append(added, &webhook{MutatingWebhook: w, configuration: c.Name, index: i})
		}
	}
	if c := p.Validating; c != nil {
		for i, v := range c.Webhooks {
			added = append(added, &webhook{MutatingWebhook: typedconf.AsMutating(v), validating: true, configuration: c.Name, index: i})
		}
	}
	s.webhooks = append(s.webhooks, added...)
	slices.SortStableFunc(s.webhooks, func(a, b *webhook) int { return cmp.Compare(a.configuration, b.configuration) })
	return errors.Join(list.Of(added, func(w *webhook) error { return w.prepare(p.Handler) })...)
}

// SideEffects returns the sideEffects of the webhook of that name; nil if there is none.
func (s *Server) SideEffects(name string) *admissionregistrationv1.SideEffectClass {
	for _, w := range s.webhooks {
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
	return fmt.Sprintf("no mapper knows the plural of %s: %v", e.Kind, e.err)
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

// webhook is one webhook of a configuration, prepared for matching and calling.
type webhook struct {
	admissionregistrationv1.MutatingWebhook
	validating    bool
	configuration string
	index         int // within the configuration

	namespaces, objects labels.Selector
	conditions          matchconditions.Matcher // nil if there are none
	target              *url.URL                // that an API server calls
	client              *rest.RESTClient
}

func (w *webhook) id() string { return fmt.Sprintf("%s/%d", w.configuration, w.index) }

func (w *webhook) prepare(handler http.Handler) (err error) {
	if w.namespaces, err = metav1.LabelSelectorAsSelector(w.NamespaceSelector); err != nil {
		return fmt.Errorf("webhook %s: namespaceSelector: %w", w.Name, err)
	}
	if w.objects, err = metav1.LabelSelectorAsSelector(w.ObjectSelector); err != nil {
		return fmt.Errorf("webhook %s: objectSelector: %w", w.Name, err)
	}
	if err := conditions.Check(w.Name, w.MatchConditions); err != nil {
		return err
	}
	if len(w.MatchConditions) > 0 {
		w.conditions = conditions.Matcher(w.MutatingWebhook)
	}
	if err := w.connect(handler); err != nil {
		return fmt.Errorf("webhook %s: %w", w.Name, err)
	}
	return nil
}

// connect gives the webhook the client that an API server would have, but for a handler in this process.
func (w *webhook) connect(handler http.Handler) (err error) {
	if s := w.ClientConfig.Service; s != nil {
		w.target = &url.URL{Scheme: "https", Host: fmt.Sprintf("%s.%s.svc:%d", s.Name, s.Namespace, *s.Port), Path: *s.Path}
	} else if w.target, err = url.Parse(*w.ClientConfig.URL); err != nil {
		return err
	}
	w.client, err = rest.UnversionedRESTClientFor(&rest.Config{
		Host: w.target.Scheme + "://" + w.target.Host, APIPath: w.target.Path, QPS: -1, UserAgent: "kube-apiserver-admission",
		Transport:     inprocess.Transport{Handler: handler},
		ContentConfig: rest.ContentConfig{NegotiatedSerializer: reviewCodec(), ContentType: runtime.ContentTypeJSON},
	})
	return err
}

// reviewCodec reads and writes AdmissionReviews of both versions.
func reviewCodec() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	_, _ = admissionv1.AddToScheme(scheme), admissionv1beta1.AddToScheme(scheme) // cannot fail in an empty scheme
	codec := serializer.NewCodecFactory(scheme).LegacyCodec(admissionv1.SchemeGroupVersion, admissionv1beta1.SchemeGroupVersion)
	return serializer.NegotiatedSerializerWrapper(runtime.SerializerInfo{Serializer: codec})
}

// mastersOnly grants the rights of a cluster without RBAC rules.
func mastersOnly(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if u := a.GetUser(); u != nil && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "no rights are granted without a cluster", nil
}
