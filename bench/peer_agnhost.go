package main

// This file holds the peer in the style of Kubernetes' own test webhook.

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"code.cloudfoundry.org/eirinix/internal/patch"
)

// agnhost is the style of Kubernetes' own test webhook, and of the many webhooks that grew from it. It uses the
// universal deserializer for the review and again for the pod, and a prepared patch. The patch fits only one pod. So
// it shows the cost of decoding alone, and is no usable webhook.
func agnhost(s spec) (http.Handler, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{admissionv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	deserializer := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	canned, err := cannedPatch(s)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Content-Type") != "application/json" {
			http.Error(w, "want a body of application/json", http.StatusBadRequest)
			return
		}
		obj, gvk, err := deserializer.Decode(body, nil, nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		asked, ok := obj.(*admissionv1.AdmissionReview)
		if !ok {
			http.Error(w, fmt.Sprintf("got a %T", obj), http.StatusBadRequest)
			return
		}
		pod := corev1.Pod{}
		if _, _, err := deserializer.Decode(asked.Request.Object.Raw, nil, &pod); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply := &admissionv1.AdmissionReview{Response: &admissionv1.AdmissionResponse{UID: asked.Request.UID, Allowed: true}}
		reply.SetGroupVersionKind(*gvk)
		if pod.Labels[selectLabel] == s.selects {
			jsonPatch := admissionv1.PatchTypeJSONPatch
			reply.Response.Patch, reply.Response.PatchType = canned, &jsonPatch
		}
		text, err := json.Marshal(reply)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	}), nil
}

// cannedPatch returns the patch that a developer would have written by hand for the one pod of a spec.
func cannedPatch(s spec) ([]byte, error) {
	if s.review == nil {
		return nil, fmt.Errorf("a canned patch is for one review, and the spec names none")
	}
	after := s.review.pod.DeepCopy()
	for _, step := range s.steps {
		step.edit(after)
	}
	ops, err := patch.Diff(s.review.raw, s.review.pod, after)
	if err != nil {
		return nil, err
	}
	return patch.AppendJSON(nil, ops), nil
}
