package world

// This file is the Deployment of the program: how many replicas of which version there are.

import (
	"strings"
	"time"
)

// deploy is the Deployment of the program: it keeps as many replicas of the wanted version as there are to be, and replaces
// those of others one after the other.
func (w *World) deploy() {
	for {
		settled := w.roll()
		if !settled {
			if !w.wait(time.Second) {
				return
			}
			continue
		}
		select {
		case <-w.changed:
		case <-w.over:
			return
		}
	}
}

// backsOff is how long Kubernetes waits after a first crash, and longer and longer after that.
const backsOff = 10 * time.Second

// roll takes one step of a rollout, and reports whether there is nothing left to do.
func (w *World) roll() bool {
	w.mu.Lock()
	var fresh, old, ready int
	var outdated, unready *process // any of them, so that three versions can be there at once
	for _, p := range w.processes {
		if p.leaving {
			continue
		}
		if p.generation == w.generation {
			fresh++
		} else {
			if old++; w.rng.IntN(old) == 0 {
				outdated = p
			}
			if p.readySince.IsZero() && p.generation > 0 {
				unready = p
			}
		}
		if !p.readySince.IsZero() {
			ready++
		}
	}
	wanted, generation, replicas, paused, crashed := w.wanted, w.generation, w.replicas, time.Now().Before(w.paused), time.Since(w.failed) < backsOff
	var spare *process
	if fresh > replicas {
		for _, p := range w.processes {
			if !p.leaving && p.generation == w.generation {
				spare = p
			}
		}
	}
	w.mu.Unlock()
	switch {
	case fresh < replicas && fresh+old <= replicas:
		if (wanted.crashes || crashed) && (!w.wait(backsOff) || w.rolledAgain(generation)) {
			return false
		}
		n := 1
		if w.plan.AtOnce {
			n = max(1, replicas-fresh-old) // one more than there are to be comes in a rollout
		}
		w.count(func(c *Counts) { c.Starts += n })
		for range n {
			w.start(wanted)
		}
	case outdated != nil && paused:
	case unready != nil: // as Kubernetes, which stops those first that do not work
		unready.leaves()
		w.tasks.Go(unready.terminate)
	case outdated != nil && ready > min(replicas, fresh+old-1):
		outdated.leaves()
		w.tasks.Go(outdated.terminate)
	case spare != nil:
		spare.leaves()
		w.tasks.Go(spare.terminate)
	default:
		return fresh == replicas && old == 0 && ready == replicas
	}
	return false
}

// rolledAgain reports whether another rollout has begun since a generation.
func (w *World) rolledAgain(generation int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.generation != generation
}

// endedByItself is called for a process that nothing has stopped. One that lacks a right at its start ends with an error, and
// is started again.
func (w *World) endedByItself(p *process) {
	defer w.wake()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = time.Now()
	select {
	case <-w.over:
	default:
		if p.err != nil && !p.readySince.IsZero() && w.watch.overrun.IsZero() && strings.Contains(p.err.Error(), "another program uses the same fingerprint") && !w.troubledSince(p.readySince, spoiled, lapsed, apart) && (w.plan.Replicas > 1 || w.plan.settled("freeze")) {
			w.breaks("%s has given way to another program: %v", p, p.err)
		}
		w.outlived(p)
		refused := p.err != nil && strings.Contains(p.err.Error(), taken) && w.troubledSince(p.began, unread, spoiled) // at its start
		if !refused && !w.troubledSince(p.began, slow, lapsed, strange, unissued) {
			w.breaks("%s has ended by itself: %v", p, p.err)
		}
	}
}
