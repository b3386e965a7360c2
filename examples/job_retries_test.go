package examples_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix/examples/internal/programs"
)

var _ = Describe("the example job-retries", func() {
	It("caps the retries of terraform-controller's Jobs while the operator works as before, and admits them when it is down", func(ctx SpecContext) {
		r := readmeOf("job-retries")
		unregisterAfterwards("job-retries-example")
		jobs := client.BatchV1().Jobs("default")
		limitOf := func(job *batchv1.Job) int32 { return *job.Spec.BackoffLimit }
		ca := newAuthority()
		address, port := programs.FreeAddress()
		// A spec has its own folder in place of the README's folder certs, and its own port in place of 9443.
		operator := r.start("-host", "-port", port, "-listen", address, "-cert-dir", ca.folder("cert.pem", "key.pem", "ca.pem"))

		Eventually(func(g Gomega) {
			applied, err := r.apply(ctx, "jobs.yaml")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(limitOf(as[batchv1.Job](applied["Job/terraform-apply"]))).To(BeZero())
			g.Expect(limitOf(as[batchv1.Job](applied["Job/unrelated"]))).To(Equal(int32(4)))
		}, programs.Patience).Should(Succeed())
		changed, err := jobs.Patch(ctx, "terraform-apply", types.MergePatchType, []byte(`{"spec":{"backoffLimit":3}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(limitOf(changed)).To(BeZero())

		for _, name := range []string{"terraform-apply", "unrelated"} {
			Eventually(func() (map[string]string, error) {
				job, err := jobs.Get(ctx, name, metav1.GetOptions{})
				return job.Annotations, err
			}, programs.Patience).Should(HaveKeyWithValue("example.org/failures", "0"), "the operator's own controller")
		}

		configuration, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "job-retries-example-mutating-hook", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(configuration.Webhooks).To(HaveEach(HaveField("ClientConfig.CABundle", Equal(ca.CertificatePEM))))
		Expect(configuration.Webhooks).To(ContainElement(And(
			HaveField("Name", HavePrefix("jobs-")), HaveField("FailurePolicy", HaveValue(Equal(admissionregistrationv1.Ignore))))))

		programs.StopsCleanly(operator)
		applied, err := r.apply(ctx, "jobs.yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(limitOf(as[batchv1.Job](applied["Job/terraform-apply"]))).To(Equal(int32(2147483647)), "the step leaves it alone")
	})
})
