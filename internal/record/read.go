package record

// This file reads recordings.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// Recorded is a call with its answer, as it was recorded.
type Recorded struct {
	File     string        // the file that it was read from
	Path     string        // of the URL, such as "/mutate/sidecar"; empty in a review from another tool
	Received time.Time     // zero in such a review
	Took     time.Duration // zero in such a review
	Status   int           // of the HTTP answer; 0 in such a review
	Version  string        // of the AdmissionReview that the API server sent, "v1" or "v1beta1"

	// Review is the request and, unless Error holds another answer, the response. It is v1, whatever Version is. Its
	// request is never nil.
	Review *admissionv1.AdmissionReview

	Redacted []string // the redacted places, such as "request.object.data"
	Error    string   // the text of an answer that was no review
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
		if files, err = recordingsIn(path); err != nil {
			return nil, err
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

func recordingsIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) == extension && !e.IsDir() {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
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
	r := Recorded{
		File:    path,
		Version: d.version(),
		Review:  &admissionv1.AdmissionReview{TypeMeta: d.TypeMeta, Request: d.Request, Response: d.Response},
	}
	r.Review.APIVersion = reviewGroup + "/v1"
	if d.Own != nil {
		r.Path, r.Received, r.Status, r.Error, r.Redacted = d.Own.Path, d.Own.Received, d.Own.Status, d.Own.Error, d.Own.Redacted
		if r.Took, err = time.ParseDuration(d.Own.Took); err != nil {
			return Recorded{}, fmt.Errorf("%s.took: %w", ownMember, err)
		}
	}
	return r, nil
}
