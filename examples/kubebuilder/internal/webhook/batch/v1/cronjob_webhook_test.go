package v1

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/api/batch/v1"
)

var _ = Describe("CronJob Webhook", func() {
	var (
		obj, oldObj *batchv1.CronJob
		validator   CronJobCustomValidator
		defaulter   *CronJobCustomDefaulter
	)

	BeforeEach(func() {
		obj = &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Name: "backup", Namespace: "default"},
			Spec:       batchv1.CronJobSpec{Schedule: "0 3 * * *", Image: "example/backup"},
		}
		oldObj = obj.DeepCopy()
		validator, defaulter = CronJobCustomValidator{}, newCronJobDefaulter()
	})

	Context("When creating CronJob under Defaulting Webhook", func() {
		It("Should apply defaults when a required field is empty", func() {
			Expect(defaulter.Default(ctx, obj)).To(Succeed())
			Expect(obj.Spec.ConcurrencyPolicy).To(Equal(batchv1.AllowConcurrent))
			Expect(obj.Spec.Suspend).To(HaveValue(BeFalse()))
			Expect(obj.Spec.SuccessfulRunsHistoryLimit).To(HaveValue(BeEquivalentTo(3)))
		})

		It("Should not overwrite fields that are already set", func() {
			obj.Spec.ConcurrencyPolicy = batchv1.ForbidConcurrent
			obj.Spec.Suspend = new(true)
			obj.Spec.SuccessfulRunsHistoryLimit = new(int32(5))
			set := obj.DeepCopy()
			Expect(defaulter.Default(ctx, obj)).To(Succeed())
			Expect(obj).To(Equal(set))
		})
	})

	Context("When creating or updating CronJob under Validating Webhook", func() {
		It("Should deny creation if the name is too long", func() {
			obj.Name = strings.Repeat("a", 52)
			Expect(validator.ValidateCreate(ctx, obj)).To(BeEmpty())
			obj.Name += "a"
			_, err := validator.ValidateCreate(ctx, obj)
			Expect(err).To(MatchError(ContainSubstring("metadata.name: Too long")))
		})

		It("Should warn of a schedule without a rest", func() {
			obj.Spec.Schedule = "* * * * *"
			Expect(validator.ValidateCreate(ctx, obj)).To(ConsistOf("spec.schedule: this runs every minute"))
		})

		It("Should deny an update to a schedule that does not parse", func() {
			obj.Spec.Schedule = "daily"
			_, err := validator.ValidateUpdate(ctx, oldObj, obj)
			Expect(err).To(MatchError(ContainSubstring("must have five fields")))
		})
	})
})
