package manifests

// Manifests as files: a kustomization or a chart, in a folder that others may write into.

import (
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("A folder of manifests", func() {
	account := func(name string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "cf"}}
	}
	var dir string
	BeforeEach(func() { dir = filepath.Join(GinkgoT().TempDir(), "new", "base") })
	write := func(names ...string) error {
		GinkgoHelper()
		var objects []client.Object
		for _, n := range names {
			objects = append(objects, account(n))
		}
		return Kustomization(dir, objects...)
	}
	file := func(name string) string { return filepath.Join(dir, name) }

	It("is made, and not touched by a second call", func() {
		Expect(write("a")).To(Succeed())
		old := time.Now().Add(-time.Hour)
		Expect(os.Chtimes(file("serviceaccount-a.yaml"), old, old)).To(Succeed())
		Expect(write("a")).To(Succeed())
		info, err := os.Stat(file("serviceaccount-a.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.ModTime()).To(BeTemporally("~", old, time.Second))
	})

	It("loses what is not needed any more, and keeps the files of others", func() {
		Expect(write("a", "b")).To(Succeed())
		for name, text := range map[string]string{"README.md": "# Our notes\n", "empty": ""} {
			Expect(os.WriteFile(file(name), []byte(text), 0o600)).To(Succeed())
		}
		Expect(write("a")).To(Succeed())
		entries, err := os.ReadDir(dir)
		Expect(err).NotTo(HaveOccurred())
		Expect(entries).To(HaveExactElements(HaveField("Name()", "README.md"), HaveField("Name()", "empty"),
			HaveField("Name()", "kustomization.yaml"), HaveField("Name()", "serviceaccount-a.yaml")))
	})

	It("touches neither packages below it, nor a chart in the same folder", func() {
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "cf"}}
		chart, err := helmChart(deployment)
		Expect(err).NotTo(HaveOccurred())
		for _, folder := range []string{dir, filepath.Join(dir, "below")} {
			Expect(Chart(folder, deployment)).To(Succeed())
		}
		Expect(write("a")).To(Succeed())
		Expect(Chart(dir, deployment)).To(Succeed())
		for name := range chart {
			Expect(file(name)).To(BeAnExistingFile())
			Expect(filepath.Join(dir, "below", name)).To(BeAnExistingFile())
		}
		Expect(file("kustomization.yaml")).To(BeAnExistingFile())
	})

	It("keeps a file of another that is in the way, and is not written then", func() {
		Expect(os.MkdirAll(dir, 0o700)).To(Succeed())
		Expect(os.WriteFile(file("serviceaccount-a.yaml"), []byte("ours: true\n"), 0o600)).To(Succeed())
		Expect(write("a")).To(MatchError(And(ContainSubstring(file("serviceaccount-a.yaml")), ContainSubstring("move it away, or choose another folder"))))
		Expect(os.ReadFile(file("serviceaccount-a.yaml"))).To(BeEquivalentTo("ours: true\n"))
		Expect(file("kustomization.yaml")).NotTo(BeAnExistingFile())
	})

	It("has a file for each object, also where two have one name", func() {
		other := account("a")
		other.Namespace = "other"
		files, err := kustomization(account("a"), other)
		Expect(err).NotTo(HaveOccurred())
		Expect(files).To(And(HaveLen(3), HaveKey("serviceaccount-a.yaml"), HaveKey("serviceaccount-a-2.yaml")))
		Expect(string(files["kustomization.yaml"])).To(ContainSubstring("- serviceaccount-a-2.yaml\n"))
	})

	It("leaves the objects as they are", func() {
		other := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.org/v1", "kind": "Other", "status": "fine", "later": nil, "count": int64(1) << 60,
			"metadata": map[string]any{"name": "other", "namespace": "cf"},
		}}
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "cf"}}
		before := other.DeepCopy()
		files, err := helmChart(deployment, other)
		Expect(err).NotTo(HaveOccurred())
		Expect(other).To(Equal(before))
		Expect(string(files["templates/other-other.yaml"])).To(And(ContainSubstring("count: 1152921504606846976\n"), Not(Or(ContainSubstring("status"), ContainSubstring("later")))))
	})

	It("is no chart without one Deployment", func() {
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "cf"}}
		_, err := helmChart(account("a"))
		Expect(err).To(MatchError(ContainSubstring("there is no Deployment")))
		_, err = helmChart(deployment, deployment)
		Expect(err).To(MatchError(ContainSubstring(`two Deployments, "a" and "a"`)))
	})
})
