package eirinix_test

import (
	"context"
	"fmt"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// patience bounds the time that a slow machine may take. A spec that passes does not wait for it.
const patience = 30 * time.Second

var _ = Describe("A pod on its way into a cluster", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	It("comes out changed, in URL mode on a free port", func(ctx SpecContext) {
		m := addEnvManager(urlOptions(namespace))
		runManager(ctx, m)

		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		Expect(*configuration(ctx, m).Webhooks[0].ClientConfig.URL).
			To(HavePrefix("https://" + m.Addr().String() + "/mutate/pods-"))
	}, SpecTimeout(2*patience))

	It("comes out changed, through a Service", func(ctx SpecContext) {
		o := urlOptions(namespace)
		o.Host, o.WebhookNamespace, o.ServiceName = "127.0.0.1", newNamespace(ctx), "hooks"
		o.DrainDelay = -1
		o.Port, o.ListenAddress = FreePort(), ""
		// The API server resolves an ExternalName Service itself, and then speaks HTTP/1.1 as production does.
		_, err := clients().CoreV1().Services(o.WebhookNamespace).Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: o.ServiceName},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		m := addEnvManager(o)
		runManager(ctx, m)

		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		service := configuration(ctx, m).Webhooks[0].ClientConfig.Service
		Expect(service).To(HaveField("Name", "hooks"))
		Expect(*service.Port).To(Equal(o.Port))
		Expect(clients().CoreV1().Secrets(o.WebhookNamespace).Get(ctx, namespace+"-setupcertificate", metav1.GetOptions{})).
			To(HaveField("Data", HaveKey("tls.key")))
	}, SpecTimeout(2*patience))

	DescribeTable("comes out changed, whatever the host is",
		func(ctx SpecContext, host, listen string) {
			if l, err := net.Listen("tcp", listen); err != nil {
				Skip(fmt.Sprintf("this machine cannot listen on %s: %v", listen, err))
			} else {
				Expect(l.Close()).To(Succeed())
			}
			o := urlOptions(namespace)
			o.Host, o.ListenAddress = host, listen
			m := addEnvManager(o)
			runManager(ctx, m)
			Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		},
		Entry("an IPv6 address", "::1", "[::1]:0", SpecTimeout(2*patience)),
		Entry("an IPv6 address in brackets", "[::1]", "[::1]:0", SpecTimeout(2*patience)),
		Entry("a name", "localhost", ":0", SpecTimeout(2*patience)),
	)

	It("is left alone in another namespace", func(ctx SpecContext) {
		m := addEnvManager(urlOptions(namespace))
		runManager(ctx, m)
		Expect(createPod(ctx, newNamespace(ctx), NewPod("pod", nil))).NotTo(beMutated())
	}, SpecTimeout(2*patience))

	It("is chosen by the label of Eirini's applications with FilterEiriniApps", func(ctx SpecContext) {
		o := urlOptions(namespace)
		o.FilterEiriniApps = new(true)
		m := addEnvManager(o)
		runManager(ctx, m)
		Expect(createPod(ctx, namespace, NewPod("task", nil))).NotTo(beMutated())
		Expect(createPod(ctx, namespace, NewPod("app", map[string]string{eirinix.LabelSourceType: "APP"}))).To(beMutated())
	}, SpecTimeout(2*patience))

	It("is seen in every namespace but the cluster's own without Namespace", func(ctx SpecContext) {
		o := urlOptions("")
		o.OperatorFingerprint = namespace
		m := addEnvManager(o)
		runManager(ctx, m)
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		system := NewPod(namespace, nil)
		created, err := createPod(ctx, metav1.NamespaceSystem, system)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) error {
			return clients().CoreV1().Pods(metav1.NamespaceSystem).Delete(ctx, namespace, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		})
		Expect(created).NotTo(beMutated())
	}, SpecTimeout(2*patience))

	It("passes every extension in the order of their addition, in one call", func(ctx SpecContext) {
		m := eirinix.NewManager(urlOptions(namespace))
		label := func(key string) handleFunc {
			return handleFunc{name: key, handle: func(_ context.Context, m eirinix.Manager, pod *corev1.Pod, req admission.Request) admission.Response {
				metav1.SetMetaDataLabel(&pod.ObjectMeta, key, fmt.Sprint(len(pod.Labels)))
				return m.PatchFromPod(req, pod)
			}}
		}
		for _, key := range []string{"first", "second", "third"} {
			Expect(m.AddExtension(label(key))).To(Succeed())
		}
		runManager(ctx, m)
		Expect(configuration(ctx, m).Webhooks).To(HaveLen(2), "theirs, and the canary's")
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).
			To(HaveField("Labels", Equal(map[string]string{"first": "0", "second": "1", "third": "2"})))
	}, SpecTimeout(2*patience))

	DescribeTable("has the outcome that an extension decides on",
		func(ctx SpecContext, policy admissionregistrationv1.FailurePolicyType, answer func() admission.Response, outcome OmegaMatcher) {
			o := urlOptions(namespace)
			o.FailurePolicy = &policy
			m := eirinix.NewManager(o)
			Expect(m.AddExtension(handleFunc{name: "judge", handle: func(context.Context, eirinix.Manager, *corev1.Pod, admission.Request) admission.Response {
				return answer()
			}})).To(Succeed())
			runManager(ctx, m)
			_, err := createPod(ctx, namespace, NewPod("pod", nil))
			Expect(err).To(outcome)
		},
		Entry("nothing: it is let in", admissionregistrationv1.Fail,
			func() admission.Response { return admission.Response{} }, BeNil(), SpecTimeout(2*patience)),
		Entry("denied: it is refused, also under Ignore", admissionregistrationv1.Ignore,
			func() admission.Response { return admission.Denied("too big") },
			And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("too big"))), SpecTimeout(2*patience)),
		Entry("errored under Fail: it is refused, and the extension is named", admissionregistrationv1.Fail,
			func() admission.Response { return admission.Errored(500, fmt.Errorf("no database")) },
			And(Satisfy(apierrors.IsInternalError), MatchError(ContainSubstring(`step \"judge\" failed: no database`))), SpecTimeout(2*patience)),
		Entry("errored under Ignore: it is let in", admissionregistrationv1.Ignore,
			func() admission.Response { return admission.Errored(500, fmt.Errorf("no database")) }, BeNil(), SpecTimeout(2*patience)),
		Entry("panic under Ignore: it is let in", admissionregistrationv1.Ignore,
			func() admission.Response { panic("oops") }, BeNil(), SpecTimeout(2*patience)),
		Entry("panic under Fail: it is refused", admissionregistrationv1.Fail,
			func() admission.Response { panic("oops") }, MatchError(ContainSubstring("panic: oops")), SpecTimeout(2*patience)),
	)
})

var _ = Describe("Registration", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	It("writes nothing the second time", func(ctx SpecContext) {
		o := urlOptions(namespace)
		o.Port = 8443
		register := func() (secret, configured string) {
			m := addEnvManager(o)
			Expect(m.RegisterExtensions()).To(Succeed())
			DeferCleanup(m.Unregister)
			s, err := clients().CoreV1().Secrets(namespace).Get(ctx, m.GetManagerOptions().SetupCertificateName, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			return s.ResourceVersion, configuration(ctx, m).ResourceVersion
		}
		secret, configured := register()
		secretAgain, configuredAgain := register()
		Expect(secretAgain).To(Equal(secret))
		Expect(configuredAgain).To(Equal(configured))
	}, SpecTimeout(patience))

	It("takes over EiriniX's configuration in one write, and keeps the labels of others", func(ctx SpecContext) {
		hooks := clients().AdmissionregistrationV1().MutatingWebhookConfigurations()
		none := admissionregistrationv1.SideEffectClassNone
		old, err := hooks.Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: namespace + "-mutating-hook", Labels: map[string]string{"team": "a"}},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name: "0.eirini-x.org", SideEffects: &none, AdmissionReviewVersions: []string{"v1beta1"},
				ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/0"), CABundle: []byte("\n")},
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"nowhere": "at-all"}},
			}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		o := urlOptions(namespace)
		o.Port = 8443
		m := addEnvManager(o)
		Expect(m.RegisterExtensions()).To(Succeed())
		DeferCleanup(m.Unregister)
		now := configuration(ctx, m)
		Expect(now.UID).To(Equal(old.UID))
		Expect(now.Generation).To(Equal(old.Generation + 1))
		Expect(now.Labels).To(HaveKeyWithValue("team", "a"))
		Expect(now.Webhooks).To(HaveExactElements(HaveField("Name", HavePrefix("pods-")), HaveField("Name", HavePrefix("eirinix-canary."))))
	}, SpecTimeout(patience))

	It("refuses to fight another deployment for a configuration", func(ctx SpecContext) {
		o := urlOptions(namespace)
		o.Port = 8443
		ours := addEnvManager(o)
		Expect(ours.RegisterExtensions()).To(Succeed())
		DeferCleanup(ours.Unregister)
		o.Namespace = newNamespace(ctx)
		theirs := addEnvManager(o)
		Expect(theirs.RegisterExtensions()).To(MatchError(And(
			ContainSubstring("belongs to the deployment whose certificate Secret is "+namespace+"/"),
			ContainSubstring("OperatorFingerprint"))))
	}, SpecTimeout(patience))

	It("goes when the Manager is told to unregister on its way out, and stays otherwise", func(ctx SpecContext) {
		for _, unregister := range []bool{true, false} {
			o := urlOptions(namespace)
			o.UnregisterOnStop = unregister
			m := addEnvManager(o)
			done := startManager(ctx, m)
			Eventually(m.Ready()).WithTimeout(patience).Should(BeClosed())
			m.Stop()
			Eventually(done).WithTimeout(patience).Should(Receive(BeNil()))
			_, err := clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, configurationName(m), metav1.GetOptions{})
			Expect(apierrors.IsNotFound(err)).To(Equal(unregister), "UnregisterOnStop %t: %v", unregister, err)
		}
	}, SpecTimeout(2*patience))
})
