package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

func TestSteps(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Steps of scaffolded webhooks")
}

// rules is a defaulter and a validator that answers each operation with one error, and with the operation as a warning.
type rules struct{ err error }

func (r rules) answer(ctx context.Context) (admission.Warnings, error) {
	req, err := admission.RequestFromContext(ctx)
	return admission.Warnings{string(req.Operation) + " of " + req.Name}, errors.Join(r.err, err)
}

func (r rules) Default(ctx context.Context, obj *corev1.ConfigMap) error {
	req, err := admission.RequestFromContext(ctx)
	metav1.SetMetaDataLabel(&obj.ObjectMeta, "operation", string(req.Operation))
	return errors.Join(r.err, err)
}

func (r rules) ValidateCreate(ctx context.Context, _ *corev1.ConfigMap) (admission.Warnings, error) {
	return r.answer(ctx)
}

func (r rules) ValidateUpdate(ctx context.Context, _, _ *corev1.ConfigMap) (admission.Warnings, error) {
	return r.answer(ctx)
}

func (r rules) ValidateDelete(ctx context.Context, _ *corev1.ConfigMap) (admission.Warnings, error) {
	return r.answer(ctx)
}

var _ = Describe("A scaffolded webhook as a step", func() {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: "default"}}
	kind := schema.GroupKind{Kind: "ConfigMap"}

	It("finds the request in its context, and passes its warnings on", func() {
		h := eirinixtest.NewHarness(GinkgoT(), Defaulting(rules{}, eirinix.Settings{}), Validating(rules{}, eirinix.Settings{}))
		created := h.Create(object)
		Expect(created).To(And(eirinixtest.BeAllowed(), eirinixtest.HaveWarned("CREATE of settings")))
		Expect(eirinixtest.As[*corev1.ConfigMap](created).Labels).To(Equal(map[string]string{"operation": "CREATE"}))
		Expect(h.Update(object, eirinixtest.As[*corev1.ConfigMap](created))).To(And(eirinixtest.BeAllowed(), eirinixtest.HaveWarned("UPDATE of settings")))
	})

	It("is called for DELETE if its settings say so, and not otherwise", func() {
		refuses := rules{errors.New("no")}
		Expect(eirinixtest.NewHarness(GinkgoT(), Validating(refuses, eirinix.Settings{})).Delete(object)).To(eirinixtest.BeAllowed())
		deletes := eirinix.Settings{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete}}
		h := eirinixtest.NewHarness(GinkgoT(), Validating(refuses, deletes))
		Expect(h.Delete(object).Denial).To(HaveField("Message", "no"))
		Expect(h.Create(object)).To(eirinixtest.BeAllowed())
	})

	DescribeTable("refuses the object", func(err error, code int) {
		for _, step := range []any{Defaulting(rules{err}, eirinix.Settings{}), Validating(rules{err}, eirinix.Settings{})} {
			denial := eirinixtest.NewHarness(GinkgoT(), step).Create(object).Denial
			Expect(denial).NotTo(BeNil())
			Expect(denial.Code).To(BeEquivalentTo(code))
			Expect(denial.Message).To(Equal(err.Error()))
		}
	},
		Entry("for a plain error", errors.New("100 %"), http.StatusForbidden),
		Entry("for several", errors.Join(errors.New("one"), errors.New("two")), http.StatusForbidden),
		Entry("for an invalid object", apierrors.NewInvalid(kind, "settings", nil), http.StatusUnprocessableEntity),
		Entry("for a bad request", apierrors.NewBadRequest("no"), http.StatusBadRequest),
	)

	DescribeTable("fails, and leaves the decision to failurePolicy", func(err error) {
		for _, step := range []any{Defaulting(rules{err}, eirinix.Settings{}), Validating(rules{err}, eirinix.Settings{})} {
			Expect(eirinixtest.NewHarness(GinkgoT(), step).Create(object)).To(eirinixtest.HaveFailed(ContainSubstring(err.Error())))
		}
	},
		Entry("if a client of its own finds nothing", fmt.Errorf("reading: %w", apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "key"))),
		Entry("if time runs out", fmt.Errorf("reading: %w", context.DeadlineExceeded)),
	)
})
