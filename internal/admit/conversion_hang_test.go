package admit

// This file is about conversions that hang, and about the memory of conversions.

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/hang"
)

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

func newPod() runtime.Object { return &corev1.Pod{} }

// manyContainers is a pod that takes more than decode.Free.
func manyContainers(n int) []byte {
	return []byte(`{"spec":{"containers":[` + strings.Repeat(`{"name":"a","image":"b"},`, n) + `{}]}}`)
}

// serveStep serves a step that runs a function.
func serveStep(h *Handler, run func()) {
	h.Serve("/mutate/a", chain.Config{Steps: []chain.Step{{
		Name: "a", New: newPod, Mutates: true,
		Run: func(context.Context, *chain.Call, runtime.Object, runtime.Object) error { run(); return nil },
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
		h, logs := converting(t, 0, until)
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
		for range callsAtWork {
			g.Expect(logs).To(Receive(ContainSubstring("no answer before the deadline")))
		}
		g.Expect(logs).To(Receive(And(ContainSubstring("100 of its runs still hang"), ContainSubstring(`"customResourceDefinition"="shops.example.com"`))))
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
