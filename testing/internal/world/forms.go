package world

// This file is the forms in which reviews arrive: of either version, with space, escapes and members of a later API, and without a
// Content-Length, as a proxy in between may send them. What a review means does not depend on them.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
)

// mostFormed is the size up to which reviews are sent in other forms, which take more room.
const mostFormed = 256 << 10

// form is how a review is written.
type form struct {
	version                        string
	spaced, escaped, late, chunked bool
}

// formed draws the form of a review. That of each object is another one.
func (s *apiServer) formed(h hook, a ask) form {
	rng := s.w.stream(fmt.Sprint("form ", h.path(), a.operation, a.called()), 0)
	f := form{version: "v1"}
	if rng.IntN(6) == 0 && slices.Contains(h.AdmissionReviewVersions, "v1beta1") {
		f.version = "v1beta1"
	}
	f.spaced, f.escaped, f.late, f.chunked = rng.IntN(8) == 0, rng.IntN(6) == 0, rng.IntN(6) == 0, rng.IntN(8) == 0
	return f
}

// apiVersion is that of a review.
func (f form) apiVersion() string { return "admission.k8s.io/" + f.version }

// write returns the text of a review in this form.
func (f form) write(text []byte) []byte {
	if len(text) > mostFormed {
		return text
	}
	if f.late {
		text = bytes.Replace(text, []byte(`"request":{`), []byte(`"later":["}"],"request":{"later":{"of":[1,"\"}"]},`), 1)
	}
	if f.escaped {
		text = escaped(text)
	}
	if f.spaced {
		var b bytes.Buffer
		if json.Indent(&b, text, " ", "\t") == nil {
			text = append(b.Bytes(), '\n')
		}
	}
	return text
}

// escaped writes a part of the letters in names and texts as escapes, in equal texts the same ones.
func escaped(text []byte) []byte {
	var b bytes.Buffer
	inside, n := false, 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"':
			inside, n = !inside, 0
		case inside && c == '\\':
			end := i + 2
			if text[i+1] == 'u' {
				end += 4
			}
			b.Write(text[i:end])
			i = end - 1
			continue
		case inside && ('a' <= c && c <= 'z' || c == '/'):
			if n++; n%5 == 2 {
				fmt.Fprintf(&b, `\u%04x`, c)
				continue
			}
		case inside && c >= utf8.RuneSelf:
			r, size := utf8.DecodeRune(text[i:])
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
			i += size - 1
			continue
		}
		b.WriteByte(c)
	}
	return b.Bytes()
}

// body returns a reader of a text. A request whose body is chunked does not know its length.
func (f form) body(text []byte) io.Reader {
	if f.chunked && len(text) < 4*mostFormed {
		return io.NopCloser(strings.NewReader(string(text)))
	}
	return bytes.NewReader(text)
}

// answers returns the response in an answer to a review of this form.
func (f form) answers(text []byte, to *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	var got admissionv1.AdmissionReview
	if err := json.Unmarshal(text, &got); err != nil {
		return nil, err
	}
	switch {
	case got.APIVersion != f.apiVersion() || got.Kind != "AdmissionReview":
		return nil, fmt.Errorf("expected webhook response of %s, Kind=AdmissionReview, got %s, Kind=%s", f.apiVersion(), got.APIVersion, got.Kind)
	case got.Response == nil || got.Response.UID != to.UID:
		return nil, errors.New("the answer is not one to this request")
	case len(got.Response.Patch) > 0 && (got.Response.PatchType == nil || *got.Response.PatchType != admissionv1.PatchTypeJSONPatch):
		return nil, errors.New("the answer has a patch without a type")
	}
	return got.Response, nil
}
