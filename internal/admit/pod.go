package admit

// This file is for extensions about pods: the pod that a request carries, and the patch that makes another one of it.

import (
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/patch"
)

// DecodePod gives the pod that a request carries, or nil when it carries none: a DELETE has only an
// old object, and an extension may be registered for other kinds than pods.
func DecodePod(req admission.Request) (*corev1.Pod, error) {
	if len(req.Object.Raw) == 0 || string(req.Object.Raw) == "null" {
		return nil, nil
	}
	if req.Kind.Kind != "" && (req.Kind.Group != "" || req.Kind.Kind != "Pod") {
		return nil, nil
	}
	pod := &corev1.Pod{}
	if err := decode.Into(req.Object.Raw, pod); err != nil {
		return nil, fmt.Errorf("the request's object is not a pod: %w", err)
	}
	return pod, nil
}

// PatchFromPod answers a request with the difference between the pod it carries and pod.
func PatchFromPod(req admission.Request, pod *corev1.Pod) admission.Response {
	if pod == nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("eirinix: PatchFromPod: the pod is nil; check for that first, a request may carry none"))
	}
	before, err := DecodePod(req)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("eirinix: PatchFromPod: %w", err))
	}
	if before == nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("eirinix: PatchFromPod: the request carries no pod to compare with (%s of %s)", req.Operation, req.Kind.Kind))
	}
	ops, err := patch.Diff(req.Object.Raw, before, pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("eirinix: PatchFromPod: %w", err))
	}
	resp := admission.Allowed("")
	if len(ops) > 0 {
		jsonPatch := admissionv1.PatchTypeJSONPatch
		resp.Patches, resp.PatchType = ops, &jsonPatch
	}
	return resp
}
