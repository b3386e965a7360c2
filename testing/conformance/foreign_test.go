package conformance_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix"
)

// A foreign configuration is one that a spec writes itself and that calls one of our servers: a Manager keeps its
// own configuration as it should be, and this one may be changed at will.
type foreign struct {
	Metadata metav1.ObjectMeta
	Webhook  admissionregistrationv1.MutatingWebhook
	kind     kind
}

// kind is one of the two kinds of webhook. It is also the text of a spec's container.
type kind string

const (
	mutating   kind = "mutating"
	validating kind = "validating"
)

var kinds = []kind{mutating, validating}

// foreignTo returns a configuration, yet to be written, with the webhook of that step of m, for another namespace.
func foreignTo(ctx context.Context, m *eirinix.ExtensionManager, kind kind, name, namespace string) foreign {
	GinkgoHelper()
	f := foreign{Metadata: metav1.ObjectMeta{Name: name, Labels: map[string]string{"foreign": namespace}}, kind: kind}
	if kind == mutating {
		f.Webhook = mutatingConfiguration(ctx, m).Webhooks[0]
	} else {
		v := validatingConfiguration(ctx, m).Webhooks[0]
		f.Webhook = admissionregistrationv1.MutatingWebhook{
			ClientConfig: v.ClientConfig, Rules: v.Rules, FailurePolicy: v.FailurePolicy, SideEffects: v.SideEffects,
			TimeoutSeconds: v.TimeoutSeconds, AdmissionReviewVersions: v.AdmissionReviewVersions,
		}
	}
	f.Webhook.Name = name + ".foreign.example.org"
	f.Webhook.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	return f
}

// create writes the configuration; it goes when the spec ends.
func (f foreign) create(ctx context.Context, opts metav1.CreateOptions) error {
	hooks := clients().AdmissionregistrationV1()
	var err error
	if f.kind == mutating {
		_, err = hooks.MutatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: f.Metadata, Webhooks: []admissionregistrationv1.MutatingWebhook{f.Webhook},
		}, opts)
	} else {
		w := f.Webhook
		_, err = hooks.ValidatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: f.Metadata, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy,
				NamespaceSelector: w.NamespaceSelector, SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds,
				AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
			}},
		}, opts)
	}
	if err == nil && len(opts.DryRun) == 0 {
		DeferCleanup(f.delete)
	}
	return err
}

func (f foreign) mustCreate(ctx context.Context) {
	GinkgoHelper()
	Expect(f.create(ctx, metav1.CreateOptions{})).To(Succeed())
}

func (f foreign) delete(ctx context.Context) error {
	hooks := clients().AdmissionregistrationV1()
	var err error
	if f.kind == mutating {
		err = hooks.MutatingWebhookConfigurations().Delete(ctx, f.Metadata.Name, metav1.DeleteOptions{})
	} else {
		err = hooks.ValidatingWebhookConfigurations().Delete(ctx, f.Metadata.Name, metav1.DeleteOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// update changes the webhook of the live configuration with a PUT.
func (f foreign) update(ctx context.Context, change func(rules []admissionregistrationv1.RuleWithOperations)) {
	GinkgoHelper()
	hooks := clients().AdmissionregistrationV1()
	if f.kind == mutating {
		c, err := hooks.MutatingWebhookConfigurations().Get(ctx, f.Metadata.Name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		change(c.Webhooks[0].Rules)
		_, err = hooks.MutatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		return
	}
	c, err := hooks.ValidatingWebhookConfigurations().Get(ctx, f.Metadata.Name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	change(c.Webhooks[0].Rules)
	_, err = hooks.ValidatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// patch changes the live configuration with a JSON patch.
func (f foreign) patch(ctx context.Context, patch string) {
	GinkgoHelper()
	hooks := clients().AdmissionregistrationV1()
	var err error
	if f.kind == mutating {
		_, err = hooks.MutatingWebhookConfigurations().Patch(ctx, f.Metadata.Name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	} else {
		_, err = hooks.ValidatingWebhookConfigurations().Patch(ctx, f.Metadata.Name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	}
	Expect(err).NotTo(HaveOccurred())
}

// timeout returns the timeout of a validating webhook as the API server stores it.
func (f foreign) timeout(ctx context.Context) int32 {
	GinkgoHelper()
	c, err := clients().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, f.Metadata.Name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return *c.Webhooks[0].TimeoutSeconds
}
