package chain

// This file runs steps that make their own patch, and interprets their Responses.

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/patch"
)

// handle runs a step that makes its own patch on a copy of the request, and applies its Response to the object.
func (r *run) handle(i int, call *Call) error {
	s := r.steps[i]
	raw, err := r.object.json()
	if err != nil {
		return err
	}
	req := admission.Request{AdmissionRequest: r.requestWith(raw)}
	onPod, err := s.Pods.begin(r, i, &req)
	if err != nil {
		return r.misread(i, newPod, err)
	}
	defer onPod.end()
	var resp admission.Response
	err = r.attempt(i, task{run: func(ctx context.Context, _ *Call, _, _ runtime.Object) error {
		resp = s.Handle(ctx, req)
		return failure(resp)
	}})
	if err != nil {
		return err
	}
	if isZero(resp) {
		s.warned.Do(func() {
			r.blaming(r.log, s.Name).Info(
				"extension returned the zero Response, so the object is admitted unchanged; return admission.Allowed instead")
		})
		return nil
	}
	for _, w := range resp.Warnings {
		call.Warn(w)
	}
	for key, value := range resp.AuditAnnotations {
		call.Audit(key, value)
	}
	return r.interpret(s, onPod, resp)
}

// failure returns the error that a raw Response reports, as from admission.Errored: one that is not allowed, with a code
// of 500 or more.
func failure(resp admission.Response) error {
	if resp.Allowed || resp.Result == nil || resp.Result.Code < codeInternalError {
		return nil
	}
	if resp.Result.Message == "" {
		return fmt.Errorf("it returned code %d without a message", resp.Result.Code)
	}
	return errors.New(resp.Result.Message)
}

// interpret applies a raw Response that reports no failure. It never gets the zero Response: handle lets the object
// through, as the example in EiriniX's README intends.
func (r *run) interpret(s *step, onPod *podRun, resp admission.Response) error {
	if resp.Allowed {
		if made, pod, ok := onPod.isAnswered(resp); ok {
			r.object.adopt(made, pod)
			return nil
		}
		return r.applyPatch(onPod, resp)
	}
	if resp.Result == nil {
		resp.Result = &metav1.Status{}
	}
	return &denial{status: fitStatus(s.Name, *resp.Result)}
}

func isZero(resp admission.Response) bool {
	return !resp.Allowed && reflect.DeepEqual(resp, admission.Response{})
}

// requestWith copies the request, with the object as the steps before have left it.
func (r *run) requestWith(raw []byte) admissionv1.AdmissionRequest {
	req := *r.request
	if req.Object.Raw = raw; absent(raw) {
		req.Object.Raw = nil
	}
	return *req.DeepCopy()
}

// applyPatch applies a patch that the step has written.
func (r *run) applyPatch(onPod *podRun, resp admission.Response) error {
	operations := resp.Patch
	if len(resp.Patches) > 0 {
		if len(operations) > 0 {
			return errors.New("it returned both Patches and Patch; set only one of them")
		}
		operations = patch.AppendJSON(nil, resp.Patches)
	}
	if len(operations) == 0 {
		return nil
	}
	if resp.PatchType != nil && *resp.PatchType != admissionv1.PatchTypeJSONPatch {
		return fmt.Errorf("it returned a patch of type %q; the API server takes JSONPatch only", *resp.PatchType)
	}
	if !r.object.isAbsent() {
		if err := r.object.apply(operations); err != nil || onPod == nil {
			return err
		}
		if _, err := r.object.view(podType, newPod); err != nil {
			return fmt.Errorf("its patch makes an object that the API server cannot read: %w", err)
		}
		return nil
	}
	if _, count, err := patch.Apply([]byte("{}"), operations); err == nil && count == 0 {
		return nil
	}
	return fmt.Errorf("it returned a patch for %s, which carries no object to change", r.request.Operation)
}
