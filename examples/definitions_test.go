package examples_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/examples/internal/programs"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

const playbookCRD = "config/ops.netease.com_playbooks.yaml"

var _ = Describe("the example playbook", func() {
	var r readme
	BeforeEach(func(ctx SpecContext) {
		r = readmeOf("playbook")
		unregisterAfterwards("playbook-example")
		err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "webhooks"}})
		Expect(crclient.IgnoreAlreadyExists(err)).To(Succeed())
		r.define(ctx, playbookCRD, "ops.netease.com/v1", "Playbook")
	})

	patch := func(ctx context.Context, p *unstructured.Unstructured, merge string) error {
		return c.Patch(ctx, p.DeepCopy(), crclient.RawPatch("application/merge-patch+json", []byte(merge)))
	}
	progress := func(ctx context.Context, p *unstructured.Unstructured, percent string) {
		GinkgoHelper()
		Expect(c.Status().Patch(ctx, p.DeepCopy(), crclient.RawPatch("application/merge-patch+json", []byte(`{"status":{"progress":`+percent+`}}`)))).To(Succeed())
	}
	isInvalid := func(message string) types.GomegaMatcher {
		return And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring(message)))
	}
	// works goes through the life of a Playbook.
	works := func(ctx context.Context) {
		GinkgoHelper()
		var p *unstructured.Unstructured
		Eventually(func(g Gomega) {
			applied, err := r.apply(ctx, "playbook.yaml")
			g.Expect(err).NotTo(HaveOccurred())
			p = applied["Playbook/spring-cleaning"]
			g.Expect(p.Object["spec"]).To(HaveKeyWithValue("abstract", "nobody has said yet what this is for"))
			g.Expect(patch(ctx, p, `{"spec":{"abstract":"a Yellow submarine"}}`)).To(isInvalid(`spec.abstract: Invalid value: "a Yellow submarine": must not contain "yellow"`))
		}, programs.Patience).Should(Succeed())
		yellow := p.DeepCopy()
		yellow.SetName("yellow")
		yellow.SetResourceVersion("")
		yellow.Object["spec"] = map[string]any{"abstract": "yellow"}
		Expect(c.Create(ctx, yellow)).To(isInvalid("spec.abstract: Invalid value"))

		Expect(patch(ctx, p, `{"spec":{"abstract":"windows first"}}`)).To(Succeed())
		progress(ctx, p, "50")
		Expect(patch(ctx, p, `{"spec":{"abstract":"floors first"}}`)).To(isInvalid("spec.abstract: Forbidden: stays as it is"))
		Expect(c.Delete(ctx, p)).To(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring(`"spring-cleaning" is at 50 percent`))))
		progress(ctx, p, "100")
		Eventually(func() error { return c.Get(ctx, crclient.ObjectKeyFromObject(p), p.DeepCopy()) }, programs.Patience).
			Should(Satisfy(apierrors.IsNotFound), "the controller deletes it")
	}
	// calledAt returns the address at which the API server calls each webhook.
	calledAt := func(ctx context.Context) (configs []admissionregistrationv1.WebhookClientConfig) {
		GinkgoHelper()
		var mutating admissionregistrationv1.MutatingWebhookConfigurationList
		var validating admissionregistrationv1.ValidatingWebhookConfigurationList
		Expect(c.List(ctx, &mutating)).To(Succeed())
		Expect(c.List(ctx, &validating)).To(Succeed())
		for _, m := range mutating.Items {
			for _, w := range m.Webhooks {
				configs = append(configs, w.ClientConfig)
			}
		}
		for _, v := range validating.Items {
			for _, w := range v.Webhooks {
				configs = append(configs, w.ClientConfig)
			}
		}
		return configs
	}
	byURL := And(HaveField("URL", HaveValue(HavePrefix("https://127.0.0.1:"))), HaveField("Service", BeNil()))
	byService := And(HaveField("URL", BeNil()), HaveField("Service.Name", "playbook"))

	It("works on a laptop, in the cluster, and on the laptop again, and leaves nothing stale between", func(ctx SpecContext) {
		laptop := r.start("-host")
		works(ctx)
		Expect(calledAt(ctx)).To(And(Not(BeEmpty()), HaveEach(byURL)))
		programs.StopsCleanly(laptop)

		pod := r.deploy(ctx)
		works(ctx)
		Expect(calledAt(ctx)).To(And(Not(BeEmpty()), HaveEach(byService)))
		programs.StopsCleanly(pod)

		laptop = r.start("-host", "-unregister")
		Expect(calledAt(ctx)).To(And(Not(BeEmpty()), HaveEach(byURL)))
		programs.StopsCleanly(laptop)
		Expect(calledAt(ctx)).To(BeEmpty())
	})

	It("takes certificates of a signer, by its flags", func(ctx SpecContext) {
		ca := newAuthority()
		session := r.launch("-host", "-certificates", "csr:example.org/webhooks", "-trust", ca.file())
		Eventually(func() string {
			SignRequests(ctx, client, ca.Authority, "example.org/webhooks")
			return string(session.Err.Contents())
		}, programs.Patience).Should(ContainSubstring(`"msg":"ready"`))
		Expect(calledAt(ctx)).To(And(Not(BeEmpty()), HaveEach(HaveField("CABundle", ca.CertificatePEM))))
	})

	It("has its generated files as the generator makes them", func(ctx SpecContext) {
		programs.ExpectGenerated(ctx, "playbook", "api/v1/playbook_types.go", playbookCRD, "api/v1/zz_generated.deepcopy.go")
	})
})

var _ = Describe("the example multiversion", func() {
	const definition = "config/batch.example.com_cronjobs.yaml"
	var r readme
	BeforeEach(func(ctx SpecContext) {
		r = readmeOf("multiversion")
		err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "webhooks"}})
		Expect(crclient.IgnoreAlreadyExists(err)).To(Succeed())
		// Its registration is that of a program whose Secret can differ.
		DeferCleanup(func(ctx SpecContext) {
			for _, object := range programs.ObjectsIn("multiversion/" + definition) {
				Expect(crclient.IgnoreNotFound(c.Delete(ctx, object))).To(Succeed())
				Eventually(func() error { return c.Get(ctx, crclient.ObjectKeyFromObject(object), object) }, programs.Patience).ShouldNot(Succeed())
			}
		})
		r.define(ctx, definition, "batch.example.com/v1", "CronJob")
	})

	DescribeTable("converts between the versions, and loses nothing", func(ctx SpecContext, start func(ctx context.Context)) {
		start(ctx)
		var stored *unstructured.Unstructured
		Eventually(func(g Gomega) {
			applied, err := r.apply(ctx, "cronjob.yaml")
			g.Expect(err).NotTo(HaveOccurred())
			stored = applied["CronJob/nightly"]
		}, programs.Patience).Should(Succeed())
		older := stored.DeepCopy()
		older.SetAPIVersion("batch.example.com/v1beta1")
		Eventually(func(g Gomega) {
			g.Expect(c.Get(ctx, crclient.ObjectKeyFromObject(older), older)).To(Succeed())
			g.Expect(older.Object["spec"]).To(Equal(map[string]any{"image": "registry.example.org/backup:1", "schedule": "30 2 * * *"}))
		}, programs.Patience).Should(Succeed())

		Expect(c.Patch(ctx, older.DeepCopy(), crclient.RawPatch("application/merge-patch+json", []byte(`{"spec":{"schedule":"0 3 * * *"}}`)))).To(Succeed())
		Expect(c.Get(ctx, crclient.ObjectKeyFromObject(stored), stored)).To(Succeed())
		Expect(stored.Object["spec"]).To(Equal(map[string]any{"image": "registry.example.org/backup:1", "timeZone": "Europe/Vienna", "schedule": map[string]any{"minute": "0", "hour": "3"}}))
		Expect(stored.GetAnnotations()).To(BeEmpty(), "what was kept is in its place again")
	},
		Entry("on this machine", func(context.Context) { r.start("-host") }),
		Entry("in a cluster", func(ctx context.Context) { r.deploy(ctx) }),
	)
})
