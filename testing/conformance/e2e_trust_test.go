package conformance_test

import (
	"context"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
)

var _ = Describe("The API server", func() {
	eachMode(func(mode mode) {
		var namespace string
		BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

		It("refuses everything under Fail when it cannot verify the webhook", Label("S5"), func(ctx SpecContext) {
			m := serve(ctx, mode, namespace, nil, denyConfigMaps(eirinix.Settings{}))
			elsewhere := newNamespace(ctx)
			f := foreignTo(ctx, m, validating, namespace, elsewhere)
			f.Webhook.ClientConfig.CABundle = nil
			f.mustCreate(ctx)
			create := func(namespace, name string) error {
				_, err := createConfigMap(ctx, namespace, newConfigMap(name, nil))
				return err
			}
			Eventually(create).WithArguments(elsewhere, "unverified").
				Should(And(Satisfy(apierrors.IsInternalError), MatchError(ContainSubstring("x509"))))
			Expect(create(namespace, "verified")).To(Succeed(), "the same server, with its caBundle")
		}, SpecTimeout(2*patience))

		It("never calls webhooks for webhook configurations", Label("S8"), func(ctx SpecContext) {
			var calls atomic.Int32
			labelled := map[string]string{"dummy-of": namespace}
			settings := eirinix.Settings{
				// Config maps show that it calls these very webhooks.
				Rules: append(rules("admissionregistration.k8s.io", "*", "*", created, updated, deleted),
					rules("", "v1", "configmaps", created)...),
				Objects: &metav1.LabelSelector{MatchLabels: labelled},
			}
			changing := settings // nothing can be changed on the way out
			changing.Rules = append(rules("admissionregistration.k8s.io", "*", "*", created, updated),
				rules("", "v1", "configmaps", created)...)
			count := func() { calls.Add(1) }
			serve(ctx, mode, namespace, nil,
				eirinix.Mutation[*unstructured.Unstructured]{ID: "mutate", Settings: changing, Apply: func(_ context.Context, _ *eirinix.Call, u *unstructured.Unstructured) error {
					count()
					u.SetAnnotations(map[string]string{"mutated": "yes"})
					return nil
				}},
				eirinix.Validation[*unstructured.Unstructured]{
					ID: "refuse", Settings: settings,
					Create: func(context.Context, *eirinix.Call, *unstructured.Unstructured) error {
						count()
						return eirinix.Deny("no")
					},
					Update: func(context.Context, *eirinix.Call, *unstructured.Unstructured, *unstructured.Unstructured) error {
						count()
						return eirinix.Deny("no")
					},
					Delete: func(context.Context, *eirinix.Call, *unstructured.Unstructured) error {
						count()
						return eirinix.Deny("no")
					},
				})
			c := newConfigMap("control", nil)
			c.Labels = labelled
			_, err := createConfigMap(ctx, namespace, c)
			Expect(err).To(Satisfy(apierrors.IsForbidden))
			Expect(calls.Swap(0)).To(BeEquivalentTo(2))

			hooks := clients().AdmissionregistrationV1()
			dummy := metav1.ObjectMeta{Name: namespace + "-dummy", Labels: labelled}
			v, err := hooks.ValidatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: dummy}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(v.Annotations).To(BeEmpty())
			v.Annotations = map[string]string{"changed": "yes"}
			v, err = hooks.ValidatingWebhookConfigurations().Update(ctx, v, metav1.UpdateOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(v.Annotations).NotTo(HaveKey("mutated"))
			Expect(hooks.ValidatingWebhookConfigurations().Delete(ctx, dummy.Name, metav1.DeleteOptions{})).To(Succeed())

			m, err := hooks.MutatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: dummy}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(m.Annotations).To(BeEmpty())
			m.Annotations = map[string]string{"changed": "yes"}
			m, err = hooks.MutatingWebhookConfigurations().Update(ctx, m, metav1.UpdateOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(m.Annotations).NotTo(HaveKey("mutated"))
			Expect(hooks.MutatingWebhookConfigurations().Delete(ctx, dummy.Name, metav1.DeleteOptions{})).To(Succeed())
			Expect(calls.Load()).To(BeZero())
		}, SpecTimeout(2*patience))
	})
})
