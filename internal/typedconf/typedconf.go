// Package typedconf returns webhooks and their configurations in the Go types of the API, for code that plays the API
// server's part.
package typedconf

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Of returns the configuration of a kind with the webhooks of its entries, in the kind's Go type, C. It is nil without
// entries of the kind.
func Of[C any](o webhookconf.Options, k webhookconf.Kind, entries []webhookconf.Entry) *C {
	c := admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: k.Name},
		ObjectMeta: metav1.ObjectMeta{Name: k.ConfigurationName(o.Fingerprint)},
	}
	for _, e := range entries {
		if k.Holds(e) {
			c.Webhooks = append(c.Webhooks, o.Webhook(e))
		}
	}
	if len(c.Webhooks) == 0 {
		return nil
	}
	return new(as[C](c))
}

// AsMutating returns a validating webhook as a mutating one, which has all of its fields and a reinvocationPolicy.
func AsMutating(v admissionregistrationv1.ValidatingWebhook) admissionregistrationv1.MutatingWebhook {
	return as[admissionregistrationv1.MutatingWebhook](v)
}

// as returns a webhook or a configuration of one kind as that of the other. Their JSON has the same members.
func as[To, From any](from From) (to To) {
	tree, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(&from) // cannot fail for a type of the API
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(tree, &to)
	return to
}
