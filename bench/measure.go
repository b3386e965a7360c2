package main

import (
	"runtime"
	"slices"
	"time"
)

// A work is something that can be done over and over, beside others that it is compared with.
type work struct {
	name string
	do   func()

	batch  int       // how often it is done in one slice
	cpu    []float64 // microseconds of CPU per round
	bytes  float64   // allocated
	allocs float64
}

// plan is how long to measure. A round is one slice of each work; the machine may be as noisy as it likes
// between rounds, because only figures of the same round are divided by each other.
type plan struct {
	rounds int
	slice  time.Duration
}

// measure runs the works in interleaved slices on one core's worth of goroutines.
//
// CPU time is the process's, so garbage collection counts, wherever it runs. Each slice begins with an empty
// heap, so that none pays for its predecessor.
func measure(p plan, works ...*work) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, w := range works {
		w.size(p.slice)
	}
	for round := range p.rounds {
		for i := range works {
			w := works[(round+i)%len(works)]
			runtime.GC()
			before := processCPU()
			for range w.batch {
				w.do()
			}
			w.cpu = append(w.cpu, float64((processCPU()-before).Nanoseconds())/1e3/float64(w.batch))
		}
	}
}

// size finds how often the work fits into a slice, and what it allocates.
func (w *work) size(slice time.Duration) {
	w.cpu, w.batch = nil, 1
	for {
		runtime.GC()
		var a, b runtime.MemStats
		runtime.ReadMemStats(&a)
		before := processCPU()
		for range w.batch {
			w.do()
		}
		took := processCPU() - before
		runtime.ReadMemStats(&b)
		w.bytes, w.allocs = float64(b.TotalAlloc-a.TotalAlloc)/float64(w.batch), float64(b.Mallocs-a.Mallocs)/float64(w.batch)
		if took >= slice/2 {
			return
		}
		w.batch = max(w.batch+1, int(float64(w.batch)*min(20, float64(slice)*0.8/float64(max(took, time.Microsecond)))))
	}
}

// A ratio is the median of paired ratios, with the quartiles around it.
type ratio struct{ low, median, high float64 }

// ratioTo divides round by round.
func (w *work) ratioTo(other *work) ratio {
	all := make([]float64, 0, len(w.cpu))
	for i := range w.cpu {
		all = append(all, w.cpu[i]/other.cpu[i])
	}
	return quartiles(all)
}

func quartiles(all []float64) ratio {
	if len(all) == 0 {
		return ratio{}
	}
	sorted := slices.Sorted(slices.Values(all))
	n := len(sorted)
	return ratio{sorted[n/4], sorted[n/2], sorted[(3*n)/4]}
}

// named finds a work.
func named(works []*work, name string) *work {
	for _, w := range works {
		if w.name == name {
			return w
		}
	}
	return nil
}
