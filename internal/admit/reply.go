package admit

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answer is the AdmissionReview that goes back, in the version of the question.
type answer struct {
	metav1.TypeMeta `json:",inline"`
	Response        *admissionv1.AdmissionResponse `json:"response"`
}

// answerGrace is how long a client may take to read a short answer; a long one may take as long as slowRate says
// beside it. An API server reads at once.
const answerGrace = 4 * time.Second

// shortAnswer is what net/http keeps in its own buffer until the handler has returned, and sends as one piece: such an
// answer holds nothing up but its own connection, whose number is bounded.
const shortAnswer = 2 << 10

// A reply is an answer that is ready to be sent. It holds nothing of the call.
type reply struct {
	status  int
	kind    []string // Content-Type
	text    []byte
	offline bool // there is no connection whose time is to be bounded
}

func encodeAnswer(question *envelope, resp *admissionv1.AdmissionResponse) (reply, error) {
	resp.UID = question.request.UID
	if text, plain := plainAnswer(question, resp); plain {
		return reply{status: http.StatusOK, kind: jsonHeader, text: text}, nil
	}
	text, err := json.Marshal(answer{TypeMeta: question.typeMeta, Response: resp})
	return reply{status: http.StatusOK, kind: jsonHeader, text: text}, err
}

// textReply is an answer that is no AdmissionReview.
func textReply(status int, message string) reply {
	return reply{status: status, kind: textHeader, text: []byte(message + "\n")}
}

// statusReply is an answer whose message an API server would not read out of plain text: it does so for codes from
// 500 on only.
func statusReply(status int, reason metav1.StatusReason, message string) reply {
	text, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(status), Reason: reason, Message: message,
	})
	if err != nil {
		return textReply(status, message)
	}
	return reply{status: status, kind: jsonHeader, text: text}
}

var (
	jsonHeader = []string{contentTypeJSON}
	textHeader = []string{"text/plain; charset=utf-8"}
)

// write sends the answer. How long a client may take to read a long one is bounded here, because a server has no bound of
// its own.
func (a reply) write(w http.ResponseWriter) {
	header := w.Header()
	header["Content-Type"] = a.kind
	if a.status != http.StatusOK {
		header.Set("X-Content-Type-Options", "nosniff")
	}
	header.Set("Content-Length", strconv.Itoa(len(a.text)))
	connection := http.NewResponseController(w)
	bounded := !a.offline && len(a.text) > shortAnswer && connection.SetWriteDeadline(time.Now().Add(a.patience())) == nil
	w.WriteHeader(a.status)
	_, err := w.Write(a.text)
	if bounded && err == nil && connection.Flush() == nil {
		_ = connection.SetWriteDeadline(time.Time{}) // other handlers answer on the same connection
	}
}

// patience is how long the client may take to read the answer.
func (a reply) patience() time.Duration {
	return answerGrace + time.Duration(len(a.text))*time.Second/slowRate
}

// plainAnswer writes what json.Marshal would for an answer that allows and says nothing beside, which most do.
func plainAnswer(question *envelope, resp *admissionv1.AdmissionResponse) ([]byte, bool) {
	if !resp.Allowed || resp.Result != nil || len(resp.AuditAnnotations)+len(resp.Warnings) > 0 || !plainWord(string(resp.UID)) {
		return nil, false
	}
	body := make([]byte, 0, 192+base64.StdEncoding.EncodedLen(len(resp.Patch)))
	body = append(body, `{"kind":"AdmissionReview","apiVersion":"`...)
	body = append(body, question.typeMeta.APIVersion...) // one of two
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

// plainWord tells whether a word stands in JSON as it is, as every uid of an API server does.
func plainWord(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}
