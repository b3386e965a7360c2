package admit_test

import (
	"errors"
	"fmt"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"code.cloudfoundry.org/eirinix/internal/chain"
)

var _ = Describe("An error of a step that is an API status", func() {
	verdictOn := func(err error, changes ...func(*admissionv1.AdmissionRequest)) reply {
		GinkgoHelper()
		judge := check("judge", newTree, func(_, _ runtime.Object) error { return err })
		r, _ := serve(chain.Config{Validating: true, Steps: []chain.Step{judge}}, changes...)
		return r
	}
	status := func(code int32, details *metav1.StatusDetails) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: "m", Details: details}}
	}
	invalid := field.ErrorList{field.Invalid(field.NewPath("spec"), "x", "must be y")}
	pods, podKind := corev1.Resource("pods"), schema.GroupKind{Kind: "Pod"}
	generated := func(req *admissionv1.AdmissionRequest) {
		req.Name, req.Object.Raw = "", []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-"}}`)
	}
	named := func(req *admissionv1.AdmissionRequest) { req.Name = "" }
	exec := func(req *admissionv1.AdmissionRequest) {
		req.Operation, req.SubResource, req.Kind.Kind, req.Object.Raw = admissionv1.Connect, "exec", "PodExecOptions", []byte(`{"kind":"PodExecOptions"}`)
	}
	converted := func(req *admissionv1.AdmissionRequest) {
		req.Kind, req.Resource = metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
		req.RequestKind = &metav1.GroupVersionKind{Group: "extensions", Version: "v1beta1", Kind: "Deployment"}
		req.RequestResource = &metav1.GroupVersionResource{Group: "extensions", Version: "v1beta1", Resource: "deployments"}
	}

	DescribeTable("refuses the object when it is about that:", func(err error, code int, changes ...func(*admissionv1.AdmissionRequest)) {
		resp := verdictOn(err, changes...).review("v1")
		Expect(resp.Allowed).To(BeFalse())
		Expect(resp.Result.Code).To(BeEquivalentTo(code))
	},
		Entry("403 without details", status(403, nil), 403),
		Entry("422 with nothing but causes", status(422, &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: "spec"}}}), 422),
		Entry("400", apierrors.NewBadRequest("no"), 400),
		Entry("Invalid, by kind and name", apierrors.NewInvalid(podKind, "web-0", invalid), 422),
		Entry("Invalid, wrapped", fmt.Errorf("looking at it: %w", apierrors.NewInvalid(podKind, "web-0", invalid)), 422),
		Entry("Invalid, beside another error", errors.Join(errStep, apierrors.NewInvalid(podKind, "web-0", invalid)), 422),
		Entry("Invalid, beside the error of a client", errors.Join(apierrors.NewNotFound(pods, "x"), apierrors.NewInvalid(podKind, "web-0", invalid)), 422),
		Entry("Invalid, without a name", apierrors.NewInvalid(podKind, "", invalid), 422),
		Entry("Forbidden, by resource and name", apierrors.NewForbidden(pods, "web-0", errStep), 403),
		Entry("Forbidden, by name alone", apierrors.NewForbidden(schema.GroupResource{}, "web-0", errStep), 403),
		Entry("of an object whose name will be generated", apierrors.NewForbidden(pods, "", errStep), 403, generated),
		Entry("the same, by the beginning of its name", apierrors.NewInvalid(podKind, "web-", invalid), 422, generated),
		Entry("by the name in the object", apierrors.NewInvalid(podKind, "web-0", invalid), 422, named),
		Entry("of a subresource, by the object's kind", apierrors.NewInvalid(podKind, "web-0", invalid), 422, exec),
		Entry("of a subresource, by its resource", apierrors.NewForbidden(corev1.Resource("pods/exec"), "web-0", errStep), 403, exec),
		Entry("in the group that was asked for", apierrors.NewInvalid(schema.GroupKind{Group: "extensions", Kind: "Deployment"}, "web-0", invalid), 422, converted),
		Entry("in the group that it was converted to", apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "web-0", invalid), 422, converted),
	)

	DescribeTable("is a failure when the error is that of the step's own client:", func(err error) {
		for _, told := range []error{err, fmt.Errorf("asking: %w", err), errors.Join(errStep, err)} {
			Expect(verdictOn(told).Status).To(Equal(http.StatusInternalServerError), "%v", told)
		}
	},
		Entry("401", apierrors.NewUnauthorized("who are you")),
		Entry("404", apierrors.NewNotFound(corev1.Resource("configmaps"), "settings")),
		Entry("404 of the object itself", apierrors.NewNotFound(pods, "web-0")),
		Entry("405", apierrors.NewMethodNotSupported(pods, "patch")),
		Entry("409", apierrors.NewConflict(pods, "web-0", errStep)),
		Entry("409 AlreadyExists", apierrors.NewAlreadyExists(pods, "web-0")),
		Entry("410", apierrors.NewResourceExpired("too old")),
		Entry("413", apierrors.NewRequestEntityTooLargeError("big")),
		Entry("429", apierrors.NewTooManyRequests("later", 1)),
		Entry("no code", status(0, nil)),
		Entry("200", status(200, nil)),
		Entry("500", apierrors.NewInternalError(errStep)),
		Entry("504", apierrors.NewTimeoutError("late", 1)),
		Entry("403 about a Secret", apierrors.NewForbidden(corev1.Resource("secrets"), "web-0", errStep)),
		Entry("403 about another pod", apierrors.NewForbidden(pods, "web-1", errStep)),
		Entry("403 about a list of pods", apierrors.NewForbidden(pods, "", errStep)),
		Entry("403 about the pods of another group", apierrors.NewForbidden(schema.GroupResource{Group: "metrics.k8s.io", Resource: "pods"}, "web-0", errStep)),
		Entry("422 about another kind", apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "web-0", invalid)),
		Entry("422 about another object", apierrors.NewInvalid(podKind, "web-1", invalid)),
	)
})
