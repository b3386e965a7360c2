package admit

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answer is the AdmissionReview that goes back, in the version of the question.
type answer struct {
	metav1.TypeMeta `json:",inline"`
	Response        *admissionv1.AdmissionResponse `json:"response"`
}

func writeAnswer(w http.ResponseWriter, question *envelope, resp *admissionv1.AdmissionResponse) error {
	resp.UID = question.request.UID
	body, plain := plainAnswer(question, resp)
	if !plain {
		var err error
		if body, err = json.Marshal(answer{TypeMeta: question.typeMeta, Response: resp}); err != nil {
			return err
		}
	}
	header := w.Header()
	header["Content-Type"] = jsonHeader
	header.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // the caller is gone: nobody is left to tell
	return nil
}

var jsonHeader = []string{contentTypeJSON}

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
