package admit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"runtime/debug"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/patch"
)

// call runs a step within its deadline and makes its answer fit for the wire. An error is a failure of the
// step, which failurePolicy decides on.
func (h *Handler) call(ctx context.Context, e *entry, req *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	type outcome struct {
		resp admission.Response
		err  error
	}
	// A step that ignores its context is left behind: it works on its own copy and its answer goes
	// nowhere, while the API server hears in time what happened.
	done := make(chan outcome, 1)
	go func() {
		// What stands when the step neither returns nor panics: runtime.Goexit, which t.FailNow calls too.
		out := outcome{err: errors.New("it ended its goroutine without an answer")}
		defer func() {
			if r := recover(); r != nil {
				logf.FromContext(ctx).Info("extension panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
				out = outcome{err: fmt.Errorf("panic: %v", r)}
			}
			done <- out
		}()
		out = outcome{resp: e.handle(ctx, admission.Request{AdmissionRequest: *req.DeepCopy()})}
	}()
	select {
	case out := <-done:
		if out.err != nil {
			return nil, out.err
		}
		return h.interpret(ctx, e, req, out.resp)
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer before the deadline (timeoutSeconds of the webhook): %w", context.Cause(ctx))
	}
}

// interpret gives a raw Response its meaning. The zero Response has nothing to say and lets the object
// through, as the example of EiriniX's README intends; not allowed with a code of 500 or more is
// admission.Errored, a failure; any other not allowed is a denial.
func (h *Handler) interpret(ctx context.Context, e *entry, req *admissionv1.AdmissionRequest, raw admission.Response) (*admissionv1.AdmissionResponse, error) {
	resp := raw.AdmissionResponse
	if isZero(raw) {
		e.sayNothings.Do(func() {
			logf.FromContext(ctx).Info("extension returned the zero Response, which lets the object through unchanged; return admission.Allowed to say so")
		})
		return &admissionv1.AdmissionResponse{Allowed: true}, nil
	}
	if !resp.Allowed {
		return deny(e, &resp)
	}
	return withPatch(req, raw)
}

func isZero(resp admission.Response) bool {
	return !resp.Allowed && reflect.DeepEqual(resp, admission.Response{})
}

func deny(e *entry, resp *admissionv1.AdmissionResponse) (*admissionv1.AdmissionResponse, error) {
	if resp.Result == nil {
		resp.Result = &metav1.Status{}
	} else {
		resp.Result = resp.Result.DeepCopy()
	}
	result := resp.Result
	if result.Code >= http.StatusInternalServerError {
		if result.Message == "" {
			return nil, fmt.Errorf("it returned code %d without a message", result.Code)
		}
		return nil, errors.New(result.Message)
	}
	if result.Code < http.StatusBadRequest {
		result.Code = http.StatusForbidden
	}
	if result.Message == "" {
		// The API server shows the message alone; the reason is where controller-runtime put it once.
		if result.Message = string(result.Reason); result.Message == "" {
			result.Message = fmt.Sprintf("denied by extension %q", e.name)
		}
	}
	result.Status = metav1.StatusFailure
	return withoutPatch(resp), nil
}

// withPatch puts the patch of an allowing Response on the wire, after seeing that it applies: the API
// server refuses the user's object when it does not, without naming us and whatever failurePolicy says.
func withPatch(req *admissionv1.AdmissionRequest, raw admission.Response) (*admissionv1.AdmissionResponse, error) {
	resp := raw.AdmissionResponse
	if len(raw.Patches) > 0 {
		if len(resp.Patch) > 0 {
			return nil, errors.New("it returned both Patches and Patch; fill one of them")
		}
		resp.Patch = patch.AppendJSON(nil, raw.Patches)
	}
	if len(resp.Patch) == 0 || string(resp.Patch) == "[]" {
		return withoutPatch(&resp), nil
	}
	if resp.PatchType != nil && *resp.PatchType != admissionv1.PatchTypeJSONPatch {
		return nil, fmt.Errorf("it returned a patch of type %q; the API server takes JSONPatch only", *resp.PatchType)
	}
	decoded, err := jsonpatch.DecodePatch(resp.Patch)
	if err != nil {
		return nil, fmt.Errorf("it returned a patch that is no JSON patch: %w", err)
	}
	if len(decoded) == 0 {
		return withoutPatch(&resp), nil
	}
	if req.Operation == admissionv1.Delete || req.Operation == admissionv1.Connect && len(req.Object.Raw) == 0 {
		return nil, fmt.Errorf("it returned a patch for %s, which carries no object to change", req.Operation)
	}
	if _, err := decoded.Apply(req.Object.Raw); err != nil {
		return nil, fmt.Errorf("it returned a patch that does not apply to the object: %w", err)
	}
	jsonPatch := admissionv1.PatchTypeJSONPatch
	resp.PatchType = &jsonPatch
	return &resp, nil
}

func withoutPatch(resp *admissionv1.AdmissionResponse) *admissionv1.AdmissionResponse {
	resp.Patch, resp.PatchType = nil, nil
	return resp
}
