package record

// This file holds the Recorder and its options.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"

	"code.cloudfoundry.org/eirinix/internal/lograte"
)

const (
	// These constants bound the calls that wait to be written. A review of a legal object takes up to 12 MB, most
	// take about 20 KB.
	maxWaiting      = 256
	maxWaitingBytes = 64 << 20
)

// Options are those of package recording, where they are documented for users.
type Options struct {
	Dir      string // required
	MaxFiles int    // 0 means 1000
	MaxBytes int64  // 0 means 256 MiB

	// Only gets the whole request. Redact gets an object in which Secrets and tokens are replaced already. Their values
	// are removed from other places after it. Either is called once at a time, and no client waits for it.
	Only       func(*admissionv1.AdmissionRequest) bool
	Redact     func(object map[string]any)
	SecretData bool // Redact is called, too
}

// Counts are the numbers of calls, by their outcome.
type Counts struct {
	Written int // there is a file, or was
	Dropped int // the disk was slower than the calls, or Close ended before the call was written
	Failed  int // they could not be redacted or written
}

// A Recorder records the calls of the handlers that it wraps. It is safe for concurrent use. Close ends it.
type Recorder struct {
	options  Options
	messages logr.Logger  // about calls that could not be recorded, at a limited rate
	folder   *folder      // of the goroutine that writes
	budget   atomic.Int64 // the bytes that more calls may take while they wait; each takes a share
	queue    chan *call
	done     chan struct{} // closed when the goroutine has ended

	mu        sync.Mutex  // guards the fields below, sends to queue, and its end
	closed    bool        // no more calls begin
	abandoned atomic.Bool // Close has dropped the calls that were left
	pending   int         // calls that have begun, and whose outcome is not known
	counts    Counts

	// logs limits the lines of each kind of failure. Otherwise any client that reaches the port could cause as many as it
	// likes.
	logs lograte.Limiter
}

// New makes a Recorder and its folder, and starts the goroutine that writes. It returns an error with the remedy if
// the folder cannot be written to, or if another Recorder uses it. In the latter case nothing in the folder is
// touched.
func New(o Options, log logr.Logger) (*Recorder, error) {
	o.MaxFiles, o.MaxBytes = cmp.Or(o.MaxFiles, 1000), cmp.Or(o.MaxBytes, 256<<20)
	var errs []error
	if o.Dir == "" {
		errs = append(errs, errors.New("option Dir is empty; name the folder to record into"))
	}
	if o.MaxFiles < 0 || o.MaxBytes < 0 {
		errs = append(errs, fmt.Errorf("option MaxFiles is %d and MaxBytes is %d; "+
			"give positive numbers, or 0 for the defaults", o.MaxFiles, o.MaxBytes))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	folder, err := openFolder(o.Dir, o.MaxFiles, o.MaxBytes)
	if err != nil {
		return nil, err
	}
	r := &Recorder{
		options: o, messages: log,
		folder: folder,
		queue:  make(chan *call, maxWaiting),
		done:   make(chan struct{}),
	}
	r.budget.Store(maxWaitingBytes)
	if mode, exposed := folder.exposed(); exposed {
		r.log("other users may replace recordings: take the write permission of the folder from group and others, "+
			"or name a new folder in it, which only this user may write to", "mode", mode.String())
	}
	go r.write()
	return r, nil
}

// Counts returns the outcomes up to now. They are final when Close has returned.
func (r *Recorder) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

// Close ends the recording. Calls that begin from now on are served but not recorded. Close waits until the calls in
// flight are answered and written, and the goroutine has ended. So a call must not wait for Close.
//
// If ctx ends first, the calls that are not written yet are counted as dropped, and Close returns their number with
// the cause of ctx. A call that is being written at that moment can still get a file. The goroutine, with its claim on
// the folder, ends after that call. Further calls of Close wait in the same way.
func (r *Recorder) Close(ctx context.Context) error {
	r.mu.Lock()
	if !r.closed && r.pending == 0 {
		close(r.queue)
	}
	r.closed = true
	r.mu.Unlock()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	left := r.pending
	if left > 0 && !r.abandoned.Swap(true) {
		r.counts.Dropped += left
		close(r.queue)
	}
	r.mu.Unlock()
	if left > 0 {
		return fmt.Errorf("recording ended before everything was written (%d calls were left): %w", left, context.Cause(ctx))
	}
	<-r.done
	return nil
}

// begin registers a call. It reports false after Close. If it reports true, end must be called.
func (r *Recorder) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.pending++
	return true
}

// end passes an answered call to the goroutine that writes, or drops it. A call that is not worth a recording is
// forgotten. end never waits for the goroutine.
func (r *Recorder) end(c *call, worth bool) {
	if worth && !c.question.lost && !c.answer.lost && r.enqueue(c) {
		return
	}
	c.release()
	if worth {
		r.settle(&r.counts.Dropped, failed("no room", "more calls came than could be written; they were answered as ever"))
	} else {
		r.settle(nil, nil)
	}
}

func (r *Recorder) enqueue(c *call) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.abandoned.Load() || len(r.queue) == cap(r.queue) {
		return false
	}
	r.queue <- c // there is room, because all senders hold the lock
	return true
}

// settle logs and counts the outcome of a call. The queue ends after the last one.
func (r *Recorder) settle(outcome *int, why error) {
	if r.abandoned.Load() {
		return
	}
	if why != nil {
		r.report(why)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.abandoned.Load() {
		return // Close has counted it
	}
	if outcome != nil {
		*outcome++
	}
	if r.pending--; r.closed && r.pending == 0 {
		close(r.queue)
	}
}

// write is the goroutine that writes. It ends with the queue.
func (r *Recorder) write() {
	defer close(r.done)
	defer r.folder.close()
	for c := range r.queue {
		if !r.abandoned.Load() {
			r.settle(r.writeOne(c))
		}
		c.release()
	}
}

func (r *Recorder) writeOne(c *call) (outcome *int, err error) {
	f, err := r.compose(c)
	if err == nil && f != nil && !r.abandoned.Load() {
		outcome, err = &r.counts.Written, r.folder.put(f)
	}
	if err != nil {
		outcome = &r.counts.Failed
	}
	return outcome, err
}

// report logs why a call was not recorded, at a limited rate for each kind of reason.
func (r *Recorder) report(why error) {
	kind := "other"
	if f, ok := errors.AsType[*failure](why); ok {
		kind = f.kind
	}
	if _, ok := r.logs.Allow(kind, ""); ok {
		counts := r.Counts()
		r.log("a call was not recorded", "kind", kind, "reason", why.Error(),
			"droppedBefore", counts.Dropped, "failedBefore", counts.Failed)
	}
}

// log logs a message, and recovers panics of the program's logger.
func (r *Recorder) log(message string, about ...any) {
	defer func() { _ = recover() }()
	r.messages.Info(message, append(about, "dir", r.options.Dir)...)
}

// failure is the reason why a call was not recorded. Log lines are counted by its kind. It holds no contents of an
// object.
type failure struct {
	kind string
	err  error
}

func (f *failure) Error() string { return f.err.Error() }

func failed(kind, format string, args ...any) error {
	return &failure{kind: kind, err: fmt.Errorf(format, args...)}
}
