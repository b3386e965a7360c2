package world

// This file is calls whose bodies arrive in parts: while their replica stops, or side by side.

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// trickles calls a replica that stops: the header arrives before the end of its DrainDelay, and the rest after it. The replica
// answers.
func (w *World) trickles(p *process) {
	rng, s := w.stream("trickles "+p.name, 0), w.servers[0]
	if rng.IntN(3) > 0 || !w.wait(w.plan.drain()-500*time.Millisecond) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	began := time.Now()
	wires, err := w.network.dial(ctx, w.controlPlane, p.address)
	if err != nil {
		return
	}
	defer func() { _ = wires.Close() }()
	conn := tls.Client(wires, &tls.Config{InsecureSkipVerify: true, CurvePreferences: cheapest, GetClientCertificate: s.shows}) //nolint:gosec // whom it calls, others check
	entries := s.entries(configurations[1])
	if conn.HandshakeContext(ctx) != nil || len(entries) == 0 {
		return
	}
	_, at, err := s.client(entries[0].ClientConfig)
	if err != nil {
		return
	}
	body := strings.Repeat(" ", 200)
	path := at[strings.Index(at[len("https://"):], "/")+len("https://"):]
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, w.plan.serverName(), len(body), body[:100])
	if err != nil || !w.wait(time.Duration(600+rng.IntN(1000))*time.Millisecond) {
		return
	}
	if _, err = io.WriteString(conn, body[100:]); err == nil {
		_ = conn.SetReadDeadline(time.Now().Add(requestTime))
		var answer *http.Response
		if answer, err = http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
			_ = answer.Body.Close()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)) && !w.troubledSince(began, rough, slow, apart) && !p.host.isDead() {
		w.breaks("%s is stopping, and does not answer a request whose body has arrived late: %v", p, err)
	}
}

// stillFollows sees that a replica that drains still follows its objects, which calls in flight use.
func (w *World) stillFollows(p *process) {
	p.wire.mu.Lock()
	follows := len(p.wire.open) > 0
	p.wire.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if calm := !w.troubledSince(time.Now().Add(-settling), rough, slow, spoiled, lapsed, apart, unread, unissued); !follows && calm && !p.readySince.IsZero() && w.plan.settled("right") {
		select {
		case <-p.ended:
		default:
			w.breaks("%s is stopping, and follows nothing any more, although it still serves", p)
		}
	}
}

// together is the number of calls whose bodies arrive at the same time, each in two halves.
const together = 4

// arriveTogether sees that each of some calls is answered as if it was alone.
func (w *World) arriveTogether(p *process, mux http.Handler, of hook) {
	var all sync.WaitGroup
	for n := range together {
		all.Go(func() {
			pod := podIn("shop", "first")
			pod.SetLabels(map[string]string{"of": strings.Repeat(fmt.Sprint(n), 10*(n+1))})
			body := reviewOf(pod)
			var sent admissionv1.AdmissionReview
			if err := json.Unmarshal(body, &sent); err != nil {
				w.violate("a review cannot be read: %v", err)
			}
			w.tallied(of.ClientConfig, func(t *tally) { t.sent++ })
			half, answer := len(body)/2, httptest.NewRecorder()
			request := httptest.NewRequest(http.MethodPost, of.path()+"?timeout=10s", io.MultiReader(bytes.NewReader(body[:half]), &late{w: w}, bytes.NewReader(body[half:])))
			request.Header.Set("Content-Type", "application/json")
			request.ContentLength = int64(len(body))
			mux.ServeHTTP(answer, request)
			var got admissionv1.AdmissionReview
			if answer.Code == http.StatusBadRequest || answer.Code == http.StatusOK && (json.Unmarshal(answer.Body.Bytes(), &got) != nil || got.Response == nil || got.Response.UID != sent.Request.UID) {
				w.violate("%s answers a call whose body has arrived beside that of others with %d %.300s", p, answer.Code, answer.Body)
			}
		})
	}
	all.Wait()
}

// late is a part of a body without a byte that comes after a second.
type late struct{ w *World }

func (l *late) Read([]byte) (int, error) {
	l.w.wait(time.Second)
	return 0, io.EOF
}
