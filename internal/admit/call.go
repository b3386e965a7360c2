package admit

import (
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

// HandleFunc is a step that makes its own patch. It may return a raw Response in any of the shapes that users
// write; the chain sorts them out.
type HandleFunc func(context.Context, admission.Request) admission.Response

// handle runs such a step on a copy of its own, and takes over what its Response says.
func (k *call) handle(i int, x *Exchange) error {
	s := &k.Steps[i]
	req := admission.Request{AdmissionRequest: *k.request.DeepCopy()}
	if !absent(k.object.raw) {
		req.Object.Raw = append([]byte(nil), k.object.raw...)
	}
	var resp admission.Response
	if err := k.attempt(i, task{step: s, handle: func(ctx context.Context) { resp = s.Handle(ctx, req) }}); err != nil {
		return err
	}
	if isZero(resp) {
		k.sayNothings[i].Do(func() {
			k.log.Info("extension returned the zero Response, which lets the object through unchanged; return admission.Allowed to say so", "step", s.Name)
		})
		return nil
	}
	for _, w := range resp.Warnings {
		x.Warn(w)
	}
	for key, value := range resp.AuditAnnotations {
		x.Audit(key, value)
	}
	return k.interpret(s, resp)
}

// interpret gives a raw Response its meaning. The zero Response has nothing to say and lets the object
// through, as the example of EiriniX's README intends; not allowed with a code of 500 or more is
// admission.Errored, a failure; any other not allowed is a denial.
func (k *call) interpret(s *Step, resp admission.Response) error {
	if resp.Allowed {
		return k.applyPatch(resp)
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

func (k *call) applyPatch(resp admission.Response) error {
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
	if absent(k.object.raw) {
		if isEmptyPatch(operations) {
			return nil
		}
		return fmt.Errorf("it returned a patch for %s, which carries no object to change", k.request.Operation)
	}
	return k.object.apply(operations)
}
