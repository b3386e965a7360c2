package record

// This file holds the Recorder and its options.

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
)

const (
	defaultMaxFiles = 1000
	defaultMaxBytes = 256 << 20

	// These constants bound the calls that wait to be written. A review of a legal object takes up to 12 MB, most
	// take about 20 KB.
	mostWaiting      = 256
	mostWaitingBytes = 64 << 20
)

// These are the outcomes of a call that was to be recorded. Options.Counted is called with them.
const (
	Written = "written" // there is a file
	Dropped = "dropped" // the disk was slower than the calls, or Close ended before the call was written
	Failed  = "failed"  // it could not be redacted or written
)

// Options configure a Recorder.
type Options struct {
	// Dir is the folder for recordings. A missing folder is created with mode 0700. It belongs to one Recorder at a
	// time, which claims the file .eirinix.lock in it. Other files in the folder are left alone. New warns about a
	// folder in which other users can replace files. Required.
	Dir string

	// MaxFiles and MaxBytes bound the recordings in Dir, including those of earlier runs. The oldest are removed
	// first. 0 means 1000 files and 256 MiB.
	MaxFiles int
	MaxBytes int64

	// SecretData turns off the redaction of Secrets, tokens and credentials. Redact is still called.
	SecretData bool

	// Redact removes data from an object that must not be written, by changing the map in place. It is called for the
	// object and the oldObject of each call, and for the patched object. The data of Secrets has been replaced
	// before, but its values have not yet been removed from other places. Numbers in the map are json.Number. Only
	// one call is made at a time. If Redact panics, the call is not recorded.
	Redact func(object map[string]any)

	// Paths reports whether calls on a path are recorded. It is called before anything of a call is copied. Several
	// goroutines call it at once while clients wait for a response, so it must return at once. nil means all paths.
	Paths func(path string) bool

	// Only reports whether a call is recorded. It gets the whole request before redaction. nil means all calls. Only
	// one call is made at a time, and no client waits for it.
	Only func(*admissionv1.AdmissionRequest) bool

	// Log receives messages about calls that could not be recorded, at a limited rate. The zero Logger discards them.
	Log logr.Logger

	// Counted is called with the outcome of each call that was to be recorded. Several goroutines can call it at
	// once, and it must return at once. nil counts nothing.
	Counted func(outcome string)
}

// A Recorder records the calls of the handlers that it wraps. It is safe for concurrent use. Close ends it.
type Recorder struct {
	options Options
	store   *store
	budget  budget
	said    rarely
	flights flights
	done    chan struct{} // closed when the writing goroutine has ended
}

// New makes a Recorder and its folder, and starts the goroutine that writes. It returns an error with the remedy if
// the folder cannot be written to, or if another Recorder uses it. In the latter case nothing in the folder is
// touched.
func New(o Options) (*Recorder, error) {
	if o.MaxFiles == 0 {
		o.MaxFiles = defaultMaxFiles
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMaxBytes
	}
	var errs []error
	if o.Dir == "" {
		errs = append(errs, errors.New("option Dir is empty; name the folder to record into"))
	}
	if o.MaxFiles < 0 {
		errs = append(errs, fmt.Errorf("option MaxFiles is %d; give a number of files, or 0 for %d", o.MaxFiles, defaultMaxFiles))
	}
	if o.MaxBytes < 0 {
		errs = append(errs, fmt.Errorf("option MaxBytes is %d; give a number of bytes, or 0 for %d", o.MaxBytes, defaultMaxBytes))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	files, err := openStore(o.Dir, o.MaxFiles, o.MaxBytes)
	if err != nil {
		return nil, err
	}
	if mode, exposed := files.exposed(); exposed {
		warn(o.Log, "other users may replace recordings: take the write permission of the folder from group and others, or name a new folder in it, which only this user may write to",
			"dir", o.Dir, "mode", mode.String())
	}
	r := &Recorder{
		options: o,
		store:   files,
		budget:  budget{most: mostWaitingBytes},
		flights: flights{queue: make(chan *call, mostWaiting)},
		done:    make(chan struct{}),
	}
	go r.write()
	return r, nil
}

// Close ends the recording. Calls that begin from now on are served but not recorded. Close waits until the calls in
// flight are answered and written, and the goroutine has ended. So a call must not wait for Close.
//
// If ctx ends first, the calls that are not written yet are dropped. They are counted and logged before Close returns
// the cause of ctx. A call that is being written at that moment can still get a file. The goroutine, with its claim
// on the folder, ends after that call. Further calls of Close wait in the same way. Once Close has returned, nothing
// is logged or counted any more.
func (r *Recorder) Close(ctx context.Context) error {
	r.flights.close()
	select {
	case <-r.done: // checked first, because ctx may have ended, too
		return nil
	default:
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
	}
	if r.giveUp(context.Cause(ctx)) {
		return fmt.Errorf("recording ended before everything was written: %w", context.Cause(ctx))
	}
	<-r.done // nothing is left to write
	return nil
}

// giveUp drops all remaining calls, and reports whether there were any, here or in another call of giveUp. When it
// returns, all outcomes have been reported.
func (r *Recorder) giveUp(why error) (lost bool) {
	if unanswered, unwritten := r.flights.giveUp(); unanswered+unwritten > 0 {
		r.tellGivenUp(unanswered, unwritten, why)
	}
	r.flights.telling.Wait()
	return r.flights.givenUp()
}

func (r *Recorder) tellGivenUp(unanswered, unwritten int, why error) {
	defer r.flights.telling.Done()
	for range unanswered + unwritten {
		r.count(Dropped)
	}
	warn(r.options.Log, "calls were not recorded: the recording ended before they were answered and written",
		"unanswered", unanswered, "unwritten", unwritten, "reason", why.Error(), "dir", r.options.Dir)
}

// takes reports whether a call on a path is recorded. If so, land must be called at its end.
func (r *Recorder) takes(path string) (taken bool) {
	defer func() {
		if recover() != nil {
			taken = false
		}
	}()
	if paths := r.options.Paths; paths != nil && !paths(path) {
		return false
	}
	return r.flights.begin()
}

// land passes an answered call to the goroutine that writes, or drops it. A call that is not worth a recording is
// forgotten. land never blocks.
func (r *Recorder) land(c *call, worth bool) {
	queued, tell := r.flights.land(c, worth && !c.lost())
	if queued {
		return
	}
	c.release()
	switch {
	case !tell:
	case worth:
		r.tell(Dropped, &failure{kind: "no room", err: errors.New("more calls came than could be written; they were answered as ever")})
	default:
		r.tell("", nil)
	}
}

// write is the goroutine that writes. It ends with the queue.
func (r *Recorder) write() {
	defer close(r.done)
	defer r.store.close()
	for c := range r.flights.queue {
		r.writeOne(c)
		c.release()
	}
	r.flights.telling.Wait()
}

func (r *Recorder) writeOne(c *call) {
	if r.flights.givenUp() {
		return
	}
	outcome := ""
	f, err := r.compose(c)
	if r.flights.givenUp() {
		return
	}
	if err == nil && f != nil {
		outcome, err = Written, r.store.put(f)
	}
	if err != nil {
		outcome = Failed
	}
	if r.flights.settle() {
		r.tell(outcome, err)
	}
}

// tell counts the outcome of a settled call, and logs the reason.
func (r *Recorder) tell(outcome string, why error) {
	defer r.flights.telling.Done()
	if outcome != "" {
		r.count(outcome)
	}
	if why != nil {
		r.report(why)
	}
}

// count recovers panics of Counted, because a client can be waiting for the response.
func (r *Recorder) count(outcome string) {
	if r.options.Counted == nil {
		return
	}
	defer func() { _ = recover() }()
	r.options.Counted(outcome)
}

// report logs why a call was not recorded, at a limited rate for each kind of reason.
func (r *Recorder) report(err error) {
	kind := "other"
	if f, ok := errors.AsType[*failure](err); ok {
		kind = f.kind
	}
	withheld, ok := r.said.pass(kind)
	if !ok {
		return
	}
	warn(r.options.Log, "a call was not recorded", "kind", kind, "reason", err.Error(), "dir", r.options.Dir, "moreOfTheKindBefore", withheld)
}

// warn logs a message, and recovers panics of the program's logger.
func warn(log logr.Logger, message string, about ...any) {
	defer func() { _ = recover() }()
	log.Info(message, about...)
}

// failure is the reason why a call was not recorded. Log lines are counted by its kind. It holds no contents of an
// object.
type failure struct {
	kind string
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func failed(kind, format string, args ...any) error {
	return &failure{kind: kind, err: fmt.Errorf(format, args...)}
}
