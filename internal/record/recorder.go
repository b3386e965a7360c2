package record

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

	// What may wait to be written. A review of a legal object takes up to 12 MB, most take some 20 KB.
	mostWaiting      = 256
	mostWaitingBytes = 64 << 20
)

// Outcomes of a call that was to be recorded, as Options.Counted is told them.
const (
	Written = "written" // there is a file
	Dropped = "dropped" // the disk was slower than the calls, or Close had to end before them
	Failed  = "failed"  // it could not be redacted, or not be written
)

// Options say what is recorded, and where.
type Options struct {
	// Dir is the folder, which is made if it is missing, with mode 0700. It belongs to one Recorder at a time, as the
	// file .eirinix.lock says while that lives; files of others in it are left alone. New warns of a folder in which
	// other users may replace files. Required.
	Dir string

	// MaxFiles and MaxBytes bound what lies in Dir, with what is left there of earlier runs: the oldest go first.
	// 0 means 1000 files and 256 MiB.
	MaxFiles int
	MaxBytes int64

	// SecretData turns the redaction of Secrets, tokens and credentials off. Redact is called all the same.
	SecretData bool

	// Redact takes out of an object what must not be written. It is called for the object and the oldObject of each
	// call, after the data of Secrets are replaced and before they are looked for elsewhere, and for what the patch
	// makes of the object; it changes the map in place. Numbers in it are json.Number. One call is made at a time. If
	// it panics, the call is not recorded.
	Redact func(object map[string]any)

	// Paths says on which paths calls are recorded, before anything of them is copied. It is called by several
	// goroutines at once, on the way of an answer, and must return at once. nil means all.
	Paths func(path string) bool

	// Only says which calls are recorded, by the whole request, before anything is taken out. nil means all. One
	// call is made at a time, and never while somebody waits for an answer.
	Only func(*admissionv1.AdmissionRequest) bool

	// Log hears of what could not be recorded, once in a while. The zero Logger discards.
	Log logr.Logger

	// Counted is told what became of each call that was to be recorded. It may be called by several goroutines
	// at once and must return at once. nil counts nothing.
	Counted func(outcome string)
}

// A Recorder writes what goes through the handlers that it wraps. It is safe for concurrent use. Close ends it.
type Recorder struct {
	options Options
	store   *store
	budget  budget
	said    rarely
	flights flights
	done    chan struct{} // closed when the writing goroutine has ended
}

// New makes a Recorder, and its folder, and starts the goroutine that writes. It tells with the remedy if nothing can be
// written there, or another Recorder does, in which case nothing there is touched.
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

// Close ends the recording. Calls that begin from now on are served unrecorded; for those that have begun it waits until
// they are answered and written, and the goroutine has ended: one of them must not wait for Close.
//
// When ctx ends first, what is not written by then is dropped: it is counted and logged before Close returns, which it
// does with the cause of ctx. Of one that was on its way to the disk just then, there may be a file all the same; the
// goroutine, and its hold of the folder, end behind that one. Further calls of Close wait likewise. When Close has
// returned, nothing is logged or counted any more.
func (r *Recorder) Close(ctx context.Context) error {
	r.flights.close()
	select {
	case <-r.done: // first of all: ctx may have ended too
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
	<-r.done // which has nothing left to do
	return nil
}

// giveUp drops all calls that are left, if there are any, or somebody else has. Then all that is to be told has been.
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

// takes tells whether a call on a path is recorded. If so, land must be told of its end.
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

// land gives a call that has been answered to the goroutine that writes, or drops it; one that is not worth it is
// forgotten. It never waits.
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

// write is the goroutine.
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

// tell tells what became of a call, and why, whoever has settled it.
func (r *Recorder) tell(outcome string, why error) {
	defer r.flights.telling.Done()
	if outcome != "" {
		r.count(outcome)
	}
	if why != nil {
		r.report(why)
	}
}

// count guards against what it calls, which may be on the way of an answer.
func (r *Recorder) count(outcome string) {
	if r.options.Counted == nil {
		return
	}
	defer func() { _ = recover() }()
	r.options.Counted(outcome)
}

// report logs why a call was not recorded, once in a while for each kind of reason.
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

// warn logs, guarding against the program's logger.
func warn(log logr.Logger, message string, about ...any) {
	defer func() { _ = recover() }()
	log.Info(message, about...)
}

// failure is why a call was not recorded, with the kind by which lines in the log are counted. It says nothing of what
// stands in an object.
type failure struct {
	kind string
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func failed(kind, format string, args ...any) error {
	return &failure{kind: kind, err: fmt.Errorf(format, args...)}
}
