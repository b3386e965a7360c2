package eirinix

// This file records admission requests with their responses, for replaying them in a test.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/record"
)

// recordingPatience is the time that the end of Run allows for finishing a recording.
const recordingPatience = 5 * time.Second

// Recording configures the content and the location of the files that Record writes.
type Recording struct {
	// Dir is the directory to write to. It is created with mode 0700 if it is missing. Only one recording of one
	// process can use it at a time. Other files in it are left alone. A directory that other users can write to causes
	// a warning. Pods of the Deployment from Manifests have a read-only file system: mount an emptyDir and use a
	// directory in it. Required.
	Dir string

	// MaxFiles and MaxBytes limit the recorded files in Dir, including those of earlier recordings. The oldest files
	// are deleted first. Defaults: 1000 files, 256 MiB.
	MaxFiles int
	MaxBytes int64

	// Only reports whether a request is recorded. It receives the complete request, before redaction. Its calls do not
	// overlap, and no response waits for them. Default: all requests are recorded.
	Only func(*admissionv1.AdmissionRequest) bool

	// Redact removes from an object all data that must not be written, in addition to the data that is always redacted.
	// It is called for the new object, the old object, the patched one, and each object that a step has read. Numbers in
	// an object are of type json.Number. Its calls do not overlap. A request for which it panics is not recorded.
	Redact func(object map[string]any)

	// SecretData keeps the data of Secrets, tokens and credentials. Set it only if everyone with access to the files is
	// allowed to read those.
	SecretData bool
}

// recording is a Record in progress.
type recording struct {
	*record.Recorder
	end func() // logs once how the recording ended
}

// Record writes the AdmissionReviews that this Manager answers from now on, with their responses, to files, one for
// each call. eirinixtest.Harness.Replay sends them to the extensions again, in a test. Record can be called at any
// time, before Run or while it runs. The recording ends when stop is called or Run ends.
//
// stop waits for the calls in flight to be answered and written, or until its context ends. A step must not call stop,
// because it would wait for itself.
//
// A file also holds the objects that the steps have read with Call.Reader until the response was sent, as Read.Keep
// left them, so that a replay sees the same. A call that reads more than 1,000 objects or 1 MiB is recorded without
// them.
//
// The values of data and stringData of Secrets, and tokens and credentials, are replaced with placeholders, also
// wherever else the call repeats them. Objects of other kinds are written unchanged, so set Redact if pods contain
// passwords. A call never waits for the disk: requests that cannot be written in time are dropped, and the number of
// dropped requests is logged.
//
// Record returns an error if the Recording is invalid, if Dir cannot be written to, or if another recording is in
// progress.
func (m *ExtensionManager) Record(r Recording) (stop func(context.Context) error, err error) {
	log := m.logr().WithValues("recording", r.Dir)
	if !m.records.CompareAndSwap(false, true) {
		return nil, errors.New("eirinix: Record: another recording is in progress; stop it first")
	}
	now := &recording{}
	now.Recorder, err = record.New(record.Options{
		Dir: r.Dir, MaxFiles: r.MaxFiles, MaxBytes: r.MaxBytes, Only: r.Only, Redact: r.Redact, SecretData: r.SecretData, Log: log,
	})
	if err != nil {
		m.records.Store(false)
		return nil, fmt.Errorf("eirinix: Recording: %w", err)
	}
	now.end = sync.OnceFunc(func() {
		m.records.Store(false)
		counts := now.Counts()
		log.Info("recording ended", "written", counts.Written, "dropped", counts.Dropped, "failed", counts.Failed)
	})
	m.recording.Store(now)
	log.Info("recording the calls that are answered")
	return func(ctx context.Context) error { return m.endRecording(ctx, now) }, nil
}

func (m *ExtensionManager) endRecording(ctx context.Context, r *recording) error {
	m.recording.CompareAndSwap(r, nil)
	err := r.Close(ctx)
	r.end()
	if err != nil {
		return fmt.Errorf("eirinix: %w", err)
	}
	return nil
}

// stopRecording ends a recording that the program has not stopped itself.
func (m *ExtensionManager) stopRecording() {
	r := m.recording.Load()
	if r == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordingPatience)
	defer cancel()
	if err := m.endRecording(ctx, r); err != nil {
		m.logr().Error(err, "the recording is not whole")
	}
}

// recorded wraps a handler so that its calls are recorded while a recording is in progress, except those of a
// diagnosis.
func (m *ExtensionManager) recorded(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if now := m.recording.Load(); now != nil && path.Base(r.URL.Path) != diagnose.CanaryName {
			now.Wrap(handler).ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	})
}
