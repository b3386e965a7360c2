package admit

// This file checks the headers of a request, and decodes AdmissionReviews that are not plain JSON.

import (
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

const (
	reviewKind       = "AdmissionReview"
	reviewGroup      = "admission.k8s.io"
	contentTypeJSON  = "application/json"
	maxHeaderTimeout = 30 * time.Second // the API's bound on timeoutSeconds
	defaultTimeout   = 10 * time.Second // the API's default for timeoutSeconds

	// longestUID bounds the uid that a caller can add to the answer. An API server's uid has 36 bytes.
	longestUID = 253
)

// review is an AdmissionReview of either version. v1 and v1beta1 requests have the same members, and the answers do not
// differ in the fields that are sent.
type review struct {
	metav1.TypeMeta `json:",inline"`
	Request         *request `json:"request,omitempty"`
}

// request is an AdmissionRequest whose objects are parts of the text that it was read from, because they can be large.
type request struct {
	admissionv1.AdmissionRequest `json:",inline"`

	Object    part `json:"object,omitempty"`
	OldObject part `json:"oldObject,omitempty"`
	Options   part `json:"options,omitempty"`
}

// part holds the text of a RawExtension without a copy. The decoder passes a part of its own text, which nothing
// changes.
type part []byte

func (p *part) UnmarshalJSON(text []byte) error {
	if string(text) != "null" {
		*p = text[:len(text):len(text)]
	}
	return nil
}

// refusal is the error for a request that no step sees. It holds the reason and the HTTP status of the answer, which is
// 4xx for a mistake of the caller.
type refusal struct {
	status int
	reason string
}

func (r *refusal) Error() string { return r.reason }

// refuse returns a refusal. It bounds the reason, because that can contain a client's text, and is sent back and
// logged.
func refuse(status int, format string, args ...any) error {
	const most = 500
	reason := fmt.Sprintf(format, args...)
	if len(reason) > most {
		reason = strings.ToValidUTF8(reason[:most], "") + "..."
	}
	return &refusal{status: status, reason: reason}
}

// checkHeader refuses a request that cannot be an AdmissionReview, before its body is read.
func checkHeader(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return refuse(http.StatusMethodNotAllowed, "method %s: send an AdmissionReview with POST", r.Method)
	}
	if given := r.Header.Get("Content-Type"); given != contentTypeJSON {
		if media, _, err := mime.ParseMediaType(given); err != nil || media != contentTypeJSON {
			return refuse(http.StatusUnsupportedMediaType, "Content-Type %q: send %s", given, contentTypeJSON)
		}
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return refuse(http.StatusUnsupportedMediaType, "Content-Encoding %q: send the body uncompressed", encoding)
	}
	return nil
}

func parseReview(body []byte) (*review, error) {
	rev := &review{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, rev); err != nil {
		return nil, refuse(http.StatusBadRequest, "the body is not an AdmissionReview: %v", err)
	}
	gv := rev.GroupVersionKind()
	if gv.Group != reviewGroup || gv.Kind != reviewKind || (gv.Version != "v1" && gv.Version != "v1beta1") {
		return nil, refuse(http.StatusBadRequest, "the body is a %s of %q; send an AdmissionReview of %s/v1 or v1beta1", orNothing(rev.Kind), rev.APIVersion, reviewGroup)
	}
	req := rev.Request
	if req == nil {
		return nil, refuse(http.StatusBadRequest, "the AdmissionReview holds no request")
	}
	switch {
	case req.UID == "":
		return nil, refuse(http.StatusBadRequest, "the AdmissionReview's request has no uid")
	case len(req.UID) > longestUID:
		return nil, refuse(http.StatusBadRequest, "the AdmissionReview's uid has %d bytes; send one of at most %d", len(req.UID), longestUID)
	}
	switch req.Operation {
	case admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect:
	default:
		return nil, refuse(http.StatusBadRequest, "the AdmissionReview's operation is %q; it must be CREATE, UPDATE, DELETE or CONNECT", req.Operation)
	}
	req.AdmissionRequest.Object.Raw, req.AdmissionRequest.OldObject.Raw, req.AdmissionRequest.Options.Raw = req.Object, req.OldObject, req.Options
	return rev, nil
}

func orNothing(kind string) string {
	if kind == "" {
		return "document without kind"
	}
	return kind
}

// requestTimeout returns how long the API server waits for the answer: the timeout that it puts in the URL.
func requestTimeout(r *http.Request) time.Duration {
	given, plain := strings.CutPrefix(r.URL.RawQuery, "timeout=") // as the API server writes it
	if !plain || strings.ContainsAny(given, "&%+;") {
		given = r.URL.Query().Get("timeout")
	}
	if d, err := time.ParseDuration(given); err == nil && d > 0 {
		return min(d, maxHeaderTimeout)
	}
	if s, err := strconv.Atoi(given); err == nil && s > 0 {
		return min(time.Duration(s)*time.Second, maxHeaderTimeout)
	}
	return defaultTimeout
}

// margin returns the part of the timeout that is reserved for the way back. An answer that names the slow extension is
// worth more than the API server's "context deadline exceeded".
func margin(timeout time.Duration) time.Duration {
	return min(max(timeout/20, 20*time.Millisecond), 500*time.Millisecond, timeout/2)
}
