package admit

// This file runs steps that make their own patch, and interprets their Responses.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/patch"
)

// HandleFunc is a step that makes its own patch. It can return a raw Response in any of the forms that users write. The
// chain interprets all of them.
type HandleFunc func(context.Context, admission.Request) admission.Response

// handle runs such a step on a copy of the request, and applies its Response to the call.
func (k *call) handle(i int, x *Exchange) error {
	s := &k.Steps[i]
	raw, err := k.object.json()
	if err != nil {
		return err
	}
	// The last step can get the text itself, because a hash shows whether it has written into the text. A step that can
	// be left behind alone gets a copy, and so does a step that other steps follow.
	lent := i == len(k.Steps)-1 && !k.Reinvoke && !s.Ignore && s.Timeout == 0
	req := admission.Request{AdmissionRequest: k.requestWith(raw, lent)}
	run := s.Pods.begin(k, i, &req)
	if run == nil && lent {
		req.Object.Raw = bytes.Clone(raw)
	}
	defer run.end()
	var resp admission.Response
	if err := k.attempt(i, task{step: s, handle: func(ctx context.Context) { resp = s.Handle(ctx, req) }}); err != nil {
		return err
	}
	if isZero(resp) {
		k.sayNothings[i].Do(func() {
			k.blaming(k.log, s.Name).Info("extension returned the zero Response, which lets the object through unchanged; return admission.Allowed to say so")
		})
		return nil
	}
	for _, w := range resp.Warnings {
		x.Warn(w)
	}
	for key, value := range resp.AuditAnnotations {
		x.Audit(key, value)
	}
	return k.interpret(s, run, resp)
}

// interpret applies a raw Response. It never gets the zero Response: handle lets the object through, as the example in
// EiriniX's README intends. A Response that is not allowed is a failure if its code is 500 or more, as from
// admission.Errored. Otherwise it is a denial.
func (k *call) interpret(s *Step, run *podRun, resp admission.Response) error {
	if resp.Allowed {
		if made, pod, ok := run.isAnswered(resp); ok {
			k.object.adopt(made, pod)
			return nil
		}
		return k.applyPatch(run, resp)
	}
	if resp.Result == nil {
		resp.Result = &metav1.Status{}
	}
	if resp.Result.Code >= http.StatusInternalServerError {
		if resp.Result.Message == "" {
			return fmt.Errorf("it returned code %d without a message", resp.Result.Code)
		}
		return errors.New(resp.Result.Message)
	}
	return &denial{status: fitStatus(s.Name, *resp.Result)}
}

func isZero(resp admission.Response) bool {
	return !resp.Allowed && reflect.DeepEqual(resp, admission.Response{})
}

// requestWith copies the request, with the object as the steps before have left it. If lent is true, the object is the
// text itself and not a copy.
func (k *call) requestWith(raw []byte, lent bool) admissionv1.AdmissionRequest {
	req := *k.request
	req.Object.Raw = nil // the object is copied once, below
	req = *req.DeepCopy()
	switch {
	case absent(raw):
	case lent:
		req.Object.Raw = raw[:len(raw):len(raw)] // an append copies
	default:
		req.Object.Raw = bytes.Clone(raw)
	}
	return req
}

// applyPatch applies a patch that the step has written.
func (k *call) applyPatch(run *podRun, resp admission.Response) error {
	operations := resp.Patch
	if len(resp.Patches) > 0 {
		if len(operations) > 0 {
			return errors.New("it returned both Patches and Patch; fill one of them")
		}
		operations = patch.AppendJSON(nil, resp.Patches)
	}
	if len(operations) == 0 {
		return nil
	}
	if resp.PatchType != nil && *resp.PatchType != admissionv1.PatchTypeJSONPatch {
		return fmt.Errorf("it returned a patch of type %q; the API server takes JSONPatch only", *resp.PatchType)
	}
	if run.isOverwritten() { // no text is left to apply it to, so the API server decides on it
		return k.object.pass(operations)
	}
	if !k.object.isAbsent() {
		if err := k.object.apply(operations); err != nil || run == nil {
			return err
		}
		if _, err := k.object.view(podType, newPod); err != nil {
			return fmt.Errorf("its patch makes an object that the API server cannot read: %w", err)
		}
		return nil
	}
	if _, count, err := patch.Apply([]byte("{}"), operations); err == nil && count == 0 {
		return nil
	}
	return fmt.Errorf("it returned a patch for %s, which carries no object to change", k.request.Operation)
}
