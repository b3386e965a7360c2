package record

// This file collects what the steps of a call read beside the request, within a budget.

import (
	"fmt"
	"slices"
	"sync"

	"code.cloudfoundry.org/eirinix/internal/reads"
	"code.cloudfoundry.org/eirinix/internal/snapshots"
)

// These constants bound the objects of one call. A call that reads more is recorded without them.
const (
	maxRead      = 1000
	maxReadBytes = 1 << 20

	// noteBytes is the memory that a Note takes beside its object.
	noteBytes = 128
)

// readings are the notes of what the steps of a call read. The objects are not copied, but count against the Recorder's
// budget until release, because the notes keep them in memory. It is safe for concurrent use. A step that was left
// behind can note something at any time: after end it is ignored.
type readings struct {
	mu sync.Mutex
	share
	ended   bool
	begun   bool   // at least one step of the call can read
	lost    string // why the notes are not kept; empty if they are
	notes   []reads.Note
	known   map[reads.Note]struct{}
	objects int
}

// note is a callback of reads.WithNotes.
func (r *readings) note(n reads.Note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.lost != "" {
		return
	}
	r.begun = true
	if _, again := r.known[n]; again {
		return
	}
	size := int64(n.Bytes() + noteBytes)
	if n.IsObject() {
		r.objects++
	}
	switch {
	case r.objects > maxRead:
		r.lost = fmt.Sprintf("the steps read more than %d objects", maxRead)
	case r.taken+size > maxReadBytes:
		r.lost = fmt.Sprintf("the steps read more than %d bytes", maxReadBytes)
	case !r.take(size):
		r.lost = "more calls came than could be written"
	}
	if r.lost != "" {
		r.drop()
		return
	}
	if r.known == nil {
		r.known = map[reads.Note]struct{}{}
	}
	r.known[n] = struct{}{}
	r.notes = append(r.notes, n)
}

// drop drops the notes, and returns their budget. The caller holds mu.
func (r *readings) drop() {
	r.notes, r.known = nil, nil
	r.giveBack()
}

// end closes the notes, because the call has been answered.
func (r *readings) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// release returns memory and budget. Nothing can be noted after that.
func (r *readings) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.drop()
}

// recorded returns what the steps have read, as trees of JSON. It is nil if no step could read, or if the reason says
// why the notes were not kept.
func (r *readings) recorded() (all []snapshots.Recorded, left string, err error) {
	r.mu.Lock()
	notes, begun, left := slices.Clip(r.notes), r.begun, r.lost
	r.mu.Unlock()
	if !begun || left != "" {
		return nil, left, nil
	}
	if all, err = snapshots.Record(notes); err != nil {
		return nil, "what the steps read cannot be written: " + err.Error(), nil //nolint:nilerr // the call is recorded without them
	}
	for _, one := range all {
		for i, object := range one.Objects {
			text, err := encode(object)
			if err != nil {
				return nil, "", fmt.Errorf("an object that a step has read is not JSON: %w", err)
			}
			one.Objects[i] = nil
			if err := decode(text, &one.Objects[i]); err != nil { // with numbers as their text
				return nil, "", err
			}
		}
	}
	return all, "", nil
}
