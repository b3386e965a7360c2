package record

// This file parses AdmissionReviews and recordings.

import (
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

const (
	reviewKind  = "AdmissionReview"
	reviewGroup = "admission.k8s.io"

	// ownMember is the member for data that has no field in a review.
	ownMember = "eirinix"
)

// document is a recording, or an AdmissionReview of a call. The members are the same in either version.
type document struct {
	metav1.TypeMeta `json:",inline"`
	Request         *admissionv1.AdmissionRequest  `json:"request"`
	Response        *admissionv1.AdmissionResponse `json:"response"`
	Own             *own                           `json:"eirinix"`
}

// own is the data of a recording beside the review.
type own struct {
	Path     string    `json:"path"`
	Received time.Time `json:"received"`
	Took     string    `json:"took"`
	Status   int       `json:"status"`
	Error    string    `json:"error,omitempty"`
	Redacted []string  `json:"redacted,omitempty"`
}

func parse(raw []byte) (*document, error) {
	d := &document{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, d); err != nil {
		return nil, failed("no review", "not an AdmissionReview: %v", err)
	}
	if d.Kind != reviewKind || d.version() == "" {
		return nil, failed("no review", "not an AdmissionReview of %s/v1 or v1beta1 but kind %q of apiVersion %q", reviewGroup, brief(d.Kind), brief(d.APIVersion))
	}
	return d, nil
}

// parseQuestion is parse for valid JSON with a request. It only cuts out the objects, which are most of the text.
func parseQuestion(question text) (*document, error) {
	var edits []edit
	raws := map[string][]byte{}
	for m := range question.members(question.all()) {
		if question.word(m.name) != "request" {
			continue
		}
		for r := range question.members(m.value) {
			switch name := question.word(r.name); name {
			case "object", "oldObject", "options":
				if !question.isNull(r.value) { // the decoder ignores null
					raws[name] = question.at(r.value)
					edits = append(edits, edit{span: r.value, by: "null"})
				}
			}
		}
	}
	d, err := parse(question.edited(edits))
	if err != nil {
		return nil, err
	}
	if d.Request == nil {
		return nil, failed("no review", "the AdmissionReview holds no request")
	}
	d.Request.Object.Raw, d.Request.OldObject.Raw, d.Request.Options.Raw = raws["object"], raws["oldObject"], raws["options"]
	return d, nil
}

// version returns v1 or v1beta1; empty for any other.
func (d *document) version() string {
	gv := d.GroupVersionKind().GroupVersion()
	if gv.Group != reviewGroup || gv.Version != "v1" && gv.Version != "v1beta1" {
		return ""
	}
	return gv.Version
}
