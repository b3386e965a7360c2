package eirinix_test

// This file specifies that a program looks after its configuration, and leaves alone that of another one.

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("The configuration of a program", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	run := func(ctx SpecContext, o eirinix.ManagerOptions) *eirinix.ExtensionManager {
		GinkgoHelper()
		m := addEnvManager(o)
		runManager(ctx, m)
		return m
	}
	exists := func(ctx context.Context) func() (bool, error) {
		return func() (bool, error) {
			_, err := clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, namespace+"-mutating-hook", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil, err
		}
	}

	It("is owned by the namespace that the program lives in, though the API server does not answer for a moment", func(ctx SpecContext) {
		o := urlOptions(namespace)
		var asked atomic.Int32
		o.RestConfig = between(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/api/v1/namespaces/"+namespace) && asked.Add(1) == 1 {
				return answered(r, apierrors.NewServiceUnavailable("for a moment"))
			}
			return next.RoundTrip(r)
		})
		m := run(ctx, o)
		Expect(asked.Load()).To(BeNumerically(">", 1))
		Expect(configuration(ctx, m).OwnerReferences).To(ConsistOf(And(HaveField("Kind", "Namespace"), HaveField("Name", namespace))))
	}, SpecTimeout(2*patience))

	It("is looked after again when it could not be removed", func(ctx SpecContext) {
		o := urlOptions(namespace)
		var refuse atomic.Bool
		o.RestConfig = between(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if refuse.Load() && r.Method == http.MethodDelete {
				return nil, errors.New("no way")
			}
			return next.RoundTrip(r)
		})
		m := run(ctx, o)
		refuse.Store(true)
		Expect(m.Unregister(ctx)).NotTo(Succeed())
		c := configuration(ctx, m)
		healthy := c.DeepCopy().Webhooks
		c.Webhooks[0].ClientConfig.CABundle = nil
		_, err := clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() any { return configuration(ctx, m).Webhooks }).WithTimeout(patience).Should(Equal(healthy))
	}, SpecTimeout(2*patience))

	It("stays the cluster's while that runs, and is a laptop's seconds after that has stopped", func(ctx SpecContext) {
		cluster := run(ctx, urlOptions(namespace))
		before := configuration(ctx, cluster)
		Expect(before.OwnerReferences).To(ConsistOf(And(HaveField("Kind", "Namespace"), HaveField("Name", namespace))))
		laptop := func() *eirinix.ExtensionManager {
			o := urlOptions(namespace)
			o.UnregisterOnStop = true
			return addEnvManager(o)
		}
		m := laptop()
		var refused error
		Eventually(startManager(ctx, m)).WithTimeout(patience).Should(Receive(&refused))
		Expect(refused).To(MatchError(And(ContainSubstring("https://"+cluster.Addr().String()), ContainSubstring("https://"+m.Addr().String()), ContainSubstring("OperatorFingerprint"))))
		Expect(m.Ready()).NotTo(BeClosed())
		Expect(configuration(ctx, cluster)).To(Equal(before), "nothing of it is touched")
		Expect(createPod(ctx, namespace, NewPod("first", nil))).To(beMutated())

		cluster.Stop()
		m = laptop()
		runManager(ctx, m)
		Expect(*configuration(ctx, m).Webhooks[0].ClientConfig.URL).To(HavePrefix("https://" + m.Addr().String() + "/"))
		Expect(createPod(ctx, namespace, NewPod("second", nil))).To(beMutated())
		m.Stop()
		Eventually(exists(ctx)).WithTimeout(patience).Should(BeFalse())
	}, SpecTimeout(3*patience))

	It("is healed when it was edited or deleted", func(ctx SpecContext) {
		m := run(ctx, urlOptions(namespace))
		hooks := clients().AdmissionregistrationV1().MutatingWebhookConfigurations()
		before := configuration(ctx, m)
		edited := before.DeepCopy()
		edited.Webhooks[0].FailurePolicy, edited.Webhooks[0].NamespaceSelector = new(admissionregistrationv1.Ignore), &metav1.LabelSelector{}
		_, err := hooks.Update(ctx, edited, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() any { return configuration(ctx, m).Webhooks }).WithTimeout(patience).Should(Equal(before.Webhooks))
		Expect(hooks.Delete(ctx, before.Name, metav1.DeleteOptions{})).To(Succeed())
		Eventually(exists(ctx)).WithTimeout(patience).Should(BeTrue())
	}, SpecTimeout(2*patience))

	It("has a metric and an Event that name the tool which applies its own copy again and again", func(ctx SpecContext) {
		run(ctx, urlOptions(namespace))
		hooks := clients().AdmissionregistrationV1().MutatingWebhookConfigurations()
		undo := func() error {
			c, err := hooks.Get(ctx, namespace+"-mutating-hook", metav1.GetOptions{})
			if err != nil || *c.Webhooks[0].FailurePolicy == admissionregistrationv1.Ignore {
				return err
			}
			c.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
			_, err = hooks.Update(ctx, c, metav1.UpdateOptions{FieldManager: "gitops"})
			if apierrors.IsConflict(err) {
				return nil
			}
			return err
		}
		contested := "eirinix_registration_contested " + namespace + "-mutating-hook MutatingWebhookConfiguration"
		Eventually(func(g Gomega) {
			g.Expect(undo()).To(Succeed())
			g.Expect(certificateMetrics(namespace)).To(HaveKeyWithValue(contested, BeNumerically(">", 5)))
		}).WithPolling(50 * time.Millisecond).WithTimeout(patience).Should(Succeed())
		Eventually(func(g Gomega) {
			events, err := clients().CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(events.Items).To(ContainElement(And(HaveField("Reason", "RegistrationContested"), HaveField("Message", ContainSubstring(`edited or deleted by "gitops"`)))))
		}).WithTimeout(patience).Should(Succeed())
	}, SpecTimeout(3*patience))
})
