package webhookconf

import (
	"bytes"
	"context"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// ClientOf is what is needed of client-go's interface for the configurations C.
type ClientOf[C any] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (C, error)
	Create(ctx context.Context, c C, opts metav1.CreateOptions) (C, error)
	Update(ctx context.Context, c C, opts metav1.UpdateOptions) (C, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

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

// Missing tells which of the entries of this kind the configuration does not hold, by name. A nil
// configuration holds none.
func (k Kind[C, W]) Missing(c C, fingerprint string, entries []Entry) []string {
	var missing []string
	for _, e := range entries {
		if e.Validating == k.validating && k.find(c, WebhookName(e.Name, fingerprint)) == nil {
			missing = append(missing, e.Name)
		}
	}
	return missing
}

// Bundles gives the different caBundles that the entries of this kind have in the configuration.
func (k Kind[C, W]) Bundles(c C, fingerprint string, entries []Entry) [][]byte {
	var bundles [][]byte
	for _, e := range entries {
		if e.Validating != k.validating {
			continue
		}
		client := k.find(c, WebhookName(e.Name, fingerprint))
		if client != nil && !slices.ContainsFunc(bundles, func(b []byte) bool { return bytes.Equal(b, client.CABundle) }) {
			bundles = append(bundles, client.CABundle)
		}
	}
	return bundles
}

func (k Kind[C, W]) find(c C, name string) *admissionregistrationv1.WebhookClientConfig {
	var none C
	if c == none {
		return nil
	}
	webhooks := *k.webhooks(c)
	for i := range webhooks {
		if found, client := k.look(&webhooks[i]); found == name {
			return client
		}
	}
	return nil
}
