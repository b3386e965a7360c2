package admit

// This file builds the answers to requests and writes them.

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// readGrace is how long a client can take to read a short answer. A long answer gets more time in addition, according
// to slowRate. An API server reads at once.
const readGrace = 4 * time.Second

// shortResponse is the size up to which net/http buffers an answer until the handler has returned, and then sends it as
// one piece. Such an answer delays only its own connection, and the number of connections is bounded.
const shortResponse = 2 << 10

// response is an answer that is ready to be sent. It references nothing of the call.
type response struct {
	status int
	kind   []string // Content-Type
	text   []byte
}

// reviewResponse returns the AdmissionReview that is sent back, in the version of the request.
func reviewResponse(rev *review, resp *admissionv1.AdmissionResponse) response {
	resp.UID = rev.request.UID
	text, plain := plainResponse(rev, resp)
	if !plain {
		text, _ = json.Marshal(admissionv1.AdmissionReview{TypeMeta: rev.typeMeta, Response: resp}) // it holds nothing that can fail
	}
	return response{status: http.StatusOK, kind: jsonHeader, text: text}
}

// textResponse returns an answer that is not an AdmissionReview.
func textResponse(status int, message string) response {
	return response{status: status, kind: textHeader, text: []byte(message + "\n")}
}

// statusResponse returns an answer in the form of a Status. An API server reads a message from plain text only if the
// code is 500 or more.
func statusResponse(status int, reason metav1.StatusReason, message string) response {
	text, _ := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(status), Reason: reason, Message: message,
	}) // as above
	return response{status: status, kind: jsonHeader, text: text}
}

var (
	jsonHeader = []string{contentTypeJSON}
	textHeader = []string{"text/plain; charset=utf-8"}
)

// write sends the answer. It bounds the time that a client can take to read a long answer, because a server has no
// bound of its own. net/http takes the bound away after the request.
func (r response) write(w http.ResponseWriter) {
	header := w.Header()
	header["Content-Type"] = r.kind
	if r.status != http.StatusOK {
		header.Set("X-Content-Type-Options", "nosniff")
	}
	header.Set("Content-Length", strconv.Itoa(len(r.text)))
	if len(r.text) > shortResponse {
		within := readGrace + time.Duration(len(r.text))*time.Second/slowRate
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(within)) // a recorder has none
	}
	w.WriteHeader(r.status)
	_, _ = w.Write(r.text) // the client may be gone
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
