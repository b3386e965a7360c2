package main

// This file measures the cost of the library apart from admission requests.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// costSettings selects the parts of section cost, and the duration of part rest.
type costSettings struct {
	parts string
	rest  time.Duration
}

// costParts are the parts of section cost, in the order in which they run.
var costParts = []struct {
	name string
	run  func(*costBench, context.Context) error
}{
	{"rest", (*costBench).atRest},
	{"fleet", (*costBench).fleet},
	{"start", (*costBench).start},
}

// costBench holds the state that the parts share: their own API server.
type costBench struct {
	*report
	costSettings
	plane  *eirinixtest.ControlPlane
	client client.Client
}

// sectionCost measures the cost of the library apart from admission requests: requests to the API server, memory and
// start time. It uses only the library's public API, so that it can measure another version of the library.
func sectionCost(ctx context.Context, r *report, s costSettings) (err error) {
	if os.Getenv(assetsVariable) == "" {
		r.skip("cost of running", assetsVariable+" is not set (make assets builds the binaries and prints their folder)")
		return nil
	}
	klog.SetLogger(logr.Discard()) // client-go logs there that the API server is down
	plane, err := eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	b := &costBench{report: r, costSettings: s, plane: plane}
	if b.client, err = client.New(plane.Config(), client.Options{}); err != nil {
		return err
	}
	for _, part := range costParts {
		if !strings.Contains(","+s.parts+",", ","+part.name+",") || ctx.Err() != nil {
			continue
		}
		if err := part.run(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// namespaces creates one namespace for the Secret and one for the pods.
func (b *costBench) namespaces(ctx context.Context, name string) error {
	for _, name := range []string{name, name + "-pods"} {
		if err := b.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	return nil
}

// costOptions returns the options of a program whose Secret is in a namespace. The namespace's name is its fingerprint
// too.
func costOptions(name string) eirinix.ManagerOptions {
	return eirinix.ManagerOptions{
		Namespace:           name + "-pods",
		WebhookNamespace:    name,
		OperatorFingerprint: name,
		DrainDelay:          -1,
		Logger:              quietLogger().Sugar(),
	}
}

// replica is a Manager with one mutating step, whose requests to the API server are counted.
type replica struct {
	*eirinix.ExtensionManager
	*meter
	cancel context.CancelFunc
	done   chan error
}

// newReplica creates a Manager that connects to the API server as a pod does: with the default rate limits.
func newReplica(config *rest.Config, o eirinix.ManagerOptions) (*replica, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 0, 0
	r := &replica{meter: &meter{}, done: make(chan error, 1)}
	r.count(config)
	o.RestConfig = config
	r.ExtensionManager = eirinix.NewManager(o)
	eirinixtest.SetLifetimes(r.ExtensionManager, eirinixtest.Lifetimes{Retain: retention})
	return r, r.AddExtension(eirinix.Mutation[*corev1.Pod]{ID: "label", Apply: func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, "bench.example.org/replica", "yes")
		return nil
	}})
}

// startReplica starts a replica and returns when it is ready.
func startReplica(ctx context.Context, config *rest.Config, o eirinix.ManagerOptions) (*replica, error) {
	r, err := newReplica(config, o)
	if err != nil {
		return nil, err
	}
	ctx, r.cancel = context.WithCancel(ctx)
	go func() { r.done <- r.Run(ctx) }()
	select {
	case <-r.Ready():
		return r, nil
	case err := <-r.done:
		r.cancel()
		return nil, fmt.Errorf("a Manager ended before it was ready: %w", err)
	case <-time.After(time.Minute):
		return nil, errors.Join(errors.New("a Manager is not ready after a minute"), r.end())
	}
}

func (r *replica) end() error {
	r.cancel()
	return <-r.done
}

// endAll stops the replicas together.
func endAll(replicas []*replica) (err error) {
	for _, r := range replicas {
		r.cancel()
	}
	for _, r := range replicas {
		err = errors.Join(err, r.end())
	}
	return err
}

// pause waits, unless the context ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// freePort returns a port on loopback on which no process listens.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	address, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("%s has no port", l.Addr())
	}
	return address.Port, l.Close()
}
