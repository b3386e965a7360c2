//go:build unix

package convert_test

// This file compares processor time, which other work on the machine changes less than the time on the clock.

import (
	"runtime"
	"syscall"
	"testing"
	"time"
)

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRatio reports the processor time of an answer, with all that it allocates, as a share of the peer's.
func BenchmarkRatio(b *testing.B) {
	body := arrivedReview(b, 500)
	k, forgetful, h := cronJobs(), cronJobs(), peerHandler()
	forgetful.Forget = true
	var took [3]time.Duration
	for b.Loop() {
		for i, answer := range []func() []byte{
			func() []byte { return answerOf(b, k, body) },
			func() []byte { return answerOf(b, forgetful, body) },
			func() []byte { return ask(h, body) },
		} {
			runtime.GC() // what the one before has left is its own
			start := processorTime(b)
			for range 4 {
				answer()
			}
			took[i] += processorTime(b) - start
		}
	}
	b.ReportMetric(float64(took[0])/float64(took[2]), "ratio")
	b.ReportMetric(float64(took[1])/float64(took[2]), "ratio-forget")
	b.ReportMetric(float64(took[0])/float64(4*500*b.N), "ns/object")
}
