package apiserver

// This file encodes AdmissionReviews and verifies the responses.

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// reviews returns an AdmissionReview with the request, and an empty one for the response. Their version is the
// preferred one if the webhook knows it, else the first version that both sides know.
func reviews(preferred string, known []string, request *admissionv1.AdmissionRequest) (question, answer runtime.Object, err error) {
	if preferred != "" && slices.Contains(known, preferred) {
		known = []string{preferred}
	}
	for _, version := range known {
		switch version {
		case admissionv1.SchemeGroupVersion.Version:
			return &admissionv1.AdmissionReview{Request: request}, &admissionv1.AdmissionReview{}, nil
		case admissionv1beta1.SchemeGroupVersion.Version:
			old := &admissionv1beta1.AdmissionRequest{}
			raw, err := json.Marshal(request)
			if err == nil {
				err = json.Unmarshal(raw, old)
			}
			return &admissionv1beta1.AdmissionReview{Request: old}, &admissionv1beta1.AdmissionReview{}, err
		}
	}
	return nil, nil, errors.New("webhook does not accept known AdmissionReview versions (v1, v1beta1)")
}

// verify returns an error for a response that the API server would reject. v1beta1 has fewer rules, as in the API
// server.
func verify(uid types.UID, mutating bool, answer runtime.Object) (*admissionv1.AdmissionResponse, error) {
	if old, ok := answer.(*admissionv1beta1.AdmissionReview); ok {
		if old.Response == nil {
			return nil, errors.New("webhook response was absent")
		}
		r := old.Response
		resp := &admissionv1.AdmissionResponse{UID: r.UID, Allowed: r.Allowed, Result: r.Result, AuditAnnotations: r.AuditAnnotations, Warnings: r.Warnings}
		if mutating {
			resp.Patch = r.Patch
		}
		return resp, nil
	}
	review := answer.(*admissionv1.AdmissionReview)
	resp := review.Response
	if resp == nil {
		return nil, errors.New("webhook response was absent")
	}
	if resp.UID != uid {
		return nil, fmt.Errorf("expected response.uid=%q, got %q", uid, resp.UID)
	}
	if want := admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"); review.GroupVersionKind() != want {
		return nil, fmt.Errorf("expected webhook response of %v, got %v", want.String(), review.GroupVersionKind().String())
	}
	patch, patchType := len(resp.Patch) > 0, resp.PatchType != nil
	switch {
	case !mutating && patch:
		return nil, errors.New("validating webhook may not return response.patch")
	case !mutating && patchType:
		return nil, errors.New("validating webhook may not return response.patchType")
	case patch && !patchType:
		return nil, errors.New("webhook returned response.patch but not response.patchType")
	case !patch && patchType:
		return nil, errors.New("webhook returned response.patchType but not response.patch")
	case patchType && *resp.PatchType != admissionv1.PatchTypeJSONPatch:
		return nil, fmt.Errorf("unsupported patch type %q", *resp.PatchType)
	}
	return resp, nil
}

// refusedBy returns a denial as the user sees it.
func refusedBy(webhook string, result *metav1.Status) *rejection {
	if result == nil {
		result = &metav1.Status{}
	}
	shown := *result.DeepCopy()
	meant := Denial{Webhook: webhook, Code: shown.Code, Reason: shown.Reason, Message: shown.Message, Details: shown.Details}
	if shown.Code < http.StatusBadRequest {
		shown.Code = http.StatusBadRequest
		meant.Code = shown.Code
	}
	if shown.Status == "" || shown.Status == metav1.StatusSuccess {
		shown.Status = metav1.StatusFailure
	}
	by := fmt.Sprintf("admission webhook %q denied the request", webhook)
	switch {
	case shown.Message != "":
		shown.Message = by + ": " + shown.Message
	case shown.Reason != "":
		shown.Message = by + ": " + string(shown.Reason)
	default:
		shown.Message = by + " without explanation"
	}
	return &rejection{StatusError: &apierrors.StatusError{ErrStatus: shown}, meant: meant}
}
