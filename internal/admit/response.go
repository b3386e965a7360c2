package admit

// This file interprets the Responses of steps that make their own patch, builds the answers to requests and writes
// them.

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/patch"
)

// handle runs a step that makes its own patch on a copy of the request, and applies its Response to the object.
func (r *run) handle(i int, call *Call) error {
	s := &r.Steps[i]
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
		r.zeroResponses[i].Do(func() {
			r.blaming(r.log, s.Name).Info(
				"extension returned the zero Response, so the object is admitted unchanged; return admission.Allowed instead")
		})
		return nil
	}
	for _, w := range resp.Warnings {
		call.Warn(w)
	}
	for key, value := range resp.AuditAnnotations {
		call.Annotate(key, value)
	}
	return r.interpret(s, onPod, resp)
}

// failure returns the error that a raw Response reports, as from admission.Errored: one that is not allowed, with a code
// of 500 or more.
func failure(resp admission.Response) error {
	if resp.Allowed || resp.Result == nil || resp.Result.Code < http.StatusInternalServerError {
		return nil
	}
	if resp.Result.Message == "" {
		return fmt.Errorf("it returned code %d without a message", resp.Result.Code)
	}
	return errors.New(resp.Result.Message)
}

// interpret applies a raw Response that reports no failure. It never gets the zero Response: handle lets the object
// through, as the example in EiriniX's README intends.
func (r *run) interpret(s *Step, onPod *podRun, resp admission.Response) error {
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

// responseReview is the AdmissionReview that is sent back, in the version of the request.
type responseReview struct {
	metav1.TypeMeta `json:",inline"`
	Response        *admissionv1.AdmissionResponse `json:"response"`
}

// readGrace is how long a client can take to read a short answer. A long answer gets more time in addition, according
// to slowRate. An API server reads at once.
const readGrace = 4 * time.Second

// shortResponse is the size up to which net/http buffers an answer until the handler has returned, and then sends it as
// one piece. Such an answer delays only its own connection, and the number of connections is bounded.
const shortResponse = 2 << 10

// response is an answer that is ready to be sent. It references nothing of the call.
type response struct {
	status  int
	kind    []string // Content-Type
	text    []byte
	offline bool // there is no connection to set a deadline for
}

func encodeResponse(rev *review, resp *admissionv1.AdmissionResponse) (response, error) {
	resp.UID = rev.request.UID
	if text, plain := plainResponse(rev, resp); plain {
		return response{status: http.StatusOK, kind: jsonHeader, text: text}, nil
	}
	text, err := json.Marshal(responseReview{TypeMeta: rev.typeMeta, Response: resp})
	return response{status: http.StatusOK, kind: jsonHeader, text: text}, err
}

// textResponse returns an answer that is not an AdmissionReview.
func textResponse(status int, message string) response {
	return response{status: status, kind: textHeader, text: []byte(message + "\n")}
}

// statusResponse returns an answer in the form of a Status. An API server reads a message from plain text only if the
// code is 500 or more.
func statusResponse(status int, reason metav1.StatusReason, message string) response {
	text, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(status), Reason: reason, Message: message,
	})
	if err != nil {
		return textResponse(status, message)
	}
	return response{status: status, kind: jsonHeader, text: text}
}

var (
	jsonHeader = []string{contentTypeJSON}
	textHeader = []string{"text/plain; charset=utf-8"}
)

// write sends the answer. It bounds the time that a client can take to read a long answer, because a server has no
// bound of its own.
func (r response) write(w http.ResponseWriter) {
	header := w.Header()
	header["Content-Type"] = r.kind
	if r.status != http.StatusOK {
		header.Set("X-Content-Type-Options", "nosniff")
	}
	header.Set("Content-Length", strconv.Itoa(len(r.text)))
	connection := http.NewResponseController(w)
	bounded := !r.offline && len(r.text) > shortResponse &&
		connection.SetWriteDeadline(time.Now().Add(r.readTimeout())) == nil
	w.WriteHeader(r.status)
	_, err := w.Write(r.text)
	if bounded && err == nil && connection.Flush() == nil {
		_ = connection.SetWriteDeadline(time.Time{}) // other handlers answer on the same connection
	}
}

// readTimeout returns how long the client can take to read the answer.
func (r response) readTimeout() time.Duration {
	return readGrace + time.Duration(len(r.text))*time.Second/slowRate
}

// plainResponse returns the JSON that json.Marshal would write, for an answer that allows and has no warnings or
// annotations. Most answers are like that. It returns false for all others.
func plainResponse(rev *review, resp *admissionv1.AdmissionResponse) ([]byte, bool) {
	if !resp.Allowed || resp.Result != nil ||
		len(resp.AuditAnnotations)+len(resp.Warnings) > 0 || !plainWord(string(resp.UID)) {
		return nil, false
	}
	body := make([]byte, 0, 192+base64.StdEncoding.EncodedLen(len(resp.Patch)))
	body = append(body, `{"kind":"AdmissionReview","apiVersion":"`...)
	body = append(body, rev.typeMeta.APIVersion...) // one of two versions
	body = append(body, `","response":{"uid":"`...)
	body = append(body, resp.UID...)
	body = append(body, `","allowed":true`...)
	if len(resp.Patch) > 0 {
		body = append(body, `,"patch":"`...)
		body = base64.StdEncoding.AppendEncode(body, resp.Patch)
		body = append(body, `","patchType":"JSONPatch"`...)
	}
	return append(body, "}}"...), true
}

// plainWord reports whether a word is written in JSON without escapes. This holds for every uid of an API server.
func plainWord(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}
