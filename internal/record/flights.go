package record

import "sync"

// flights knows the calls that are to be recorded, from their beginning until it is told what became of them, and the
// queue in which those that were answered wait to be written. It is safe for concurrent use, and never waits.
//
// Every call that begins lands once, and is settled once, by whoever knows what became of it; or all that are left are
// given up at once, and nothing is told of them again. Who settles, or gives up, must tell, and then call telling.Done.
type flights struct {
	mu        sync.Mutex
	closed    bool // no more begin
	ended     bool // queue is closed
	over      bool // what was left has been given up
	unlanded  int  // have begun, and not landed
	unsettled int  // have begun, and not been settled

	queue   chan *call
	telling sync.WaitGroup
}

// begin takes a call, unless it is too late.
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

// land queues a call that has been answered, if it is wanted and there is room. If not, it tells whether that settles it.
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

// settle tells whether what became of a call is to be told.
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

// close lets no more calls begin. The queue ends behind the last one that has begun.
func (f *flights) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.endQueue()
}

// giveUp ends the queue at once, and settles all that is left. If that is nothing, there is nothing to tell.
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
