package main

// This file measures a server's memory and latency under attack.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/manifests"
)

const (
	// nameHostile is a section that runs only on request. Its figures are not ratios, so it needs an idle machine.
	nameHostile = "hostile"

	lateBound = 250 // ms, bound of the 99th percentile of the calls during an attack
	every     = 20 * time.Millisecond
)

// attack causes as much load as it can until its context ends.
type attack struct {
	name  string
	least time.Duration // the minimum duration for any effect
	run   func(context.Context, *child) error
}

// sectionHostile attacks a server of ours in the container of the manifests. Meanwhile it calls the server as
// an API server does.
func sectionHostile(ctx context.Context, r *report, length time.Duration) (err error) {
	if runtime.GOOS != "linux" {
		r.skip("attacks on a server", "the memory of a process is read from /proc, which Linux alone has")
		return nil
	}
	if err := sectionShadows(ctx, r); err != nil {
		return err
	}
	limit, environment, err := container()
	if err != nil {
		return err
	}
	normal, err := loadReview(middle)
	if err != nil {
		return err
	}
	large, err := loadReview(sizes[len(sizes)-1])
	if err != nil {
		return err
	}
	attacks := append([]attack{{name: "none", run: func(ctx context.Context, _ *child) error { <-ctx.Done(); return nil }}}, attacks()...)
	if os.Getenv(assetsVariable) == "" {
		r.skip("attack through an API server", assetsVariable+" is not set (make assets builds the binaries and prints their folder)")
	} else {
		through, stop, err := attackThroughAPIServer(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
		attacks = append(attacks, through)
	}
	r.title("Attacks on a server with a limit of %d MiB, pods of %s and %s beside them", limit>>20, normal.name, large.name)
	var idle effect
	for i, a := range attacks {
		e, err := a.judge(ctx, r, length, limit, environment, normal, large)
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		if i == 0 {
			idle = e
		}
		r.line("  of idle: p99 with %s %.1f times, memory %.1f times", normal.name, e.p99/idle.p99, e.peak/idle.peak)
	}
	return nil
}

// effect is what an attack does to the server: the 99th percentile of the calls beside it, in ms, and its peak memory.
type effect struct{ p99, peak float64 }

// judge attacks a server that has just started, and judges its memory and its answers to the neighbours.
func (a attack) judge(ctx context.Context, r *report, length time.Duration, limit int64, environment []string, normal, large *review) (e effect, err error) {
	server, err := startProgram(environment, "-hostile")
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	neighbours := make([]*neighbour, 0, 2)
	for _, review := range []*review{normal, large} {
		n := &neighbour{client: server.client(false), url: server.at(hostilePath), review: review}
		if err := n.call(ctx); err != nil {
			return e, err
		}
		neighbours = append(neighbours, n)
	}
	attacking, cancel := context.WithTimeout(ctx, max(length, a.least))
	defer cancel()
	var beside sync.WaitGroup
	for _, n := range neighbours {
		beside.Go(func() { n.run(attacking) })
	}
	if err := a.run(attacking, server); err != nil {
		return e, err
	}
	<-attacking.Done()
	beside.Wait()
	peak, err := peakMemory(server.cmd.Process.Pid)
	if err != nil {
		return e, err
	}
	failed := 0
	for _, n := range neighbours {
		slices.Sort(n.took)
		failed += n.failed
		r.line("%s: %d calls with %s beside it, p50 %.1f ms, p99 %.1f ms, slowest %.1f ms", a.name, len(n.took), n.review.name, n.at(0.5), n.at(0.99), n.at(1))
		if n.last != nil {
			r.line("  the last call that failed: %v", n.last)
		}
	}
	r.judge(float64(peak)/(1<<20), float64(limit>>20), "%s: peak memory, MiB", a.name)
	r.judge(neighbours[0].at(0.99), lateBound, "%s: p99 with %s, ms", a.name, normal.name)
	r.judge(float64(failed), 0, "%s: calls beside it that failed", a.name)
	return effect{neighbours[0].at(0.99), float64(peak)}, nil
}

// container returns the memory limit and the environment of the container of the manifests.
func container() (limit int64, environment []string, err error) {
	m := eirinix.NewManager(eirinix.ManagerOptions{ServiceName: "bench", WebhookNamespace: "bench"})
	objects, err := []client.Object(nil), m.AddExtension(eirinix.Mutation[*corev1.Pod]{Apply: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil }})
	if err == nil {
		objects, err = manifests.Of(m, manifests.Options{Image: "example.org/bench:1"})
	}
	if err != nil {
		return 0, nil, err
	}
	for _, o := range objects {
		d, ok := o.(*appsv1.Deployment)
		if !ok {
			continue
		}
		c := d.Spec.Template.Spec.Containers[0]
		limit = c.Resources.Limits.Memory().Value()
		for _, e := range c.Env {
			if e.ValueFrom == nil { // MEMORY_LIMIT_MIB has a ValueFrom; its value, the limit, is substituted here
				environment = append(environment, e.Name+"="+strings.ReplaceAll(e.Value, "$(MEMORY_LIMIT_MIB)", strconv.FormatInt(limit>>20, 10)))
			}
		}
		return limit, environment, nil
	}
	return 0, nil, errors.New("the manifests hold no Deployment")
}

// peakMemory returns the peak memory of a process in bytes, without the resident pages of its file: a system takes those
// back before it ends a container for its memory.
func peakMemory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	kb := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		kb[name], _ = strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
	}
	if kb["VmHWM"] == 0 {
		return 0, errors.New("the system does not say how much memory a process has had")
	}
	return (kb["VmHWM"] - kb["RssFile"]) << 10, nil
}

// neighbour calls as an API server does, one call after the other on one connection.
type neighbour struct {
	client *http.Client
	url    string
	review *review
	took   []float64 // ms, of all calls, also of those that failed
	failed int
	last   error // error of the last call that failed
}

func (n *neighbour) run(ctx context.Context) {
	for tick := time.NewTicker(every); ; {
		began := time.Now()
		err := n.call(context.WithoutCancel(ctx))
		n.took = append(n.took, float64(time.Since(began).Microseconds())/1000)
		if err != nil {
			n.failed++
			n.last = err
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
	}
}

// at returns the duration that a share of the calls did not exceed.
func (n *neighbour) at(share float64) float64 { return n.took[int(share*float64(len(n.took)-1))] }

func (n *neighbour) call(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url, bytes.NewReader(n.review.body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	resp, err := n.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return checkAnswer(spec{injection(), wanted, n.review}, resp.StatusCode, text)
}
