package admit

// This file specifies the memory that bodies take, which calls work and wait, conversions that hang, and what counting and tracing costs.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/hang"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

func TestBodiesThatOutgrowTheirBufferAreReadWhole(t *testing.T) {
	g := NewWithT(t)
	all := newReadBudget(1 << 20)
	for _, size := range []int{1, smallBuffer, smallBuffer + 1, firstBytes, firstBytes + 1} {
		for _, known := range []bool{true, false} {
			runtime.GC()
			runtime.GC() // drops all buffers, so the next one is small
			sent := bytes.Repeat([]byte("0123456789 "), size/11+1)[:size]
			r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(sent))
			if !known {
				r.ContentLength = -1
			}
			text, b, err := all.read(httptest.NewRecorder(), r, deadline{time.Now(), time.Minute}, 1)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(bytes.Equal(text, sent)).To(BeTrue(), "%d bytes, known length: %t", size, known)
			b.release()
		}
	}
}

func TestBodiesOfUnknownLengthTakeNoMoreMemoryThanIsCounted(t *testing.T) {
	g := NewWithT(t)
	const most = 1 << 20
	all := newReadBudget(most)
	for _, times := range []int64{1, 2} {
		for _, size := range []int{firstBytes + 1, most / 2, most - 1, most} {
			text, b := readUnknownBody(t, all, size, times)
			g.Expect(text).To(HaveLen(size))
			g.Expect(cap(text)).To(BeNumerically("<=", most+1))
			g.Expect(b.reserved).To(BeNumerically(">=", int64(cap(text)-1)*times), "the byte in which the end shows does not count")
			b.release()
			g.Expect(all.free.TryAcquire(bodiesAtOnce * most)).To(BeTrue())
			all.free.Release(bodiesAtOnce * most)
		}
	}
}

func readUnknownBody(t *testing.T, all *readBudget, size int, times int64) ([]byte, *requestBody) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader(strings.Repeat(" ", size))))
	text, b, err := all.read(httptest.NewRecorder(), r, deadline{time.Now(), time.Minute}, times)
	if err != nil || r.ContentLength >= 0 {
		t.Fatal(err, r.ContentLength)
	}
	return text, b
}

// The bubbles of synctest need a *testing.T, so these are plain tests: their clock is time itself.

// queue has callers acquire one after the other, and returns where each puts its number or its error.
func queue(ctx context.Context, l *limiter, callers int) (served chan int, refused chan error) {
	served, refused = make(chan int, callers), make(chan error, callers)
	for i := range callers {
		go func() {
			if err := l.acquire(ctx); err != nil {
				refused <- err
				return
			}
			served <- i
		}()
		synctest.Wait()
	}
	return served, refused
}

func TestLimiterTurnsAwayWhatExceedsTheQueueAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		l := newLimiter(1, 2)
		began := time.Now()
		served, refused := queue(t.Context(), l, 5)
		g.Expect(served).To(HaveLen(1))
		g.Expect(refused).To(HaveLen(2))
		g.Expect(<-refused).To(MatchError(errTooBusy))
		g.Expect(<-refused).To(MatchError(errTooBusy))
		g.Expect(time.Since(began)).To(BeZero())

		l.release() // one from the queue begins to work, which leaves room for another
		synctest.Wait()
		g.Expect(served).To(HaveLen(2))
		again, refused := queue(t.Context(), l, 2)
		g.Expect(again).To(BeEmpty())
		g.Expect(<-refused).To(MatchError(errTooBusy))
		for range 3 {
			l.release()
		}
		synctest.Wait()
		g.Expect(served).To(HaveLen(3))
		g.Expect(again).To(HaveLen(1))
	})
}

func TestLimiterWaitsNoLongerThanTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		l := newLimiter(1, 1)
		g.Expect(l.acquire(t.Context())).To(Succeed())
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := l.acquire(ctx)
		g.Expect(err).To(MatchError(context.DeadlineExceeded))
		g.Expect(err).NotTo(MatchError(errTooBusy), "the deadline has passed: to try again is of no use")
		g.Expect(time.Since(began)).To(Equal(5 * time.Second))
		g.Expect(l.calls.Load()).To(BeEquivalentTo(1), "its place in the queue is free")

		l.release()
		g.Expect(l.acquire(t.Context())).To(Succeed(), "a caller that left holds no place")
	})
}

func TestLimiterGivesNoLeaveForACallThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		l := newLimiter(1, 1)
		ended := errors.New("the client has gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(ended)
		g.Expect(l.acquire(ctx)).To(MatchError(ended), "even where there is room")
		g.Expect(l.calls.Load()).To(BeZero())

		// A place becomes free at the moment when the call ends.
		g.Expect(l.acquire(t.Context())).To(Succeed())
		ending, end := context.WithCancelCause(t.Context())
		served, refused := queue(ending, l, 1)
		end(ended)
		l.release()
		synctest.Wait()
		g.Expect(served).To(BeEmpty())
		g.Expect(<-refused).To(MatchError(ended))
		g.Expect(l.working.TryAcquire(1)).To(BeTrue(), "the place is free for the next")
	})
}

func TestAShadowGivesWayToCallsThatHoldASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, ran := NewWithT(t), make(chan struct{}, 1)
		h := &Handler{MaxBytes: 1 << 20}
		h.prepare()
		defer h.Stop()
		h.Serve("/validate/a", chain.Config{Validating: true, Steps: []chain.Step{{
			Name: "a", New: newPod, Mode: chain.ModeShadow,
			Run: func(context.Context, *chain.Call, kruntime.Object, kruntime.Object) error {
				ran <- struct{}{}
				return nil
			},
		}}})
		g.Expect(h.slots.acquire(t.Context())).To(Succeed())
		g.Expect((<-sent(h, "/validate/a", podReview())).Code).To(Equal(http.StatusOK))
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		g.Expect(ran).NotTo(Receive(), "a call is at work")
		h.slots.release()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		g.Expect(ran).To(Receive())
	})
}

const shops = "/convert/shops.example.com"

// sent sends a request, and returns where its answer arrives.
func sent(h *Handler, path string, body []byte) chan *httptest.ResponseRecorder {
	answered := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
		answered <- w
	}()
	synctest.Wait()
	return answered
}

func newPod() kruntime.Object { return &corev1.Pod{} }

// manyContainers is a pod that takes more than decode.Free.
func manyContainers(n int) []byte {
	return []byte(`{"spec":{"containers":[` + strings.Repeat(`{"name":"a","image":"b"},`, n) + `{}]}}`)
}

// serveStep serves a step that runs a function.
func serveStep(h *Handler, run func()) {
	h.Serve("/mutate/a", chain.Config{Steps: []chain.Step{{
		Name: "a", New: newPod, Mutates: true,
		Run: func(context.Context, *chain.Call, kruntime.Object, kruntime.Object) error { run(); return nil },
	}}})
}

// hung returns how many conversions have been left behind and hang.
func hung(h *Handler) float64 {
	registry := prometheus.NewRegistry()
	registry.MustRegister(h.Counts().conversionsLeft)
	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	return families[0].GetMetric()[0].GetGauge().GetValue()
}

// podReview is the review of a pod.
func podReview() []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","resource":{"version":"v1","resource":"pods"},"operation":"CREATE","object":%s}}`, manyContainers(2000))
}

// converting is a Handler with one conversion, which takes room for an object of as many bytes and waits for until.
func converting(t *testing.T, object int64, until chan struct{}) (*Handler, chan string) {
	logs := make(chan string, 2*callsAtWork)
	h := &Handler{MaxBytes: 1 << 20, Log: funcr.New(func(_, args string) { logs <- args }, funcr.Options{})}
	h.prepare()
	t.Cleanup(h.Stop)
	h.Convert(map[string]Conversion{shops: {Name: "shops.example.com", Answer: func(ctx context.Context, _ []byte, room Room) ([]byte, error) {
		release, err := room(ctx, object)
		if err != nil {
			return nil, err
		}
		defer release()
		<-until
		return []byte("converted"), nil
	}}})
	return h, logs
}

func TestConversionsThatHangLeaveAdmissionAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, until := NewWithT(t), make(chan struct{})
		h, logs := converting(t, decode.Free, until)
		var draining atomic.Bool
		h.Draining = draining.Load
		serveStep(h, func() {})
		admits := func() {
			began := time.Now()
			g.Expect((<-sent(h, "/mutate/a", podReview())).Code).To(Equal(http.StatusOK))
			g.Expect(time.Since(began)).To(BeZero(), "no call waits")
		}
		large, hanging := bytes.Repeat([]byte("x"), 2*firstBytes), []chan *httptest.ResponseRecorder{}
		for range callsAtWork {
			hanging = append(hanging, sent(h, shops+"?timeout=2s", large[:1]))
		}
		g.Expect(h.converting.calls.Load()).To(BeEquivalentTo(callsAtWork))
		g.Expect(h.objects.TryAcquire(decode.MaxMemory)).To(BeTrue(), "small objects are not counted")
		admits()
		draining.Store(true)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		draining.Store(false)
		for _, answered := range hanging {
			w := <-answered
			g.Expect(w.Header().Get("Connection")).To(Equal("close"), "a program that stops waits no longer than their deadlines")
			g.Expect(w.Body.String()).To(HavePrefix("conversion of shops.example.com: no answer before the deadline"))
		}
		g.Expect(h.converting.calls.Load()).To(BeZero())
		got := <-sent(h, shops, large)
		g.Expect(got.Code).To(Equal(http.StatusInternalServerError), "there are slots, but no more may hang")
		g.Expect(got.Body.String()).To(HavePrefix("conversion of shops.example.com: 100 of its runs still hang"))
		for range 10 { // of a hundred
			g.Expect(logs).To(Receive(ContainSubstring("no answer before the deadline")))
		}
		g.Expect(logs).To(Receive(And(ContainSubstring("100 of its runs still hang"), ContainSubstring(`"withheld"=90`), ContainSubstring(`"customResourceDefinition"="shops.example.com"`))))
		g.Expect(hung(h)).To(BeEquivalentTo(callsAtWork))
		admits()
		h.Convert(map[string]Conversion{shops: *h.conversions[shops]})
		g.Expect((<-sent(h, shops, large)).Body.String()).To(ContainSubstring("100 of its runs"), "another registration does not make them end")
		close(until)
		synctest.Wait()
		g.Expect(hung(h)).To(BeZero())
		g.Expect((<-sent(h, shops, large)).Body.String()).To(Equal("converted"))
		g.Expect(h.runner.Objects.LeftBehind.Bytes()).To(BeZero())
		g.Expect(h.bodies.free.TryAcquire(bodiesAtOnce<<20)).To(BeTrue(), "all memory for bodies is free")
	})
}

func TestAConversionAndAStepThatHangAtOnceAreCountedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, until := NewWithT(t), make(chan struct{})
		h, _ := converting(t, 8<<20, until)
		serveStep(h, func() { <-until })
		body := bytes.Repeat([]byte("x"), 2*firstBytes)
		conversion, step := sent(h, shops+"?timeout=1s", body), sent(h, "/mutate/a?timeout=1s", podReview())
		<-conversion
		<-step
		synctest.Wait()
		g.Expect(h.runner.Objects.LeftBehind.Bytes()).To(BeNumerically(">", 8<<20+2*len(body)+decode.Free), "both, and the body with room for an answer")
		g.Expect(h.objects.TryAcquire(decode.MaxMemory)).To(BeTrue(), "what hangs delays no conversion")
		h.objects.Release(decode.MaxMemory)
		g.Expect(h.bodies.free.TryAcquire(bodiesAtOnce << 20)).To(BeTrue())
		h.bodies.free.Release(bodiesAtOnce << 20)
		for range 3 {
			<-sent(h, shops+"?timeout=1s", body)
		}
		g.Expect((<-sent(h, shops, body)).Body.String()).To(MatchRegexp(`^conversion of shops.example.com: 4 of its runs still hang, and all that hang hold 3\d MiB`))
		g.Expect((<-sent(h, "/mutate/a", podReview())).Body.String()).To(ContainSubstring("1 of its runs still hang"))
		close(until)
		synctest.Wait()
		g.Expect(h.runner.Objects.LeftBehind.Bytes()).To(BeZero())
		g.Expect((<-sent(h, "/mutate/a", podReview())).Code).To(Equal(http.StatusOK))
	})
}

func TestConversionsShareTheMemoryForTheirObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, until := NewWithT(t), make(chan struct{}, 60)
		h, _ := converting(t, 32*293<<10, until)
		all, answers := h.objects, []chan *httptest.ResponseRecorder{}
		together, fit := int64(32*293<<10), decode.MaxMemory/int64(32*293<<10)
		for i := range int64(60) { // those that get memory have time until the others have ended
			timeout := "?timeout=10s"
			if i < 2*fit {
				timeout = "?timeout=20s"
			}
			answers = append(answers, sent(h, shops+timeout, []byte("x")))
		}
		g.Expect(all.TryAcquire(decode.MaxMemory-fit*together+1)).To(BeFalse(), "as many as fit hold memory")
		serveStep(h, func() {})
		began := time.Now()
		g.Expect((<-sent(h, "/mutate/a", podReview())).Code).To(Equal(http.StatusOK))
		g.Expect(time.Since(began)).To(BeZero(), "steps have their own")
		for range fit {
			until <- struct{}{}
		}
		synctest.Wait()
		ended := 0
		for _, a := range answers {
			ended += len(a)
		}
		g.Expect(ended).To(BeEquivalentTo(fit))
		g.Expect(until).To(BeEmpty())

		time.Sleep(20 * time.Second)
		synctest.Wait()
		late := 0
		for _, a := range answers {
			if body := (<-a).Body.String(); body != "converted" {
				g.Expect(body).To(ContainSubstring("no answer before the deadline"))
				if bytes.Contains([]byte(body), []byte(hang.ErrNoMemory.Error())) {
					late++
				}
			}
		}
		g.Expect(late).To(BeEquivalentTo(60-2*fit), "those that waited for memory say so")
		g.Expect(hung(h)).To(BeEquivalentTo(fit), "the others ended when their context did")
		close(until)
		synctest.Wait()
		g.Expect(all.TryAcquire(decode.MaxMemory)).To(BeTrue())
		g.Expect(h.runner.Objects.LeftBehind.Bytes()).To(BeZero())
	})
}

var _ = Describe("Metrics", func() {
	var (
		registry *prometheus.Registry
		m        *Metrics
	)
	BeforeEach(func() {
		registry = prometheus.NewPedanticRegistry()
		m = Must(NewMetrics(registry))
	})
	shown := func() string { GinkgoHelper(); return Shown(registry) }

	It("show the limits, and are shared by the Managers of a program", func() {
		Must(NewMetrics(registry)).inFlight.Inc()
		m.inFlight.Inc()
		for _, line := range []string{"slots 100", "in_flight_limit 500", "in_flight_requests 2"} {
			Expect(shown()).To(ContainSubstring("\neirinix_admission_" + line + "\n"))
		}
	})

	It("work unregistered, those of a Handler without any as well", func() {
		before := shown()
		h, other := &Handler{}, &Handler{}
		for _, m := range []*Metrics{other.Counts(), h.Counts()} {
			m.inFlight.Inc()
			m.requestBytes.Observe(1)
			m.Refused(400)
		}
		Expect(shown()).To(Equal(before), "nothing of it is in a registry")
		Expect(h.Counts()).To(BeIdenticalTo(h.Counts()))
		Expect(h.Counts()).NotTo(BeIdenticalTo(other.Counts()), "two Handlers share no counter")
	})

	It("and traces cost a call no memory without a Tracer, although it carries a trace", func() {
		h := &Handler{}
		asked := httptest.NewRequest(http.MethodPost, "/mutate/volumes", http.NoBody)
		asked.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		w := httptest.NewRecorder()
		h.prepare()
		Expect(testing.AllocsPerRun(100, func() {
			same, ended := h.traced(w, asked, "volumes")
			h.runner.Logger(same.Context())
			h.refusedSpan(same.Context(), http.StatusServiceUnavailable, nil)
			h.Counts().requestBytes.Observe(22 << 10)
			ended(http.StatusOK)
		})).To(BeZero())
	})
})
