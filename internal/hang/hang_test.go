package hang

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/onsi/ginkgo/v2" // its flags, which all packages are given
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
)

// work does do, and counts what is left behind of it.
type work struct {
	do        func() error
	runs      *Runs
	all       *LeftBehind
	ended     func()
	lastError error
}

func newWork(do func() error) *work {
	return &work{do: do, runs: &Runs{Gauge: prometheus.NewGauge(prometheus.GaugeOpts{})}, all: &LeftBehind{Max: 100}}
}

func (w *work) Do() error      { return w.do() }
func (w *work) Leave()         { w.ended = w.runs.Add(w.all, 30) }
func (w *work) Left(err error) { w.ended(); w.lastError = err }

func TestWorkThatEndsInTimeIsNotLeftBehind(t *testing.T) {
	g, failure := NewWithT(t), errors.New("no quota")
	for _, err := range []error{nil, failure} {
		w := newWork(func() error { return err })
		g.Expect(errors.Is(Await(t.Context(), w), err)).To(BeTrue())
		g.Expect(w.ended).To(BeNil())
	}
	g.Expect(Await(t.Context(), newWork(func() error { panic("provoked") }))).To(MatchError("panic: provoked"))
	g.Expect(Await(t.Context(), newWork(func() error { runtime.Goexit(); return nil }))).To(MatchError(ErrNoAnswer))
}

func TestWorkThatHangsIsLeftBehindUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, until := NewWithT(t), make(chan struct{})
		w := newWork(func() error { <-until; return errors.New("late") })
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("?timeout=1s"))
		defer cancel()
		g.Expect(Await(ctx, w)).To(MatchError("no answer before the deadline (timeoutSeconds of the webhook): ?timeout=1s"))
		g.Expect(w.runs.Count()).To(BeEquivalentTo(1))
		g.Expect(w.all.Bytes()).To(BeEquivalentTo(30))
		g.Expect(w.runs.Full(w.all)).To(Succeed())
		w.runs.Add(w.all, 70)
		g.Expect(w.runs.Full(w.all)).To(MatchError(HavePrefix("2 of its runs still hang")))
		g.Expect((&Runs{}).Full(w.all)).To(Succeed(), "none of those hangs")
		close(until)
		synctest.Wait()
		g.Expect(w.lastError).To(MatchError("late"))
		g.Expect(w.runs.Count()).To(BeEquivalentTo(1))
		g.Expect(w.all.Bytes()).To(BeEquivalentTo(70))
	})
}

func TestNoRunBeginsBesideAHundredThatHang(t *testing.T) {
	g, w := NewWithT(t), newWork(nil)
	for range maxRuns {
		g.Expect(w.runs.Full(w.all)).To(Succeed())
		w.runs.Add(w.all, 0)
	}
	g.Expect(w.runs.Full(w.all)).To(MatchError(HavePrefix("100 of its runs still hang")))
}

func TestMemoryOfARunThatIsLeftBehindIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, all := NewWithT(t), NewAccount(100)
		first, second := &Memory{Of: all, Context: t.Context()}, &Memory{Of: all, Context: t.Context()}
		g.Expect(first.Take(1000)).To(Succeed(), "it has all of it")
		taken := make(chan error, 1)
		go func() { taken <- second.Take(60) }()
		synctest.Wait()
		g.Expect(taken).NotTo(Receive())
		g.Expect(second.Waits()).To(BeTrue())
		second.Leave()
		g.Expect(first.Leave()).To(BeEquivalentTo(100))
		synctest.Wait()
		g.Expect(taken).To(Receive(HaveOccurred()), "its run was left behind while it waited")
		g.Expect(first.Take(1)).NotTo(Succeed())
		g.Expect(all.TryAcquire(100)).To(BeTrue())
	})
}
