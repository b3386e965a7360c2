package record

// This file counts the calls in flight, and queues those that have been answered.

import "sync"

// flights tracks the calls to be recorded, from their beginning until their outcome is reported. It also holds the
// queue of answered calls that wait to be written. It is safe for concurrent use, and never blocks.
//
// Every call that begins lands once, and is settled once by the goroutine that knows its outcome. Alternatively, giveUp
// settles all remaining calls at once, and nothing is reported about them again. The goroutine that settles a call, or
// gives up, must report the outcome and then call telling.Done.
type flights struct {
	mu        sync.Mutex
	closed    bool // no more calls begin
	ended     bool // queue is closed
	over      bool // the remaining calls have been given up
	unlanded  int  // calls that have begun, and not landed
	unsettled int  // calls that have begun, and not been settled

	queue   chan *call
	telling sync.WaitGroup
}

// begin registers a call. It reports false after close.
func (f *flights) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.unlanded++
	f.unsettled++
	return true
}

// land queues an answered call, if it is wanted and there is room. If it is not queued, settled reports whether that
// settles the call.
func (f *flights) land(c *call, wanted bool) (queued, settled bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unlanded--
	if wanted && !f.over {
		select {
		case f.queue <- c:
			queued = true
		default:
		}
	}
	settled = !queued && f.settleLocked()
	f.endQueue()
	return queued, settled
}

// settle reports whether the caller must report the outcome of a call.
func (f *flights) settle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.settleLocked()
}

func (f *flights) settleLocked() bool {
	if f.over {
		return false
	}
	f.unsettled--
	f.telling.Add(1)
	return true
}

// close lets no more calls begin. The queue ends with the last call that has begun.
func (f *flights) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.endQueue()
}

// giveUp ends the queue at once, and settles all remaining calls. If none remain, or if they were given
// up before, it returns zeros and there is nothing to report.
func (f *flights) giveUp() (unanswered, unwritten int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over || f.unsettled == 0 {
		return 0, 0
	}
	unanswered, unwritten = f.unlanded, f.unsettled-f.unlanded
	f.over = true
	f.unsettled = 0
	f.telling.Add(1)
	f.endQueue()
	return unanswered, unwritten
}

func (f *flights) givenUp() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

func (f *flights) endQueue() {
	if f.closed && !f.ended && (f.over || f.unlanded == 0) {
		f.ended = true
		close(f.queue)
	}
}
