package eirinix_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

var _ = Describe("The configuration of a program", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	run := func(ctx SpecContext, o eirinix.ManagerOptions, steps ...any) *eirinix.ExtensionManager {
		GinkgoHelper()
		m := eirinix.NewManager(o)
		for _, s := range append([]any{addEnv{}}, steps...) {
			Expect(m.AddExtension(s)).To(Succeed())
		}
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

	It("goes away with the namespace that the program lived in", Label("S27"), func(ctx SpecContext) {
		plane, err := eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{Progress: GinkgoWriter, ControllerManager: true})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(plane.Stop)
		c, err := kubernetes.NewForConfig(plane.Config())
		Expect(err).NotTo(HaveOccurred())
		ns, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "own"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		o := urlOptions("apps")
		o.RestConfig, o.WebhookNamespace, o.Port = plane.Config(), "own", 8443
		m := addEnvManager(o)
		Expect(m.AddExtension(eirinix.Validation[*corev1.Pod]{ID: "checks", Create: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil }})).To(Succeed())
		Expect(m.RegisterExtensions()).To(Succeed())
		mutating, err := c.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "apps-mutating-hook", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(mutating.OwnerReferences).To(HaveExactElements(metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: "own", UID: ns.UID}))

		Expect(c.CoreV1().Namespaces().Delete(ctx, "own", metav1.DeleteOptions{})).To(Succeed())
		Eventually(func(g Gomega) {
			_, err := c.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "apps-mutating-hook", metav1.GetOptions{})
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
			_, err = c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, "apps-validating-hook", metav1.GetOptions{})
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		}).WithTimeout(2 * patience).Should(Succeed())
	}, SpecTimeout(5*patience))

	It("is owned though the API server does not answer for a moment", func(ctx SpecContext) {
		o := urlOptions(namespace)
		var asked atomic.Int32
		o.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, "/api/v1/namespaces/"+namespace) && asked.Add(1) == 1 {
					return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
				}
				return next.RoundTrip(r)
			})
		})
		m := run(ctx, o)
		Expect(asked.Load()).To(BeNumerically(">", 1))
		Expect(configuration(ctx, m).OwnerReferences).To(ConsistOf(And(HaveField("Kind", "Namespace"), HaveField("Name", namespace))))
	}, SpecTimeout(2*patience))

	It("stays away once it was removed, though the program runs on", func(ctx SpecContext) {
		m := run(ctx, urlOptions(namespace))
		Expect(m.Unregister(ctx)).To(Succeed())
		Consistently(exists(ctx), "3s").Should(BeFalse())
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).NotTo(beMutated())
	}, SpecTimeout(2*patience))

	It("is looked after again when it could not be removed", func(ctx SpecContext) {
		o := urlOptions(namespace)
		var refuse atomic.Bool
		o.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				if refuse.Load() && r.Method == http.MethodDelete {
					return nil, errors.New("no way")
				}
				return next.RoundTrip(r)
			})
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
			m := addEnvManager(o)
			return m
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

	It("moves from a URL to a Service in the order that the documentation gives", func(ctx SpecContext) {
		_, err := clients().CoreV1().Services(namespace).Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "hooks"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		port := FreePort()
		service := urlOptions(namespace)
		service.Host, service.ListenAddress, service.ServiceName, service.WebhookNamespace, service.Port = "", "127.0.0.1:"+strconv.Itoa(int(port)), "hooks", namespace, port

		old := run(ctx, urlOptions(namespace))
		bundle := configuration(ctx, old).Webhooks[0].ClientConfig.CABundle
		var refused error
		Eventually(startManager(ctx, addEnvManager(service))).WithTimeout(patience).Should(Receive(&refused))
		Expect(refused).To(MatchError(ContainSubstring("stop that program first, or, if both are to run, give this one an OperatorFingerprint of its own")))
		old.Stop()
		Eventually(func() error { // the old program answers until it has drained
			_, err := createPod(ctx, namespace, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "refused-"}, Spec: NewPod("", nil).Spec})
			return err
		}).WithTimeout(patience).Should(MatchError(ContainSubstring("failed calling webhook")), "and so are the new replicas, in these namespaces")
		Expect(clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, namespace+"-mutating-hook", metav1.DeleteOptions{})).To(Succeed())
		Eventually(func() error {
			_, err := createPod(ctx, namespace, NewPod("replica", nil))
			return err
		}).WithTimeout(patience).Should(Succeed())

		m := run(ctx, service)
		Expect(configuration(ctx, m).Webhooks[0].ClientConfig).To(And(HaveField("Service.Name", "hooks"), HaveField("CABundle", bundle)))
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		Expect(m.Diagnose(ctx).Err()).NotTo(HaveOccurred())
	}, SpecTimeout(3*patience))

	It("is healed when it was edited or deleted, within three seconds", func(ctx SpecContext) {
		m := run(ctx, urlOptions(namespace))
		hooks := clients().AdmissionregistrationV1().MutatingWebhookConfigurations()
		before := configuration(ctx, m)
		for name, harm := range map[string]func(*admissionregistrationv1.MutatingWebhookConfiguration){
			"another policy": func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
				c.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
			},
			"another selector": func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
				c.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{}
			},
			"no entry": func(c *admissionregistrationv1.MutatingWebhookConfiguration) { c.Webhooks = nil },
		} {
			c := configuration(ctx, m)
			harm(c)
			_, err := hooks.Update(ctx, c, metav1.UpdateOptions{})
			Expect(err).NotTo(HaveOccurred())
			Eventually(func() any { return configuration(ctx, m).Webhooks }).WithTimeout(3*time.Second).Should(Equal(before.Webhooks), name)
		}
		Expect(hooks.Delete(ctx, before.Name, metav1.DeleteOptions{})).To(Succeed())
		Eventually(exists(ctx)).WithTimeout(3 * time.Second).Should(BeTrue())
	}, SpecTimeout(2*patience))

	It("is not fought over for ever with a tool that applies its own copy", func(ctx SpecContext) {
		m := run(ctx, urlOptions(namespace))
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
			g.Expect(certificateMetrics(namespace)).To(HaveKeyWithValue(contested, BeNumerically(">", 7)))
		}).WithPolling(50 * time.Millisecond).WithTimeout(patience).Should(Succeed())
		// The next repair is six seconds away, and the one after it further.
		before := configuration(ctx, m)
		Expect(before.Webhooks[0].FailurePolicy).To(HaveValue(Equal(admissionregistrationv1.Ignore)))
		Consistently(func() int64 { return configuration(ctx, m).Generation }, "3s").Should(Equal(before.Generation))
		Eventually(func(g Gomega) {
			events, err := clients().CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(events.Items).To(ContainElement(And(HaveField("Reason", "RegistrationContested"), HaveField("Message", ContainSubstring(`edited or deleted by "gitops"`)))))
		}).WithTimeout(patience).Should(Succeed())
	}, SpecTimeout(3*patience))
})
