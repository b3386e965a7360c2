//go:build unix

package convert_test

// This file compares processor time, which other work on the machine changes less than the time on the clock.

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"code.cloudfoundry.org/eirinix/internal/convert"
)

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRatio reports the processor time of an answer, with all that it allocates, as a share of the peer's. The peer
// keeps nothing of what is lost, and has no trees: it converts the same objects with Go types.
func BenchmarkRatio(b *testing.B) {
	lossy := arrivedReview(b, 500, func(a *Alpha) { a.Spec.Owner, a.Spec.Steps[1].Note = &AlphaOwner{Team: "team"}, "a note" })
	for _, c := range []struct {
		name string
		kind *convert.Kind
		body []byte
	}{
		{"2KB", cronJobs(), arrivedReview(b, 500)},
		{"10KB", cronJobs(), arrivedReview(b, 100, large)},
		{"trees", trees(unchanged, unchanged), arrivedReview(b, 500)},
		{"lossy", cronJobs(), lossy},
		{"lossy, back", cronJobs(), sentBack(b, answerOf(b, cronJobs(), lossy))},
	} {
		b.Run(c.name, func(b *testing.B) {
			h := peerHandler()
			forgetful := *c.kind
			forgetful.Forget = true
			var took [3]time.Duration
			for b.Loop() {
				for i, answer := range []func() []byte{
					func() []byte { return answerOf(b, c.kind, c.body) },
					func() []byte { return answerOf(b, &forgetful, c.body) },
					func() []byte { return ask(h, c.body) },
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
		})
	}
}

// large makes an object of some 10 KB.
func large(a *Alpha) {
	c := a.Spec.Template.Containers[0]
	for i := range 5 {
		c.Name = fmt.Sprintf("more-%d", i)
		a.Spec.Template.Containers = append(a.Spec.Template.Containers, c)
	}
	fields := a.ManagedFields[0]
	for i := range 4 {
		fields.Manager = fmt.Sprintf("manager-%d", i)
		a.ManagedFields = append(a.ManagedFields, fields)
	}
}
