package eirinix

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/record"
)

// recordingPatience is what the end of Run gives a recording to get written.
const recordingPatience = 5 * time.Second

// Recording says what Record writes, and where.
type Recording struct {
	// Dir is the folder, made if it is missing, with mode 0700. It belongs to one recording of one process at a
	// time; what else lies in it stays. One that others may write to gets a warning. The Deployment of Manifests has a
	// read-only filesystem: mount an emptyDir, and give a folder in it. Required.
	Dir string

	// MaxFiles and MaxBytes bound what lies in Dir, also of earlier recordings: the oldest files go first.
	// Defaults: 1000 files, 256 MiB.
	MaxFiles int
	MaxBytes int64

	// Only says which requests are recorded. It sees them whole. Calls of it do not overlap, and nobody's answer
	// waits for them. Default: all.
	Only func(*admissionv1.AdmissionRequest) bool

	// Redact takes out of an object (the new one, the old one, the one that the patch makes) what must not be
	// written, beside what is always taken out; numbers in it are json.Number. Calls of it do not overlap. A
	// request in which it panics is not recorded.
	Redact func(object map[string]any)

	// SecretData leaves the data of Secrets, tokens and credentials as they are, for a desk that may see them.
	SecretData bool
}

// recording is a Record that goes on.
type recording struct {
	*record.Recorder
	counts struct{ written, dropped, failed atomic.Int64 }
	end    func() // logs once how it ended
}

// Record writes the AdmissionReviews that this Manager answers from now on into files, one for each call, with the
// answer: eirinixtest.Harness.Replay sends them to your extensions again, at a desk. Call it whenever you like, before
// Run or while it runs; stop, or the end of Run, ends it. stop waits for the calls that are being answered and written, or
// until its context ends; it is not for a step, which would wait for itself.
//
// Data and stringData of Secrets, tokens and credentials are replaced by placeholders, also where the call repeats them.
// What else is in other kinds is written as it came, so give Redact if pods carry passwords. A call never waits for the
// disk: what it cannot take in time is dropped, and the log tells how much.
//
// The error says what is wrong with the Recording, that nothing can be written to Dir, or that another one goes on.
func (m *ExtensionManager) Record(r Recording) (stop func(context.Context) error, err error) {
	log := m.logr().WithValues("recording", r.Dir)
	if !m.records.CompareAndSwap(false, true) {
		return nil, errors.New("eirinix: Record: another recording goes on; stop that one first")
	}
	now := &recording{}
	now.Recorder, err = record.New(record.Options{
		Dir: r.Dir, MaxFiles: r.MaxFiles, MaxBytes: r.MaxBytes, Only: r.Only, Redact: r.Redact, SecretData: r.SecretData, Log: log,
		Paths: func(called string) bool { return path.Base(called) != diagnose.CanaryName }, // which nobody replays
		Counted: func(outcome string) {
			switch outcome {
			case record.Written:
				now.counts.written.Add(1)
			case record.Dropped:
				now.counts.dropped.Add(1)
			default:
				now.counts.failed.Add(1)
			}
		},
	})
	if err != nil {
		m.records.Store(false)
		return nil, fmt.Errorf("eirinix: Recording: %w", err)
	}
	now.end = sync.OnceFunc(func() {
		m.records.Store(false)
		log.Info("recording ended", "written", now.counts.written.Load(), "dropped", now.counts.dropped.Load(), "failed", now.counts.failed.Load())
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

// stopRecording ends what the program has not ended.
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

// recorded is the handler, whose calls are recorded as long as somebody wants it.
func (m *ExtensionManager) recorded(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if now := m.recording.Load(); now != nil {
			now.Wrap(handler).ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	})
}
