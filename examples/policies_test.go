package examples_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/examples/internal/programs"
)

var _ = Describe("the example policies", func() {
	var r readme
	BeforeEach(func(ctx SpecContext) {
		r = readmeOf("policies")
		unregisterAfterwards("policies-example")
		for _, object := range programs.ObjectsIn("policies/pod.yaml")[:1] {
			Expect(applyAfresh(ctx, object)).To(Succeed())
		}
	})

	applyFile := func(ctx context.Context, file string) {
		GinkgoHelper()
		_, err := r.apply(ctx, file)
		Expect(err).NotTo(HaveOccurred())
	}
	newPod := func(image string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-", Namespace: "guarded"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
		}
	}
	create := func(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
		return client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	}
	const own, foreign = "registry.example.org/app:1", "busybox"
	withheld := HaveField("Spec.AutomountServiceAccountToken", HaveValue(BeFalse()))
	silent := HaveField("Spec.AutomountServiceAccountToken", BeNil())
	isForbidden := And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("images from elsewhere: busybox")))

	DescribeTable("has the same outcome", func(ctx SpecContext, start func(ctx context.Context)) {
		start(ctx)
		Eventually(func(g Gomega) {
			applied, err := r.apply(ctx, "pod.yaml")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(as[corev1.Pod](applied["Pod/own"])).To(withheld)
			_, err = create(ctx, newPod(foreign))
			g.Expect(err).To(isForbidden)
		}, programs.Patience).Should(Succeed())

		asks := newPod(own)
		asks.Spec.AutomountServiceAccountToken = new(true)
		created, err := create(ctx, asks)
		Expect(err).NotTo(HaveOccurred())
		Expect(created.Spec.AutomountServiceAccountToken).To(HaveValue(BeTrue()))
		created.Spec.Containers[0].Image = foreign
		_, err = client.CoreV1().Pods("guarded").Update(ctx, created, metav1.UpdateOptions{})
		Expect(err).To(isForbidden)
		prepared := newPod(own)
		prepared.Spec.InitContainers = []corev1.Container{{Name: "prepare", Image: foreign}}
		_, err = create(ctx, prepared)
		Expect(err).To(isForbidden)

		elsewhere := newPod(foreign)
		elsewhere.Namespace = "default"
		Expect(create(ctx, elsewhere)).To(silent)
	},
		Entry("as policies", func(ctx context.Context) { applyFile(ctx, "mutating.yaml"); applyFile(ctx, "validating.yaml") }),
		Entry("as a webhook on this machine", func(context.Context) { r.start("-host") }),
		Entry("as a webhook in a cluster", func(ctx context.Context) { r.deploy(ctx) }),
	)

	// A policy that gives the token away shows which of two mutations came first: each leaves a field that is set.
	It("comes before the webhook of its sort, as docs/policies.md says", func(ctx SpecContext) {
		r.start("-host")
		Eventually(create).WithArguments(ctx, newPod(own)).WithTimeout(programs.Patience).Should(withheld)
		applied, err := r.apply(ctx, "mutating.yaml")
		Expect(err).NotTo(HaveOccurred())
		policy := applied["MutatingAdmissionPolicy/no-token.example.org"]
		mutations, found, err := unstructured.NestedSlice(policy.Object, "spec", "mutations")
		Expect(found, err).To(BeTrue())
		Expect(unstructured.SetNestedField(mutations[0].(map[string]any),
			"Object{spec: Object.spec{automountServiceAccountToken: true}}", "applyConfiguration", "expression")).To(Succeed())
		Expect(unstructured.SetNestedSlice(policy.Object, mutations, "spec", "mutations")).To(Succeed())
		Expect(c.Update(ctx, policy)).To(Succeed())
		applyFile(ctx, "validating.yaml")
		Eventually(func(g Gomega) {
			g.Expect(create(ctx, newPod(own))).To(HaveField("Spec.AutomountServiceAccountToken", HaveValue(BeTrue())))
			_, err := create(ctx, newPod(foreign))
			g.Expect(err).To(And(isForbidden, MatchError(ContainSubstring("ValidatingAdmissionPolicy"))))
		}, programs.Patience).Should(Succeed())
	})

	It("stands in docs/policies.md as it is applied here", func() {
		page, err := os.ReadFile(filepath.Join("..", "docs", "policies.md"))
		Expect(err).NotTo(HaveOccurred())
		snippets := regexp.MustCompile("(?s)```yaml\n# examples/([a-z/-]+\\.yaml)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
		var files []string
		for _, found := range snippets {
			source, err := os.ReadFile(found[1])
			Expect(err).NotTo(HaveOccurred())
			Expect(string(source)).To(Equal(found[2]), found[1])
			files = append(files, found[1])
		}
		Expect(files).To(ConsistOf("policies/mutating.yaml", "policies/validating.yaml"))
		Expect(regexp.MustCompile("```yaml\n[^#]").FindString(string(page))).To(BeEmpty(), "every YAML snippet names its file")
	})
})
