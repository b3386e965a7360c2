package webhookconf_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

var _ = Describe("Processes that share an API server", Label("api-server"), Ordered, func() {
	var (
		clients kubernetes.Interface
		o       webhookconf.Options
		time0   *clock
	)

	BeforeAll(func() {
		plane := eirinixtest.StartControlPlane(GinkgoT(), func(o *eirinixtest.ControlPlaneOptions) { o.ControllerManager = true })
		var err error
		clients, err = kubernetes.NewForConfig(plane.Config())
		Expect(err).NotTo(HaveOccurred())
	})
	BeforeEach(func() {
		o = serviceOptions()
		o.Fingerprint = fmt.Sprint("shared-", time.Now().UnixNano())
		time0 = &clock{now: time.Now()}
	})

	start := func(steps ...webhookconf.Step) (mutating, validating *process) {
		mutating, validating = processes(time0.writer(o, steps...), clients)
		DeferCleanup(mutating.Delete)
		DeferCleanup(validating.Delete)
		return mutating, validating
	}
	stored := func(ctx context.Context) *admissionregistrationv1.MutatingWebhookConfiguration {
		GinkgoHelper()
		found, err := clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, o.Fingerprint+"-mutating-hook", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return found
	}
	names := func(ctx context.Context) (all []string) {
		for _, w := range stored(ctx).Webhooks {
			all = append(all, w.Name)
		}
		return all
	}
	patch := func(ctx context.Context, manager, patch string) {
		GinkgoHelper()
		_, err := clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(ctx, o.Fingerprint+"-mutating-hook",
			types.JSONPatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager})
		Expect(err).NotTo(HaveOccurred())
	}
	many := []webhookconf.Step{
		step("a", objects(labels1("a", "1")), conditions(condition("yes", "true"))), step("b", isolated, ifNeeded), step("c", isolated, namespaces(labels1("a", "1"))),
		step("d", isolated, ignore, rules(rule("*", "*", "*/*", "*"))), step("v", validating), step("w", validating, isolated, ignore),
	}

	It("find what they wrote as they wrote it, and write nothing more", func(ctx SpecContext) {
		outcome := webhookconf.Created
		for range 3 {
			m, v := start(many...)
			for _, p := range []*process{m, v} {
				Expect(p.register(ctx).Outcome).To(Equal(outcome), p.String())
				Expect(p.survey(ctx)).To(And(HaveField("Action", webhookconf.Keep), HaveField("Missing", BeEmpty()), HaveField("Bundles", Equal([][]byte{[]byte("bundle")}))))
			}
			Expect(stored(ctx).Generation).To(BeEquivalentTo(1))
			time0.pass(time.Hour)
			outcome = webhookconf.Unchanged // for a replica that starts later
		}
	})

	It("take over EiriniX's own configuration in one write, with the older entries in it", func(ctx SpecContext) {
		upstream, err := clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: o.Fingerprint + "-mutating-hook"},
			Webhooks: []admissionregistrationv1.MutatingWebhook{
				upstreamEntry("0." + o.Fingerprint + ".org"), upstreamEntry("1." + o.Fingerprint + ".org"),
			},
		}, metav1.CreateOptions{FieldManager: "eirinix-program"})
		Expect(err).NotTo(HaveOccurred())
		m, _ := start(step("a", isolated))
		Expect(m.survey(ctx)).To(And(HaveField("Due", true), HaveField("Bundles", BeEmpty()), HaveField("Missing", ConsistOf("a"))))
		Expect(m.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		after := stored(ctx)
		Expect(after.UID).To(Equal(upstream.UID))
		Expect(after.Generation).To(Equal(upstream.Generation+1), "one write")
		Expect(names(ctx)).To(ConsistOf(webhookconf.WebhookName("a", o.Fingerprint)))
		Expect(after.Annotations).To(And(HaveKey(webhookconf.StepsAnnotation), HaveKey(webhookconf.StartedAnnotation)))
		Expect(m.register(ctx).Outcome).To(Equal(webhookconf.Unchanged))
	})

	It("yield to who started later, and keep what it trusts", func(ctx SpecContext) {
		old, _ := start(step("old", isolated))
		old.register(ctx)
		time0.pass(time.Second)
		nu, _ := start(step("new", isolated))
		Expect(nu.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		Expect(old.register(ctx).Outcome).To(Equal(webhookconf.Yielded))
		patch(ctx, "somebody", `[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`)
		Expect(old.register(ctx)).To(And(HaveField("Outcome", webhookconf.Updated), HaveField("Action", webhookconf.Yield)))
		Expect(names(ctx)).To(ConsistOf(webhookconf.WebhookName("new", o.Fingerprint)))
		Expect(nu.register(ctx).Outcome).To(Equal(webhookconf.Unchanged))

		time0.pass(10 * time.Minute)
		Expect(old.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		Expect(nu.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		Expect(old.register(ctx).Outcome).To(Equal(webhookconf.Yielded))
	})

	It("tell who undoes what they write", func(ctx SpecContext) {
		m, _ := start(step("a", isolated))
		m.register(ctx)
		var told *webhookconf.Contest
		for range 6 {
			time0.pass(time.Second)
			patch(ctx, "argocd-controller", `[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`)
			told = m.survey(ctx).Contest
			if told == nil {
				Expect(m.register(ctx).Outcome).To(Equal(webhookconf.Updated))
			}
		}
		Expect(told).To(HaveValue(Equal(webhookconf.Contest{Harm: "edited", Times: 6, By: "argocd-controller", Until: time0.now.Add(5 * time.Second)})))
		Expect(m.register(ctx)).To(And(HaveField("Outcome", webhookconf.Deferred), HaveField("Contest", Equal(told))))
		time0.pass(5 * time.Second)
		Expect(m.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		Expect(stored(ctx).ManagedFields).To(HaveEach(HaveField("Manager", BeElementOf("eirinix", "argocd-controller"))), "whatever this program is called")
	})

	It("go away with the Namespace that owns their configurations", func(ctx SpecContext) {
		ns, err := clients.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "owner-"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		o.OwnedBy = webhookconf.OwnedByNamespace(ns)
		m, v := start(many...)
		Expect(m.register(ctx).Outcome).To(Equal(webhookconf.Created))
		Expect(v.register(ctx).Outcome).To(Equal(webhookconf.Created))
		Expect(clients.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{})).To(Succeed())
		for _, p := range []*process{m, v} {
			Eventually(func() bool { return p.survey(ctx).Exists }).WithContext(ctx).WithTimeout(30*time.Second).Should(BeFalse(), p.String())
		}
		_, err = clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, webhookconf.Mutating.ConfigurationName(o.Fingerprint), metav1.GetOptions{})
		Expect(err).To(Satisfy(apierrors.IsNotFound))
	})
})

// upstreamEntry is one as EiriniX wrote it.
func upstreamEntry(name string) admissionregistrationv1.MutatingWebhook {
	return admissionregistrationv1.MutatingWebhook{
		Name: name,
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			URL: new("https://10.0.0.7:4545/" + name), CABundle: []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"),
		},
		Rules:                   []admissionregistrationv1.RuleWithOperations{rule("", "v1", "pods", "CREATE,UPDATE")},
		NamespaceSelector:       labels1("eirini-x-namespace", "eirini"),
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1beta1", "v1"},
	}
}
