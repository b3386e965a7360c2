// Package recording writes the calls that a program answers to files, for replaying them in a test.
package recording

import (
	"context"
	"fmt"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/record"
	"code.cloudfoundry.org/eirinix/internal/seam"
)

// Options configures the content and the location of the files that Start writes.
type Options struct {
	// Dir is the directory to write to. It is created with mode 0700 if it is missing. Only one recording of one
	// process can use it at a time. Other files in it are left alone. A directory that other users can write to causes
	// a warning. Pods of the Deployment from the manifests have a read-only file system: mount an emptyDir and use a
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

// Start writes the AdmissionReviews that a Manager answers from now on, with their responses, to files, one for
// each call. eirinixtest.Harness.Replay sends them to the extensions again, in a test. Start can be called at any
// time, before Run or while it runs. The recording ends when stop is called or Run ends.
//
// stop waits for the calls in flight to be answered and written, or until its context ends. A step must not call stop,
// because it would wait for itself.
//
// A file also holds the objects that the steps have read with Call.Reader until the response was sent, as Read.Transform
// left them, so that a replay sees the same. A call that reads more than 1,000 objects or 1 MiB is recorded without
// them.
//
// The values of data and stringData of Secrets, and tokens and credentials, are replaced with placeholders, also
// wherever else the call repeats them. Objects of other kinds are written unchanged, so set Redact if pods contain
// passwords. A call never waits for the disk: requests that cannot be written in time are dropped, and the number of
// dropped requests is logged.
//
// Start returns an error if the Options are invalid, if Dir cannot be written to, or if another recording is in
// progress.
func Start(m *eirinix.ExtensionManager, o Options) (stop func(context.Context) error, err error) {
	p, err := seam.Of(m)
	if err != nil {
		return nil, err
	}
	log := p.Log.WithValues("recording", o.Dir)
	err = p.Tap(func(release func()) (seam.Tap, error) {
		r, err := record.New(record.Options(o), log)
		if err != nil {
			return seam.Tap{}, fmt.Errorf("eirinix: recording.Options: %w", err)
		}
		ended := sync.OnceFunc(func() {
			release()
			counts := r.Counts()
			log.Info("recording ended", "written", counts.Written, "dropped", counts.Dropped, "failed", counts.Failed)
		})
		stop = func(ctx context.Context) error {
			defer ended()
			if err := r.Close(ctx); err != nil {
				return fmt.Errorf("eirinix: %w", err)
			}
			return nil
		}
		return seam.Tap{Wrap: r.Wrap, End: stop}, nil
	})
	if err != nil {
		return nil, err
	}
	log.Info("recording the calls that are answered")
	return stop, nil
}
