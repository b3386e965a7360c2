package main

// This file checks a peer's answer before the peer is measured.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kjson "sigs.k8s.io/json"
)

// checkAnswer returns an error if an answer does not do the job. It applies the patch with the library that the API
// server uses, and compares the result with the pod that the steps produce from the original. Nothing is timed before
// this check has passed.
func checkAnswer(s spec, status int, body []byte) error {
	r := s.review
	if status != http.StatusOK {
		return fmt.Errorf("HTTP %d: %s", status, bytes.TrimSpace(body))
	}
	var ar admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &ar); err != nil {
		return err
	}
	resp := ar.Response
	switch {
	case ar.APIVersion != "admission.k8s.io/v1" || ar.Kind != "AdmissionReview":
		return fmt.Errorf("answered with %s %s", ar.APIVersion, ar.Kind)
	case resp == nil || string(resp.UID) != r.uid:
		return errors.New("the answer is not to this request")
	case !resp.Allowed:
		return fmt.Errorf("denied: %v", resp.Result)
	}
	want := r.pod.DeepCopy()
	if s.selects == wanted {
		for _, step := range s.steps {
			step.edit(want)
		}
	}
	text := r.raw
	if len(resp.Patch) > 0 {
		if resp.PatchType == nil || *resp.PatchType != admissionv1.PatchTypeJSONPatch {
			return errors.New("a patch without patchType")
		}
		patch, err := jsonpatch.DecodePatch(resp.Patch)
		if err != nil {
			return err
		}
		if text, err = patch.Apply(r.raw); err != nil {
			return fmt.Errorf("the patch does not apply: %w", err)
		}
	}
	got := &corev1.Pod{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, got); err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(got, want) {
		return errors.New("the patched pod is not what the steps make of it")
	}
	return nil
}
