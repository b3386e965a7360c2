package main

// This file measures part fleet of section cost: many replicas of one deployment.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
)

const (
	fleetSize   = 20
	retention   = 30 * time.Second // of a CA that was replaced
	outageBound = 2                // requests per replica and minute
	putBound    = 1.5              // PUTs for each necessary one
)

// fleet measures twenty replicas of one deployment: their memory, a rotation, a restart of the API server, and an
// outage. The API server reaches only the first of them.
func (b *costBench) fleet(ctx context.Context) (err error) {
	const name = "cost-fleet"
	if err := b.namespaces(ctx, name); err != nil {
		return err
	}
	err = b.client.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "replicas", Namespace: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	})
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	o := costOptions(name)
	o.ServiceName, o.Port = "replicas", int32(port)
	var replicas []*replica
	defer func() { err = errors.Join(err, endAll(replicas)) }()
	add := func(listen string) error {
		o.ListenAddress = listen
		r, err := startReplica(ctx, b.plane.Config(), o)
		if err == nil {
			replicas = append(replicas, r)
		}
		return err
	}
	if err := add(fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
		return err
	}
	one, err := memoryAtRest(ctx)
	if err != nil {
		return err
	}
	for len(replicas) < fleetSize {
		if err := add("127.0.0.1:0"); err != nil {
			return err
		}
	}
	all, err := memoryAtRest(ctx)
	if err != nil {
		return err
	}
	b.title("Memory at rest of %d Managers in a process", fleetSize)
	b.line("%-44s %9s %12s %12s", "", "heap KiB", "stacks KiB", "goroutines")
	b.line("%-44s %9.0f %12.0f %12.0f", "this program with one", one.heap/1024, one.stacks/1024, one.goroutines)
	b.line("%-44s %9.0f %12.0f %12.1f", "each further one", (all.heap-one.heap)/(fleetSize-1)/1024,
		(all.stacks-one.stacks)/(fleetSize-1)/1024, (all.goroutines-one.goroutines)/(fleetSize-1))
	for _, part := range []func(context.Context, []*replica) error{b.rotation, b.restart, b.outage} {
		if err := part(ctx, replicas); err != nil {
			return err
		}
	}
	return nil
}

type memory struct{ heap, stacks, goroutines float64 }

// memoryAtRest waits until the temporary memory of a start is free, and returns the memory in use.
func memoryAtRest(ctx context.Context) (memory, error) {
	if err := pause(ctx, settling/2); err != nil {
		return memory{}, err
	}
	runtime.GC()
	runtime.GC() // frees the objects that the first one finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memory{float64(m.HeapAlloc), float64(m.StackInuse), float64(runtime.NumGoroutine())}, nil
}

// rotation counts the requests of a CA rotation, until the old CA is dropped.
func (b *costBench) rotation(ctx context.Context, replicas []*replica) error {
	from := time.Now()
	if err := replicas[0].RotateCA(ctx, eirinix.RotateOptions{}); err != nil {
		return err
	}
	took := time.Since(from)
	if err := pause(ctx, retention+settling); err != nil {
		return err
	}
	t := tallyOf(from, time.Now(), replicas...)
	won := t.having(func(t *trip) bool { return t.updated(http.StatusOK) })
	lost := t.having(func(t *trip) bool { return t.updated(http.StatusConflict) })
	b.title("A rotation with %d replicas, until the old CA is dropped", len(replicas))
	b.line("RotateCA took %s; %d PUTs won, %d lost; %d requests, %d in the busiest second", took.Round(10*time.Millisecond), won, lost, len(t), t.busiest())
	t.kinds(b.report, 1)
	b.judge(float64(won+lost)/float64(max(won, 1)), putBound, "rotation, %d replicas: PUTs/PUTs that won", len(replicas))
	return nil
}

// restart counts the requests that a restart of the API server causes, until a minute after it is ready again.
func (b *costBench) restart(ctx context.Context, replicas []*replica) error {
	from := time.Now()
	if err := b.plane.APIServer().Restart(ctx); err != nil {
		return err
	}
	took := time.Since(from)
	if err := pause(ctx, time.Minute); err != nil {
		return err
	}
	t := tallyOf(from, time.Now(), replicas...)
	b.title("A restart of the API server with %d replicas, and the minute after", len(replicas))
	b.line("ready again in %s; %d requests, %d in the busiest second", took.Round(100*time.Millisecond), len(t), t.busiest())
	t.kinds(b.report, 1)
	return nil
}

// outage counts the requests to an API server that is down. It counts the first minute and the next two separately,
// because every back-off has then had a minute to grow. It also counts the requests in the minute after the API server
// is back.
func (b *costBench) outage(ctx context.Context, replicas []*replica) error {
	if err := b.plane.APIServer().Stop(); err != nil {
		return err
	}
	gone := time.Now()
	if err := pause(ctx, 3*time.Minute); err != nil {
		return err
	}
	perReplica := func(from, to time.Duration) float64 {
		return float64(len(tallyOf(gone.Add(from), gone.Add(to), replicas...))) / float64(len(replicas)) / (to - from).Minutes()
	}
	first, later := perReplica(0, time.Minute), perReplica(time.Minute, 3*time.Minute)
	during := tallyOf(gone.Add(time.Minute), gone.Add(3*time.Minute), replicas...)
	if err := b.plane.APIServer().Restart(ctx); err != nil {
		return err
	}
	back := time.Now()
	if err := pause(ctx, time.Minute); err != nil {
		return err
	}
	after := tallyOf(back, time.Now(), replicas...)
	b.title("An API server that is down, %d replicas: requests per replica and minute", len(replicas))
	b.line("minute 1: %.1f; minutes 2 and 3: %.1f, %d of all replicas in the busiest second", first, later, during.busiest())
	during.kinds(b.report, 0.5/float64(len(replicas)))
	b.line("in the minute after:     %d requests, %d in the busiest second", len(after), after.busiest())
	b.judge(later, outageBound, "requests per replica and minute, API server down")
	return nil
}
