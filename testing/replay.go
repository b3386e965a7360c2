package eirinixtest

// This file sends recorded admission requests to a Harness and compares the answers with the recorded ones.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
	"code.cloudfoundry.org/eirinix/internal/diff"
	"code.cloudfoundry.org/eirinix/internal/record"
	"code.cloudfoundry.org/eirinix/internal/snapshots"
)

// Replayed is a recorded call and its result now. The result matchers accept it as they accept a Result.
type Replayed struct {
	*Result         // the result now
	Was     *Result // the recorded result; nil for a review that another tool stored without a response
	Moved   bool    // no webhook is called on Path any more

	File     string        // the file with the recording
	Path     string        // the recorded URL path; empty for a review that another tool stored
	Received time.Time     // zero for a review that another tool stored
	Took     time.Duration // the recorded duration; zero for a review that another tool stored
	Redacted []string      // fields that the recorder replaced with a placeholder, such as request.object.data

	// ReadsLeftOut is the reason why the recording lacks the objects that the steps have read. It is empty if the
	// recording has them, or if the steps could read none. Without them, the steps now read the objects of the Harness.
	ReadsLeftOut string
}

// Replay sends the calls that recording.Start has written into a file or folder, one after another, to the
// extensions of the Harness. Each call goes unchanged to the webhook that was called. Rules, selectors and conditions
// are not evaluated again, because the API server did so before the call. Calls of webhooks that no longer exist, and
// AdmissionReviews that other tools have stored, are sent as requests to the webhooks that match them. The test fails
// if there is no recording, or if one cannot be read.
//
// Steps with Settings.Reads read the objects that those of the recorded call have read, and nothing else: an object
// that the call did not read is missing. Transform and Index run again, on objects that Transform has run on. If the recording
// has no reads, the steps read the objects of the Harness.
//
//	for _, call := range h.Replay("testdata/recorded") {
//		fmt.Println(call)
//	}
func (h *Harness) Replay(fileOrFolder string) []*Replayed {
	h.t.Helper()
	all, err := h.replay(fileOrFolder)
	if err != nil {
		h.t.Fatalf("eirinixtest: Replay: %v", err)
		return nil
	}
	return all
}

// CheckReplay fails if a recorded call now gets a different answer: another verdict, another object, other warnings or
// audit annotations. It turns production traffic into a regression test for a program that was rewritten. The
// operations of the patch are not compared, nor are the messages of failures.
func (h *Harness) CheckReplay(fileOrFolder string) {
	h.t.Helper()
	var broken []string
	for _, r := range h.Replay(fileOrFolder) {
		if d := r.Difference(); d != "" {
			broken = append(broken, fmt.Sprintf("eirinixtest: %s is answered otherwise than it was%s\n%s", r.File, r.caution(), indented(d)))
		}
	}
	if len(broken) > 0 {
		h.t.Fatalf("%s", strings.Join(broken, "\n\n"))
	}
}

func (h *Harness) replay(fileOrFolder string) ([]*Replayed, error) {
	recordings, err := record.Read(fileOrFolder)
	if err != nil {
		return nil, err
	}
	if len(recordings) == 0 {
		return nil, fmt.Errorf("%s holds no recording (*.json); recording.Start writes them", fileOrFolder)
	}
	all := make([]*Replayed, 0, len(recordings))
	for _, r := range recordings {
		replayed, err := h.replayOne(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.File, err)
		}
		all = append(all, replayed)
	}
	return all, nil
}

func (h *Harness) replayOne(r record.Recorded) (*Replayed, error) {
	ctx, called := context.Background(), r.Path
	if r.Reads != nil {
		ctx = snapshots.WithRecorded(ctx, r.Reads)
	}
	now, err := h.server.Replay(ctx, r.Path, r.Review.Request)
	_, moved := errors.AsType[*apiserver.UnknownPathError](err)
	if moved {
		r.Path = ""
		now, err = h.server.Replay(ctx, "", r.Review.Request)
	}
	if err != nil {
		return nil, withRemedy(err)
	}
	replayed := &Replayed{
		Result: h.newResult(now), File: r.File, Path: called, Moved: moved, Received: r.Received, Took: r.Took.Duration, Redacted: r.Redacted,
		ReadsLeftOut: r.ReadsLeftOut,
	}
	if r.Review.Response == nil && r.Error == "" && r.Status == 0 {
		return replayed, nil
	}
	was, err := h.server.Recall(ctx, r.Path, r.Version, r.Review.Request, answered(r))
	if err != nil {
		return nil, err
	}
	replayed.Was = h.newResult(was)
	return replayed, nil
}

// answered returns a handler that sends the recorded response.
func answered(r record.Recorded) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if r.Review.Response == nil {
			status := r.Status
			if status < http.StatusBadRequest {
				status = http.StatusInternalServerError
			}
			http.Error(w, r.Error, status)
			return
		}
		review := admissionv1.AdmissionReview{Response: r.Review.Response} // its form is the same in both versions
		review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
		review.APIVersion = schema.GroupVersion{Group: admissionv1.GroupName, Version: r.Version}.String()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // into memory
	})
}

// Difference returns the difference to the recorded answer, as a diff of verdict, warnings, audit annotations and
// object. It is empty if the answer is the same, or if no answer was recorded.
func (r *Replayed) Difference() string {
	if r.Was == nil {
		return ""
	}
	return diff.Unified("recorded", r.Was.recordable(), "now", r.recordable())
}

// recordable returns the parts of a result that a recording holds. Audit annotations have no webhook name in front.
func (r *Result) recordable() string {
	short := *r
	short.AuditAnnotations = map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(r.AuditAnnotations)) {
		short.AuditAnnotations[path.Base(key)] = r.AuditAnnotations[key]
	}
	return short.answer()
}

// caution names possible reasons for a difference: the fields that the recorder removed, and objects that it left out.
func (r *Replayed) caution() string {
	text := ""
	if len(r.Redacted) > 0 {
		text = fmt.Sprintf(" (the recorder took out %s)", strings.Join(r.Redacted, ", "))
	}
	if r.ReadsLeftOut != "" {
		text += fmt.Sprintf(" (the recording lacks what the steps have read: %s)", r.ReadsLeftOut)
	}
	return text
}

// String describes the call for a reader: its result now, and the difference to the recorded answer.
func (r *Replayed) String() string {
	text := fmt.Sprintf("%s%s\n%s", r.File, r.caution(), r.Result)
	if r.Moved {
		text += fmt.Sprintf("no webhook is called on %s any more, so it was sent to those that want it\n", r.Path)
	}
	if r.Was == nil {
		return text + "no answer was kept\n"
	}
	if d := r.Difference(); d != "" {
		return text + "answered otherwise than it was:\n" + d
	}
	return text + "answered as it was\n"
}
