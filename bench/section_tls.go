package main

// This file measures a server process over TLS.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// tlsBounds are the bounds for the server's CPU time as a ratio to the Defaulter's. They hold for HTTP/1.1, with which
// API servers call Services.
var tlsBounds = map[string]float64{"4KB": 0.20, "22KB": 0.11, "310KB": 0.08}

// connections is the number of concurrent requests. It is enough to keep a server on one core busy.
const connections = 4

// sectionTLS compares the server's CPU time over TLS. The server is a separate process, pinned to one core, and the
// client runs on another.
func sectionTLS(r *report, p plan) (err error) {
	server, undo, err := pinnedChild(r)
	if err != nil {
		return err
	}
	defer undo()
	defer func() { err = errors.Join(err, server.stop()) }()
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		client := server.client(protocol == "HTTP/2")
		for _, size := range sizes {
			rev, err := loadReview(size)
			if err != nil {
				return err
			}
			var works []*remote
			for _, p := range peers() {
				w := &remote{work: work{name: p.name}, client: client, url: server.at(injectionPath(size, p.name) + "/"), body: rev.body}
				if err := w.check(spec{injection(), wanted, rev}, protocol); err != nil {
					return fmt.Errorf("%s over %s: %w", p.name, protocol, err)
				}
				works = append(works, w)
			}
			if err := measureRemote(p, server, works); err != nil {
				return err
			}
			r.title("Over TLS, %s, %s pod, one injection: the server's CPU time", protocol, size)
			base := works[slices.IndexFunc(works, func(w *remote) bool { return w.name == nameDefaulter })]
			r.line("%-28s %11s %12s   %s", "", "CPU us/op", "op/s", "CPU as a ratio to "+base.name+" (quartiles)")
			for _, w := range works {
				x := w.ratioTo(&base.work)
				r.line("%-28s %11.1f %12.0f   %.3f (%.3f-%.3f)", w.name, quartiles(w.cpu).median, quartiles(w.rate).median, x.median, x.low, x.high)
			}
			if us := works[slices.IndexFunc(works, func(w *remote) bool { return w.name == nameOurs })]; protocol == "HTTP/1.1" {
				r.judge(us.ratioTo(&base.work).median, tlsBounds[size], "TLS, %s, %s: CPU, ours/Defaulter", protocol, size)
			}
		}
		client.CloseIdleConnections()
	}
	return nil
}

// pinnedChild starts the server on one core and pins this process to another, until undo is called. If pinning is not
// possible, it prints a notice, and the figures include the cost of moving threads between cores.
func pinnedChild(r *report) (*child, func(), error) {
	undo := func() {}
	cpus := allowedCPUs()
	if len(cpus) < 2 {
		r.line("server and client are not pinned: this needs Linux and two CPUs")
	} else if err := pin(cpus[1]); err != nil {
		r.line("server and client are not pinned: %v", err)
		cpus = nil
	} else {
		undo = func() { _ = pin(cpus...) }
	}
	server, err := startChild()
	if err != nil {
		undo()
		return nil, nil, err
	}
	if len(cpus) >= 2 {
		if err := pin(cpus[0]); err != nil {
			r.line("the client is not pinned: %v", err)
		}
	}
	return server, undo, nil
}

// remote is work that another process does.
type remote struct {
	work
	client *http.Client
	url    string
	body   []byte
	rate   []float64     // operations per second, per round
	took   time.Duration // CPU time of the last trial slice
}

// once sends one request, and returns the answer and its protocol.
func (w *remote) once() (protocol string, answer []byte, err error) {
	resp, err := w.client.Post(w.url+"?timeout=10s", "application/json", bytes.NewReader(w.body))
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(answer))
	}
	return resp.Proto, answer, err
}

func (w *remote) check(s spec, protocol string) error {
	spoken, answer, err := w.once()
	if err != nil {
		return err
	}
	if !strings.HasPrefix(spoken, protocol) {
		return fmt.Errorf("spoke %s", spoken)
	}
	return checkAnswer(s, http.StatusOK, answer)
}

// many sends n requests on a few concurrent connections.
func (w *remote) many(n int) error {
	failed, tickets := make(chan error, connections), make(chan struct{}, n)
	for range n {
		tickets <- struct{}{}
	}
	close(tickets)
	for range connections {
		go func() {
			var first error
			for range tickets {
				if _, _, err := w.once(); err != nil && first == nil {
					first = err
				}
			}
			failed <- first
		}()
	}
	var errs error
	for range connections {
		errs = errors.Join(errs, <-failed)
	}
	return errs
}

func (w *remote) slice(server *child) (cpu, wall time.Duration, err error) {
	before, err := server.cpu(true)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := w.many(w.batch); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", w.name, err)
	}
	wall = time.Since(began)
	after, err := server.cpu(false)
	return after - before, wall, err
}

// measureRemote is measure for works that another process does.
func measureRemote(p plan, server *child, works []*remote) error {
	for _, w := range works {
		for w.batch = 2 * connections; ; w.batch = min(8*w.batch, int(float64(w.batch)*float64(p.slice)/float64(w.took))+1) {
			cpu, _, err := w.slice(server)
			if err != nil {
				return err
			}
			if w.took = max(cpu, time.Microsecond); cpu >= p.slice/2 {
				break
			}
		}
	}
	for round := range p.rounds {
		for i := range works {
			w := works[(round+i)%len(works)]
			cpu, wall, err := w.slice(server)
			if err != nil {
				return err
			}
			w.cpu = append(w.cpu, float64(cpu.Nanoseconds())/1e3/float64(w.batch))
			w.rate = append(w.rate, float64(w.batch)/wall.Seconds())
		}
	}
	return nil
}
