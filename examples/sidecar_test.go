package examples_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/examples/internal/programs"
)

var _ = Describe("the example sidecar", func() {
	var r readme
	BeforeEach(func() {
		r = readmeOf("sidecar")
		unregisterAfterwards("sidecar-example")
	})

	mounted := HaveField("VolumeMounts", ContainElement(And(HaveField("Name", "log-forwarder-logs"), HaveField("MountPath", "/var/log/app"))))

	hasSidecar := func(g Gomega, pod *corev1.Pod, image string) {
		sidecar := And(
			HaveField("Name", "log-forwarder"), HaveField("Image", image), mounted,
			HaveField("RestartPolicy", HaveValue(Equal(corev1.ContainerRestartPolicyAlways))),
			HaveField("StartupProbe", Not(BeNil())), HaveField("LivenessProbe", Not(BeNil())),
		)
		g.Expect(pod.Spec.InitContainers).To(HaveExactElements(sidecar, And(HaveField("Name", "prepare"), mounted)))
		g.Expect(pod.Spec.Containers).To(HaveEach(mounted))
		g.Expect(pod.Spec.Volumes).To(ConsistOf(And(HaveField("Name", "log-forwarder-logs"), HaveField("EmptyDir", Not(BeNil())))))
	}

	DescribeTable("injects a native sidecar, but not where the annotation says no", func(ctx SpecContext, start func(ctx context.Context) *gexec.Session, image string) {
		program := start(ctx)
		Eventually(func(g Gomega) {
			pods, err := r.apply(ctx, "pods.yaml")
			g.Expect(err).NotTo(HaveOccurred())
			hasSidecar(g, as[corev1.Pod](pods["Pod/with-sidecar"]), image)
			without := as[corev1.Pod](pods["Pod/without-sidecar"]).Spec
			g.Expect(without.InitContainers).To(BeEmpty())
			g.Expect(without.Volumes).To(BeEmpty())
		}, programs.Patience).Should(Succeed())

		_, err := client.CoreV1().Pods("default").Create(ctx, podWith("log-forwarder"), metav1.CreateOptions{})
		Expect(err).To(And(
			Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring(`the container name "log-forwarder" is taken by the sidecar`))))
		programs.StopsCleanly(program)
	},
		Entry("on this machine", func(context.Context) *gexec.Session { return r.start("-host") }, "registry.example.org/log-forwarder:1.0"),
		Entry("in a cluster", func(ctx context.Context) *gexec.Session { return r.deploy(ctx) }, "fluent/fluent-bit:4.0"),
	)
})

// podWith is a pod whose containers have these names.
func podWith(names ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"}}
	for _, name := range names {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: "example/" + name})
	}
	return pod
}
