package main

// This file measures CPU time in interleaved slices and computes paired ratios.

import (
	"runtime"
	"slices"
	"time"
)

// work is an operation that is repeated and compared with others.
type work struct {
	name string
	do   func()

	batch  int       // number of repetitions in one slice
	cpu    []float64 // microseconds of CPU per round
	bytes  float64   // allocated per repetition
	allocs float64
}

// plan is the length of a measurement. A round is one slice of each work. Only figures of the same round are divided
// by each other, so noise between rounds does not matter.
type plan struct {
	rounds int
	slice  time.Duration
}

// measure runs the works in interleaved slices with a GOMAXPROCS of one.
//
// CPU time is that of the process, so it includes garbage collection on any thread. Each slice begins after a garbage
// collection, so that none pays for its predecessor.
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

// size determines how often the work fits into a slice, and how much it allocates.
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

// ratio is the median of paired ratios, with the quartiles around it.
type ratio struct{ low, median, high float64 }

// ratioTo divides the figures round by round.
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

// named returns the work with a name, or nil.
func named(works []*work, name string) *work {
	for _, w := range works {
		if w.name == name {
			return w
		}
	}
	return nil
}
