package webhookconf

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// object is what the configurations of both kinds can do, as pointers.
type object[C any] interface {
	comparable
	metav1.Object
	DeepCopy() C
}

// Kind is one of the two kinds of webhook configuration: C is the configuration, W one webhook of it. Its
// methods are safe for concurrent use; there are two values of it, Mutating and Validating.
type Kind[C object[C], W any] struct {
	Name     string // as in apiVersion and kind
	Resource string // as in RBAC rules

	suffix     string
	validating bool
	make       func(metav1.ObjectMeta) C
	webhooks   func(C) *[]W
	look       func(*W) (name string, client *admissionregistrationv1.WebhookClientConfig)
	build      func(Options, []Entry) []W
}

// Mutating is the kind that changes objects.
var Mutating = Kind[*admissionregistrationv1.MutatingWebhookConfiguration, admissionregistrationv1.MutatingWebhook]{
	Name:     "MutatingWebhookConfiguration",
	Resource: "mutatingwebhookconfigurations",
	suffix:   "-mutating-hook",
	make: func(m metav1.ObjectMeta) *admissionregistrationv1.MutatingWebhookConfiguration {
		return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: m}
	},
	webhooks: func(c *admissionregistrationv1.MutatingWebhookConfiguration) *[]admissionregistrationv1.MutatingWebhook {
		return &c.Webhooks
	},
	look: func(w *admissionregistrationv1.MutatingWebhook) (string, *admissionregistrationv1.WebhookClientConfig) {
		return w.Name, &w.ClientConfig
	},
	build: Options.Mutating,
}

// Validating is the kind that only says yes or no.
var Validating = Kind[*admissionregistrationv1.ValidatingWebhookConfiguration, admissionregistrationv1.ValidatingWebhook]{
	Name:       "ValidatingWebhookConfiguration",
	Resource:   "validatingwebhookconfigurations",
	suffix:     "-validating-hook",
	validating: true,
	make: func(m metav1.ObjectMeta) *admissionregistrationv1.ValidatingWebhookConfiguration {
		return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: m}
	},
	webhooks: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) *[]admissionregistrationv1.ValidatingWebhook {
		return &c.Webhooks
	},
	look: func(w *admissionregistrationv1.ValidatingWebhook) (string, *admissionregistrationv1.WebhookClientConfig) {
		return w.Name, &w.ClientConfig
	},
	build: Options.Validating,
}

// ConfigurationName is the name of the configuration of this kind that belongs to a fingerprint.
func (k Kind[C, W]) ConfigurationName(fingerprint string) string { return fingerprint + k.suffix }

// Build makes the webhooks of this kind out of the entries; entries of the other kind are passed over.
func (k Kind[C, W]) Build(o Options, entries []Entry) []W { return k.build(o, entries) }

// missing tells which of the entries of this kind the configuration does not hold, by name. A nil
// configuration holds none.
func (k Kind[C, W]) missing(c C, fingerprint string, entries []Entry) (missing []string) {
	var none C
	held := map[string]bool{}
	if c != none {
		webhooks := *k.webhooks(c)
		for i := range webhooks {
			name, _ := k.look(&webhooks[i])
			held[name] = true
		}
	}
	for _, e := range entries {
		if e.Validating == k.validating && !held[WebhookName(e.Name, fingerprint)] {
			missing = append(missing, e.Name)
		}
	}
	return missing
}
