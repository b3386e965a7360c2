package admit

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

// FuzzReview holds the cut against the decoder: the same refusals in the same words, the same values, and
// never a byte of the body changed.
func FuzzReview(f *testing.F) {
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
		strings.Replace(review, `"extra":{`, `"extra":{"a":null,"b":[],"c":["x"],"d":[""],"e":[],"f":[],"g":["é"],`, 1),
		strings.Replace(review, `"extra":{`, `"extra":{"a":[],"b":[],"c":[],"d":[],"e":[],"f":[],"g":[],"h":[],"i":[],`, 1),
		strings.Replace(review, `"extra":{`, `"extra":{"a":[1],`, 1),
		strings.Replace(review, `"userInfo":{`, `"userInfo":{"groups":"all",`, 1),
		strings.Replace(review, `"userInfo":{`, `"userInfo":{"uid":7,`, 1),
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","userInfo":null,"kind":null,"requestKind":{},"requestResource":null,"namespace":null}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","userInfo":{"groups":[],"extra":{}},"kind":{"Kind":1,"kind":2}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) { sameAsDecoded(t, body) })
}

// sameAsDecoded fails the test when the cut and the decoder differ on the body.
func sameAsDecoded(t testing.TB, body []byte) {
	t.Helper()
	before := bytes.Clone(body)
	want, refused := decodeReview(body)
	cut := scanReview(body)
	got, err := parseReview(body)
	if got != nil {
		got.parseUser()
	}
	switch {
	case refused != nil && cut != nil:
		t.Fatalf("accepted %q, which the decoder refuses: %v", body, refused)
	case refused != nil && (err == nil || err.Error() != refused.Error()):
		t.Fatalf("%q: %v rather than %v", body, err, refused)
	case refused != nil:
		return
	case err != nil:
		t.Fatalf("%q: %v", body, err)
	case got.typeMeta != want.typeMeta || !reflect.DeepEqual(got.request, want.request):
		t.Fatalf("%q: %+v rather than %+v", body, got.request, want.request)
	}
	for _, raw := range [][]byte{got.request.Object.Raw, got.request.OldObject.Raw, got.request.Options.Raw} {
		_ = append(raw, "overwritten"...)
	}
	if !bytes.Equal(body, before) {
		t.Fatalf("%q was changed into %q", before, body)
	}
}
