package world

// This file is what is looked at each minute: the work that a program makes at rest, and its CA.

import (
	"syscall"
	"time"
)

// mostWork is the time of a processor that all processes take together in a minute in which nothing happens. They take some
// milliseconds.
const mostWork = 5 * time.Second

// worked returns the time of a processor that this process has taken.
func worked() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func (w *World) minutes() {
	before, started := worked(), w.begun()
	for n := 1; w.wait(time.Minute); n++ {
		now := worked()
		w.mu.Lock()
		still := w.watch.stirred.Add(settling).Before(time.Now()) && !w.auditing.Load() && w.loads == 0 && w.started == started
		if took := now - before; still && took > mostWork && time.Since(w.began) > settling {
			w.breaks("in a minute in which nothing happened, all processes have computed for %s", took)
		}
		started = w.started
		w.mu.Unlock()
		if before = now; n%5 == 0 {
			w.outlives()
			w.isStuck()
		}
	}
}
