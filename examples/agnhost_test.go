package examples_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/examples/internal/programs"
)

var _ = Describe("the example agnhost", func() {
	var r readme
	BeforeEach(func(ctx SpecContext) {
		r = readmeOf("agnhost")
		unregisterAfterwards("agnhost-example")
		r.define(ctx, "widgets.yaml", "agnhost.example.org/v1", "Widget")
	})

	// attach asks for standard input of a container of a pod that is there, but does not run.
	attach := func(ctx context.Context, container string) error {
		return client.CoreV1().RESTClient().Get().Namespace("default").Resource("pods").Name("to-be-attached-pod").SubResource("attach").
			Param("container", container).Param("stdin", "true").Do(ctx).Error()
	}

	DescribeTable("does what its endpoints do", func(ctx SpecContext, start func(ctx context.Context) *gexec.Session) {
		start(ctx)
		allStages := map[string]any{"mutation-start": "yes", "mutation-stage-1": "yes", "mutation-stage-2": "yes"}
		var applied map[string]*unstructured.Unstructured
		Eventually(func(g Gomega) {
			var err error
			applied, err = r.apply(ctx, "objects.yaml")
			g.Expect(err).NotTo(HaveOccurred())
			pod := as[corev1.Pod](applied["Pod/webhook-to-be-mutated"])
			g.Expect(pod.Spec.InitContainers).To(ConsistOf(And(
				HaveField("Name", "webhook-added-init-container"), HaveField("TerminationMessagePolicy", corev1.TerminationMessageReadFile))))
			g.Expect(pod.Spec.Containers).To(HaveExactElements(HaveField("Name", "main"), HaveField("Name", "webhook-added-sidecar")))
			g.Expect(attach(ctx, "container1")).To(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("is not allowed"))))
			for _, name := range []string{"ConfigMap/in-stages", "Widget/in-stages"} {
				g.Expect(applied[name].Object["data"]).To(Equal(allStages), name)
				g.Expect(applied[name].GetLabels()).To(HaveKeyWithValue("added-label", "yes"), name)
			}
		}, programs.Patience).Should(Succeed())
		Expect(attach(ctx, "container2")).NotTo(MatchError(ContainSubstring("is not allowed")))

		By("being refused unwanted objects")
		reasons := []string{
			"this webhook denies all requests", "the configmap contains unwanted key and value",
			"the pod contains unwanted container name; the pod contains unwanted label", "no answer before the deadline",
			"the custom resource contains unwanted data", "the crd contains unwanted label",
		}
		refused := programs.ObjectsIn("agnhost/refused.yaml")
		Expect(refused).To(HaveLen(len(reasons)))
		for i, object := range refused {
			err := applyAfresh(ctx, object)
			Expect(err).To(MatchError(ContainSubstring(reasons[i])))
			Expect(apierrors.IsForbidden(err)).To(Equal(object.GetName() != "hangs"), "%s: what hangs is a failure, and no refusal", reasons[i])
		}

		By("changing and deleting stored objects")
		unwanted := crclient.RawPatch("application/merge-patch+json", []byte(`{"data":{"webhook-e2e-test":"webhook-disallow"}}`))
		Expect(c.Patch(ctx, applied["ConfigMap/in-stages"].DeepCopy(), unwanted)).To(Satisfy(apierrors.IsForbidden))
		widget := applied["Widget/in-stages"]
		Expect(c.Patch(ctx, widget.DeepCopy(), unwanted)).To(Satisfy(apierrors.IsForbidden))
		Expect(c.Patch(ctx, widget, crclient.RawPatch("application/merge-patch+json", []byte(`{"data":{"webhook-e2e-test":"webhook-nondeletable"}}`)))).To(Succeed())
		Expect(c.Delete(ctx, widget)).To(MatchError(ContainSubstring("cannot be deleted")))
		Expect(c.Patch(ctx, widget, crclient.RawPatch("application/merge-patch+json", []byte(`{"data":{"webhook-e2e-test":null}}`)))).To(Succeed())
	},
		Entry("on this machine", func(context.Context) *gexec.Session { return r.start("-host") }),
		Entry("in a cluster", func(ctx context.Context) *gexec.Session { return r.deploy(ctx) }),
	)
})
