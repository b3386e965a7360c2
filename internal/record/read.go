package record

// This file reads recordings, and the AdmissionReviews of calls.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"code.cloudfoundry.org/eirinix/internal/snapshots"
)

// Recorded is a call with its answer, as it was recorded.
type Recorded struct {
	File    string // the file that it was read from
	Version string // of the AdmissionReview that the API server sent, "v1" or "v1beta1"

	// Review is the request and, unless Error holds another answer, the response. It is v1, whatever Version is. Its
	// request is never nil.
	Review *admissionv1.AdmissionReview
	Circumstances
}

// Circumstances are the data of a recording beside the review. A review from another tool has none of them.
type Circumstances struct {
	Path     string          `json:"path"` // of the URL, such as "/mutate/sidecar"
	Received time.Time       `json:"received"`
	Took     metav1.Duration `json:"took"`
	Status   int             `json:"status"`             // of the HTTP answer
	Error    string          `json:"error,omitempty"`    // the text of an answer that was no review
	TraceID  string          `json:"traceID,omitempty"`  // of the trace that the call belongs to, if it was traced
	Redacted []string        `json:"redacted,omitempty"` // the redacted places, such as "request.object.data"

	// Reads is what the steps have read beside the request (Call.Reader), redacted. It is empty if they could read but
	// did not, and nil if they could not, or if ReadsLeftOut holds the reason why it was not kept.
	Reads        []snapshots.Recorded `json:"reads,omitzero"`
	ReadsLeftOut string               `json:"readsLeftOut,omitempty"`
}

// Read reads a recording, or all recordings of a folder (*.json), sorted by name and so by time. An AdmissionReview
// from another tool is a recording, too, if it holds a request. A *.json file that is no recording is an error that
// names the file. Other files and subfolders of a folder are ignored.
func Read(path string) ([]Recorded, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	files := []string{path}
	if info.IsDir() {
		entries, err := os.ReadDir(path) // sorted by name
		if err != nil {
			return nil, err
		}
		files = nil
		for _, e := range entries {
			if filepath.Ext(e.Name()) == extension && !e.IsDir() {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
	}
	all := make([]Recorded, 0, len(files))
	for _, file := range files {
		one, err := readFile(file)
		if err != nil {
			return nil, fmt.Errorf("recording %s: %w", file, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func readFile(path string) (Recorded, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Recorded{}, err
	}
	d, err := parse(raw)
	if err != nil {
		return Recorded{}, err
	}
	if d.Request == nil {
		return Recorded{}, errors.New("the AdmissionReview holds no request")
	}
	r := Recorded{File: path, Version: d.GroupVersionKind().Version, Review: &d.AdmissionReview, Circumstances: d.Own}
	r.Review.APIVersion = reviewGroup + "/v1"
	return r, nil
}

// document is a recording, or an AdmissionReview of a call. The members are the same in either version.
type document struct {
	admissionv1.AdmissionReview `json:",inline"`
	Own                         Circumstances `json:"eirinix"`
}

const reviewGroup = "admission.k8s.io"

func parse(raw []byte) (*document, error) {
	d := &document{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, d); err != nil {
		return nil, failed("no review", "not an AdmissionReview: %v", err)
	}
	gvk := d.GroupVersionKind()
	if gvk.Kind != "AdmissionReview" || gvk.Group != reviewGroup || gvk.Version != "v1" && gvk.Version != "v1beta1" {
		return nil, failed("no review", "not an AdmissionReview of %s/v1 or v1beta1 but kind %q of apiVersion %q",
			reviewGroup, brief(d.Kind, maxName), brief(d.APIVersion, maxName))
	}
	return d, nil
}
