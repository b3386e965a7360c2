package admit

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
)

// FuzzEnvelope holds the cut against the decoder: the same refusals in the same words, the same values, and
// never a byte of the body changed.
func FuzzEnvelope(f *testing.F) {
	review := string(arrivedReview(1, 1))
	for _, seed := range []string{
		review, review[:len(review)/2], review + "x", review + " \n", " " + review, "", "{}", "null", "[]", `"x"`, "\xff", "\x00",
		strings.Replace(review, "/v1", "/v1beta1", 1),
		strings.Replace(review, `"request"`, `"Request"`, 1),
		strings.Replace(review, `"request"`, `"\u0072equest"`, 1),
		strings.Replace(review, `"uid"`, `"uid":"first","uid"`, 1),
		strings.Replace(review, `"uid"`, `"Uid":"other case","uid"`, 1),
		strings.Replace(review, `"uid"`, "\"\xff\":1,\"uid\"", 1),
		strings.Replace(review, `705ab4f5`, "\xff\\ud800é", 1),
		strings.Replace(review, `"object":`, `"object":null,"object":`, 1),
		strings.Replace(review, `"object":`, `"object":1e5,"x":`, 1),
		strings.Replace(review, `"object":`, "\"object\" :\t[ tru ]\n,\"x\":", 1),
		strings.Replace(review, `"object":`, `"object":`+strings.Repeat(`[{"a":`, 70)+"-0.5E-3"+strings.Repeat("}]", 70)+`,"x":`, 1),
		strings.Replace(review, `"dryRun":false`, `"dryRun":null,"options":true`, 1),
		strings.Replace(review, `"groups":[`, `"groups":[null,`, 1),
		strings.Replace(review, `"extra":{`, `"extra":{"a":null,"b":[],"b":["x"],`, 1),
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","userInfo":null,"kind":null,"requestKind":{},"requestResource":null,"namespace":null}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","userInfo":{"groups":[],"extra":{}},"kind":{"Kind":1,"kind":2}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		g := gomega.NewWithT(t)
		before := bytes.Clone(body)
		want, refused := parseReview(body)
		cut := cutEnvelope(body)
		if refused != nil {
			g.Expect(cut).To(gomega.BeNil(), "accepted what the decoder refuses: %v", refused)
		}
		got, err := parseEnvelope(body)
		if refused != nil {
			g.Expect(err).To(gomega.MatchError(refused.Error()))
			return
		}
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(got.typeMeta).To(gomega.Equal(want.TypeMeta))
		g.Expect(got.request).To(gomega.Equal(*want.Request))
		g.Expect(body).To(gomega.Equal(before))
		if cut != nil {
			for _, raw := range rawsOf(&got.request) {
				_ = append(raw, "overwritten"...)
			}
			g.Expect(body).To(gomega.Equal(before), "an append to a raw object writes into the body")
		}
	})
}

func rawsOf(req *admissionv1.AdmissionRequest) [][]byte {
	return [][]byte{req.Object.Raw, req.OldObject.Raw, req.Options.Raw}
}

// FuzzSkipValue holds the scanner against the decoder's: it accepts exactly what is well-formed.
func FuzzSkipValue(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, `{"a":[1,2.5,-0,1e9,1E-2,true,false,null,"x",{"b":{}}]}`, ` [ 1 , { "a" : [ ] } ] `, `[1,]`, `{"a":1,}`, `{,}`, `[,1]`,
		`{"a"}`, `{"a" 1}`, `{1:2}`, `{"a":}`, `[}`, `{]`, `01`, `-`, `1.`, `.5`, `1e`, `1e+`, `+1`, `tru`, `nulll`, `"\u12g4"`, `"\x"`, `"`, `"\`,
		`"\u00e9\n\/"`, "\"a\tb\"", "\"\x7f\xff\"", `"12345678"`, `"1234567\"8"`, "\"1234567\x1f\"", "[\v1]", `[[[[[[]]]]]]`, `[{}{}]`, `"a""b"`, `{"a":1"b":2}`,
		strings.Repeat("[", 130) + strings.Repeat("]", 130), strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65), strings.Repeat("[", 64) + "{" + strings.Repeat("]", 64),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		g := gomega.NewWithT(t)
		start := skipSpace(text, 0)
		if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > maxNesting {
			return // may be left to the decoder
		}
		end := skipValue(text, start, maxNesting)
		accepted := end >= 0 && skipSpace(text, end) == len(text)
		g.Expect(accepted).To(gomega.Equal(json.Valid(text)), "%q", text)
	})
}
