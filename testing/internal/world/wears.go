package world

// This file is more calls of one replica than may wait at once: one after the other, and many whose time is over while they wait. None
// of them is held against those behind it.

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// mostWaiting is the number of calls of a replica that may be at work and wait, all together, and atWork that of those at work.
const mostWaiting, atWork = 500, 100

// repeated is the number of calls of which a step fails, for each entry that may hold it: few of these failures are logged.
const repeated = 60

// wears has a replica answer calls, without connections.
func (w *World) wears() {
	s := w.servers[0]
	w.mu.Lock()
	p := w.settledOne(time.Now().Add(-settling))
	w.mu.Unlock()
	if p == nil || w.plan.Callers || w.plan.Records {
		return
	}
	mux, slow := p.host.serves(), podIn("shop", "first")
	slow.SetLabels(map[string]string{slowLabel: crowded.String()})
	var of *hook
	for _, h := range s.entries(configurations[1]) {
		selects, err := h.selects(context.Background(), ask{operation: admissionv1.Create, resource: podResource, kind: podKind, object: slow}, nil)
		if of == nil && err == nil && selects && (strings.HasPrefix(h.Name, "a.") || strings.HasPrefix(h.Name, "pods-")) {
			of = &h
		}
	}
	if mux == nil || of == nil {
		return
	}
	var from atomic.Int64
	call := func(of hook, body []byte, timeout string) (busy bool) {
		w.tallied(of.ClientConfig, func(t *tally) { t.sent++ })
		answer := httptest.NewRecorder()
		request := httptest.NewRequest(http.MethodPost, of.path()+"?timeout="+timeout, bytes.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		request.RemoteAddr = fmt.Sprintf("10.3.0.1:%d", from.Add(1))
		mux.ServeHTTP(answer, request)
		return answer.Code == http.StatusServiceUnavailable && strings.Contains(answer.Body.String(), "too many")
	}
	w.arriveTogether(p, mux, *of)
	quick, waits := reviewOf(podIn("shop", "first")), reviewOf(slow)
	refused := func(after string, args ...any) {
		if call(*of, quick, "10s") && p.leavingAt.IsZero() {
			w.violate("%s is too busy for a call, after %s", p, fmt.Sprintf(after, args...))
		}
	}
	w.tell(named(s.name), "sends %d calls to %s, one after the other, and then %d at once", mostWaiting, p, mostWaiting)
	for range mostWaiting {
		call(*of, quick, "10s")
	}
	failing := podIn("shop", "first")
	failing.SetLabels(map[string]string{failLabel: "yes"})
	for _, h := range s.entries(configurations[0]) {
		for range repeated {
			if strings.HasPrefix(h.Name, "pods-") || strings.HasPrefix(h.Name, lenient+"-sets.") {
				call(h, reviewOf(failing), "10s")
			}
		}
	}
	refused("%d others, one after the other", mostWaiting)
	w.mu.Lock()
	w.watch.crowded = time.Now().Add(settling)
	w.mu.Unlock()
	for n := range mostWaiting + atWork {
		timeout := "10s"
		switch n {
		case atWork: // the others are at work by then, and these wait
			if !w.wait(time.Second) {
				return
			}
		case mostWaiting:
			if !w.wait(2 * crowded) {
				return
			}
			refused("%d others at once", mostWaiting)
		}
		if n >= atWork && n < mostWaiting {
			timeout = "1s"
		}
		w.tasks.Go(func() { call(*of, waits, timeout) })
	}
	if w.wait(time.Second) {
		refused("%d others at once, of which most have waited in vain, and amid %d", mostWaiting, atWork)
	}
}
