package apiserver

// This file prepares webhooks to be matched and called.

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/conditions"
	"code.cloudfoundry.org/eirinix/internal/inprocess"
)

// webhook is one webhook of a configuration, prepared for matching and calling.
type webhook struct {
	admissionregistrationv1.MutatingWebhook
	configuration string
	index         int // within the configuration

	namespaces, objects labels.Selector
	conditions          matchconditions.Matcher // nil if there are none
	client              *rest.RESTClient
}

func (w *webhook) id() string { return fmt.Sprintf("%s/%d", w.configuration, w.index) }

func newWebhook(configuration string, index int, w admissionregistrationv1.MutatingWebhook, handler http.Handler) (*webhook, error) {
	ready := &webhook{MutatingWebhook: w, configuration: configuration, index: index}
	var err error
	if ready.namespaces, err = metav1.LabelSelectorAsSelector(w.NamespaceSelector); err != nil {
		return nil, fmt.Errorf("webhook %s: namespaceSelector: %w", w.Name, err)
	}
	if ready.objects, err = metav1.LabelSelectorAsSelector(w.ObjectSelector); err != nil {
		return nil, fmt.Errorf("webhook %s: objectSelector: %w", w.Name, err)
	}
	if err := conditions.Check(w.Name, w.MatchConditions); err != nil {
		return nil, err
	}
	if len(w.MatchConditions) > 0 {
		ready.conditions = conditions.Matcher(w)
	}
	if ready.client, err = clientOf(w.ClientConfig, handler); err != nil {
		return nil, fmt.Errorf("webhook %s: %w", w.Name, err)
	}
	return ready, nil
}

// clientOf returns the client that an API server would have for a webhook, but for a handler in this process.
func clientOf(c admissionregistrationv1.WebhookClientConfig, handler http.Handler) (*rest.RESTClient, error) {
	target := &url.URL{Scheme: "https"}
	switch {
	case c.Service != nil:
		target.Host, target.Path = fmt.Sprintf("%s.%s.svc:%d", c.Service.Name, c.Service.Namespace, *c.Service.Port), *c.Service.Path
	default:
		var err error
		if target, err = url.Parse(*c.URL); err != nil {
			return nil, err
		}
	}
	return rest.UnversionedRESTClientFor(&rest.Config{
		Host: target.Scheme + "://" + target.Host, APIPath: target.Path, QPS: -1, UserAgent: "kube-apiserver-admission",
		Transport:     inprocess.Transport{Handler: handler},
		ContentConfig: rest.ContentConfig{NegotiatedSerializer: reviewCodec(), ContentType: runtime.ContentTypeJSON},
	})
}

// reviewCodec reads and writes AdmissionReviews of both versions.
func reviewCodec() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	_, _ = admissionv1.AddToScheme(scheme), admissionv1beta1.AddToScheme(scheme) // cannot fail in an empty scheme
	codec := serializer.NewCodecFactory(scheme).LegacyCodec(admissionv1.SchemeGroupVersion, admissionv1beta1.SchemeGroupVersion)
	return serializer.NegotiatedSerializerWrapper(runtime.SerializerInfo{Serializer: codec})
}

// authorizer returns the authorizer for matchConditions.
func (s *Server) authorizer() authorizer.UnconditionalAuthorizer {
	if s.Authorizer != nil {
		return s.Authorizer
	}
	return authorizer.AuthorizerFunc(mastersOnly)
}

// mastersOnly grants the rights of a cluster without RBAC rules.
func mastersOnly(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if u := a.GetUser(); u != nil && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "no rights are granted without a cluster", nil
}
