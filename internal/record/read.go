package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// Recorded is a call as it was answered.
type Recorded struct {
	File     string        // where it was read from
	Path     string        // of the URL, "/mutate/sidecar" say; empty in a review that another tool has kept
	Received time.Time     // zero there
	Took     time.Duration // zero there
	Status   int           // of the HTTP answer; 0 there
	Version  string        // in which the API server asked, "v1" or "v1beta1"

	// Review is the question and, unless Error says what came instead, the answer; as v1, whatever Version is. Its
	// request is never nil.
	Review *admissionv1.AdmissionReview

	Redacted []string // what was taken out, "request.object.data" say
	Error    string   // the text of an answer that was no review
}

// Read reads a recording, or all those of a folder (*.json), sorted by name and so by time. An AdmissionReview that another
// tool has kept is one, too, as long as it holds a request. A *.json that is none is an error that names it; other files
// of a folder, and folders in it, are passed over.
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
	entries, err := os.ReadDir(dir) // by name
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
