package examples_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix/examples/internal/programs"
)

var _ = Describe("the example idle-image", func() {
	var r readme
	BeforeEach(func(ctx SpecContext) {
		r = readmeOf("idle-image")
		unregisterAfterwards("idle-image-example")
		Expect(client.CoreV1().Events("idle").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())
	})

	imageOf := func(d *appsv1.Deployment) string { return d.Spec.Template.Spec.Containers[0].Image }
	const knative, idle = "knative:latest", "empty-container:latest"

	events := func(ctx context.Context, namespace string) []string {
		GinkgoHelper()
		list, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=test,reason=ImageReplaced"})
		Expect(err).NotTo(HaveOccurred())
		messages := make([]string, 0, len(list.Items))
		for _, event := range list.Items {
			messages = append(messages, event.Message)
		}
		return messages
	}

	DescribeTable("swaps images where the namespace asks for it", func(ctx SpecContext, start func(ctx context.Context) *gexec.Session) {
		program := start(ctx)
		Eventually(func(g Gomega) {
			applied, err := r.apply(ctx, "workload.yaml")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(imageOf(as[appsv1.Deployment](applied["Deployment/test"]))).To(Equal(idle))
			g.Expect(as[corev1.Service](applied["Service/test"]).Spec.PublishNotReadyAddresses).To(BeTrue())
		}, programs.Patience).Should(Succeed())
		Expect(events(ctx, "idle")).To(ContainElement("Idles instead of running " + knative))

		By("changing the image back")
		deployments := client.AppsV1().Deployments("idle")
		again, err := deployments.Patch(ctx, "test", types.JSONPatchType,
			[]byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"knative:2"}]`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(imageOf(again)).To(Equal(idle))
		Expect(events(ctx, "idle")).To(ContainElement("Idles instead of running knative:2"))

		By("asking for a dry run")
		again.ResourceVersion, again.Name = "", "test-dry"
		again.Spec.Template.Spec.Containers[0].Image = "knative:dry"
		again, err = deployments.Create(ctx, again, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		Expect(err).NotTo(HaveOccurred())
		Expect(imageOf(again)).To(Equal(idle))
		dry, err := client.CoreV1().Events("idle").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=test-dry"})
		Expect(err).NotTo(HaveOccurred())
		Expect(dry.Items).To(BeEmpty())

		By("creating it elsewhere")
		again.ResourceVersion, again.UID, again.Namespace = "", "", "default"
		again.Spec.Template.Spec.Containers[0].Image = knative
		elsewhere, err := client.AppsV1().Deployments("default").Create(ctx, again, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		Expect(err).NotTo(HaveOccurred())
		Expect(imageOf(elsewhere)).To(Equal(knative))
		programs.StopsCleanly(program)
	},
		Entry("on this machine", func(context.Context) *gexec.Session { return r.start("-host") }),
		Entry("in a cluster, with the rights that it prints", func(ctx context.Context) *gexec.Session { return r.deploy(ctx) }),
	)
})
