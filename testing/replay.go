package eirinixtest

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
)

// Replayed is a call that was recorded, and what comes of it now. Matchers take it as they take a Result.
type Replayed struct {
	*Result         // what comes of it now
	Was     *Result // what came of it then; nil in a review that another tool has kept without the answer
	Moved   bool    // no webhook is called on Path any more

	File     string        // that holds the recording
	Path     string        // that was called; empty in a review that another tool has kept
	Received time.Time     // zero there
	Took     time.Duration // then; zero there
	Redacted []string      // what the recorder took out, such as request.object.data: steps see a placeholder there
}

// Replay sends the calls that ExtensionManager.Record has written into a file or folder, one after another, to the
// extensions of the Harness. Each goes to the webhook that was called, just as it was then; what the API server decided
// before (rules, selectors, conditions) is not asked again. Calls of webhooks that are not there any more, and
// AdmissionReviews that other tools have kept, are sent as requests, to the webhooks that want them. The test fails
// where there is no recording, or one that cannot be read.
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

// CheckReplay fails where a recorded call is answered otherwise than it was: with another verdict, another object, other
// warnings or audit annotations. Traffic of production makes a test of it for a program that was rewritten. How the
// patch comes to its result does not matter, nor do the words of failures.
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
		return nil, fmt.Errorf("%s holds no recording (*.json); ExtensionManager.Record writes them", fileOrFolder)
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
		Result: h.newResult(now), File: r.File, Path: called, Moved: moved, Received: r.Received, Took: r.Took, Redacted: r.Redacted,
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

// answered answers as was recorded.
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
		review := admissionv1.AdmissionReview{Response: r.Review.Response} // which looks the same in both versions
		review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
		review.APIVersion = schema.GroupVersion{Group: admissionv1.GroupName, Version: r.Version}.String()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // into memory
	})
}

// Difference is how the call is answered otherwise than it was, as a diff of verdict, warnings, audit annotations and
// object; empty where it is not, or where no answer was kept.
func (r *Replayed) Difference() string {
	if r.Was == nil {
		return ""
	}
	return diff.Unified("recorded", r.Was.recordable(), "now", r.recordable())
}

// recordable is what a recording knows of a result: the audit annotations without the name of the webhook.
func (r *Result) recordable() string {
	short := *r
	short.AuditAnnotations = map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(r.AuditAnnotations)) {
		short.AuditAnnotations[path.Base(key)] = r.AuditAnnotations[key]
	}
	return short.answer()
}

// caution names what may be the reason.
func (r *Replayed) caution() string {
	if len(r.Redacted) == 0 {
		return ""
	}
	return fmt.Sprintf(" (the recorder took out %s)", strings.Join(r.Redacted, ", "))
}

// String is the call for people: what comes of it, and how that differs from what was recorded.
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
