package examples_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/examples/internal/programs"
)

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
		Expect(stored.Object["spec"]).To(Equal(map[string]any{
			"image": "registry.example.org/backup:1", "timeZone": "Europe/Vienna",
			"schedule": map[string]any{"minute": "0", "hour": "3"},
		}))
		Expect(stored.GetAnnotations()).To(BeEmpty(), "what was kept is in its place again")
	},
		Entry("on this machine", func(context.Context) { r.start("-host") }),
		Entry("in a cluster", func(ctx context.Context) { r.deploy(ctx) }),
	)
})
