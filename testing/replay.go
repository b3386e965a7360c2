package eirinixtest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
	"code.cloudfoundry.org/eirinix/internal/diff"
	"code.cloudfoundry.org/eirinix/internal/record"
)

// Replayed is a call that was recorded, and what comes of it now. Matchers take it as they take a Result.
type Replayed struct {
	*Result         // what comes of it now
	Was     *Result // what came of it then

	File     string        // that holds the recording
	Path     string        // that was called; empty in a review that another tool has kept
	Received time.Time     // zero there
	Took     time.Duration // then; zero there
	Redacted []string      // what the recorder took out, such as request.object.data: steps see a placeholder there
}

// Replay sends the calls that ExtensionManager.Record has written into a file or folder, one after another, to the
// extensions of the Harness. Each goes to the webhook that was called, just as it was then; what the API server decided
// before (rules, selectors, conditions) is not asked again. AdmissionReviews that other tools have kept are sent as
// requests, to the webhooks that want them. The test fails where there is no recording, or no such webhook.
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
	ctx := context.Background()
	now, err := h.server.Replay(ctx, r.Path, r.Review.Request)
	if err != nil {
		if _, unknown := err.(*apiserver.UnknownPathError); unknown { //nolint:errorlint // it is never wrapped
			return nil, fmt.Errorf("%w: give NewHarness the steps and options of the program that was recorded", err)
		}
		return nil, withRemedy(err)
	}
	was, err := h.server.Recall(ctx, r.Path, r.Review.Request, answered(r))
	if err != nil {
		return nil, err
	}
	return &Replayed{
		Result: h.newResult(now), Was: h.newResult(was),
		File: r.File, Path: r.Path, Received: r.Received, Took: r.Took, Redacted: r.Redacted,
	}, nil
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
		review := admissionv1.AdmissionReview{Response: r.Review.Response}
		review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // into memory
	})
}

// Difference is how the call is answered otherwise than it was, as a diff of verdict, warnings, audit annotations and
// object; empty where it is not.
func (r *Replayed) Difference() string {
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
	if d := r.Difference(); d != "" {
		return text + "answered otherwise than it was:\n" + d
	}
	return text + "answered as it was\n"
}
