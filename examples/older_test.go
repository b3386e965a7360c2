package examples_test

import (
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/examples/internal/programs"
)

// A program may change a field that is immutable after the creation. The API server then refuses every edit of objects
// that are older than the program.
var _ = DescribeTable("objects that are older than the example can be edited still, and so can those that it has changed:",
	func(ctx SpecContext, example, file string, more func() []string) {
		r := readmeOf(example)
		unregisterAfterwards(example + "-example")
		var older []*unstructured.Unstructured
		for _, object := range programs.ObjectsIn(filepath.Join(example, file)) {
			if object.GetKind() != "Namespace" {
				object.SetName(object.GetName() + "-older")
				older = append(older, object)
			}
			// The API server may still know the webhook of the spec before for a moment.
			Eventually(func() error { return applyAfresh(ctx, object) }, programs.Patience).Should(Succeed())
		}
		Expect(older).NotTo(BeEmpty())
		r.start("-host", more()...)
		var changed map[string]*unstructured.Unstructured
		Eventually(func() (err error) {
			changed, err = r.apply(ctx, file)
			return err
		}, programs.Patience).Should(Succeed())
		edit := func(object *unstructured.Unstructured) {
			GinkgoHelper()
			annotate := crclient.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"edited":"yes"},"labels":{"edited":"yes"}}}`))
			Expect(c.Patch(ctx, object, annotate)).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
		}
		for _, object := range older {
			edit(object)
			Expect(remove(ctx, object)).To(Succeed())
		}
		for _, object := range changed {
			edit(object)
		}
	},
	Entry("sidecar", "sidecar", "pods.yaml", without),
	Entry("policies", "policies", "pod.yaml", without),
	Entry("idle-image", "idle-image", "workload.yaml", without),
	Entry("job-retries", "job-retries", "jobs.yaml", func() []string {
		address, port := programs.FreeAddress()
		return []string{"-port", port, "-listen", address, "-cert-dir", newAuthority().folder("cert.pem", "key.pem", "ca.pem")}
	}),
)

func without() []string { return nil }
