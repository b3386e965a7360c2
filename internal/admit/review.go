package admit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
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
)

// review is an AdmissionReview of either version: v1 and v1beta1 requests have the same members, and the
// answers differ in nothing that we send.
type review struct {
	metav1.TypeMeta `json:",inline"`
	Request         *admissionv1.AdmissionRequest `json:"request,omitempty"`
}

// refusal is a request that was not understood: an HTTP status of 4xx and what the caller did wrong.
type refusal struct {
	status int
	reason string
}

func (r *refusal) Error() string { return r.reason }

// refuse bounds the reason: a stranger's words may stand in it, and it is sent back and logged.
func refuse(status int, format string, args ...any) error {
	const most = 500
	reason := fmt.Sprintf(format, args...)
	if len(reason) > most {
		reason = strings.ToValidUTF8(reason[:most], "") + "..."
	}
	return &refusal{status: status, reason: reason}
}

// readReview reads and understands a request, or says with a refusal why not; it also gives its size in bytes. A body that has not arrived by
// the deadline is not waited for: nobody waits for the answer any more.
func readReview(w http.ResponseWriter, r *http.Request, maxBytes int64, deadline time.Time) (*envelope, int, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, 0, refuse(http.StatusMethodNotAllowed, "method %s: send an AdmissionReview with POST", r.Method)
	}
	if given := r.Header.Get("Content-Type"); given != contentTypeJSON {
		if media, _, err := mime.ParseMediaType(given); err != nil || media != contentTypeJSON {
			return nil, 0, refuse(http.StatusUnsupportedMediaType, "Content-Type %q: send %s", given, contentTypeJSON)
		}
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, 0, refuse(http.StatusUnsupportedMediaType, "Content-Encoding %q: send the body uncompressed", encoding)
	}
	body, err := readBody(w, r, maxBytes, deadline)
	if err != nil {
		return nil, 0, err
	}
	question, err := parseEnvelope(body)
	return question, len(body), err
}

func readBody(w http.ResponseWriter, r *http.Request, maxBytes int64, deadline time.Time) ([]byte, error) {
	tooLarge := func() error {
		return refuse(http.StatusRequestEntityTooLarge, "the request is larger than %d bytes (ManagerOptions.MaxRequestBytes)", maxBytes)
	}
	if r.ContentLength > maxBytes {
		return nil, tooLarge()
	}
	// A ResponseWriter without a connection has no deadline to set, and nothing to wait for.
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(deadline)
	var buf bytes.Buffer
	// Content-Length is only the caller's word: room for more than most objects take is made as it arrives.
	buf.Grow(int(min(max(r.ContentLength, 0), 1<<20)) + bytes.MinRead)
	if _, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, maxBytes)); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, tooLarge()
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			w.Header().Set("Connection", "close")
			return nil, refuse(http.StatusRequestTimeout, "the request did not arrive in full before its timeout")
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, refuse(http.StatusBadRequest, "the request ended before its Content-Length")
		}
		return nil, refuse(http.StatusBadRequest, "the request could not be read: %v", err)
	}
	_ = connection.SetReadDeadline(time.Time{}) // the next request has its own
	if buf.Len() == 0 {
		return nil, refuse(http.StatusBadRequest, "the request has no body; send an AdmissionReview")
	}
	return buf.Bytes(), nil
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
	if req.UID == "" {
		return nil, refuse(http.StatusBadRequest, "the AdmissionReview's request has no uid")
	}
	switch req.Operation {
	case admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect:
	default:
		return nil, refuse(http.StatusBadRequest, "the AdmissionReview's operation is %q; it must be CREATE, UPDATE, DELETE or CONNECT", req.Operation)
	}
	return rev, nil
}

func orNothing(kind string) string {
	if kind == "" {
		return "document without kind"
	}
	return kind
}

// requestTimeout is how long the API server waits for the answer: the timeout that it puts in the URL.
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

// margin is what of the timeout is kept for the way back: an answer that says which extension was slow is
// worth more than the API server's "context deadline exceeded".
func margin(timeout time.Duration) time.Duration {
	return min(max(timeout/20, 20*time.Millisecond), 500*time.Millisecond, timeout/2)
}
