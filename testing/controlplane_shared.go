package eirinixtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// Shared has StartControlPlane give one control plane to all tests of the process that ask for it with equal options
// (Progress aside): the first of them starts it, also where they run in parallel, and it outlives them.
//
//	func TestMain(m *testing.M) { os.Exit(eirinixtest.Main(m)) }
//
//	func TestMyExtension(t *testing.T) {
//		t.Parallel()
//		cluster := eirinixtest.StartControlPlane(t, eirinixtest.Shared)
//		namespace := cluster.NewNamespace(t)
//
// Main stops it; a test cannot. Without Main it ends as after a crash: Linux kills the servers when the process ends, and
// the next control plane of the same user removes the files, elsewhere also the servers. A start that failed is not
// tried again: it fails each of the tests.
//
// What such tests must not have in common is theirs to name: a namespace each (NewNamespace), and a Manager's
// OperatorFingerprint, which names what it registers in the whole cluster. A test that freezes, stops or restarts API
// servers, or that changes what all see, wants a control plane of its own. A ginkgo suite that starts one in
// BeforeSuite has shared it already.
func Shared(o *ControlPlaneOptions) { o.shared = true }

// Main runs a package's tests, stops the control planes that they shared and returns the exit code of the tests. It is
// for TestMain, see Shared. What cannot be stopped or removed is told on standard error and does not change the code.
func Main(m interface{ Run() int }) int {
	code := m.Run()
	planes.stop(os.Stderr)

	return code
}

// planes are the control planes that this process shares. A library should have no such variable. This one is what
// sharing is: tests have nothing in common but their process, and Main must find what they have started.
var planes sharedPlanes

// sharedPlanes starts one control plane for each set of options.
type sharedPlanes struct {
	mu     sync.Mutex
	starts map[string]func() (*ControlPlane, error)
}

// take returns the control plane for the options, which the first call starts while the others wait.
func (s *sharedPlanes) take(opts ControlPlaneOptions) (*ControlPlane, error) {
	plane, err := s.startOf(opts)()
	if err != nil {
		return nil, err
	}

	if err := plane.usable(); err != nil {
		return nil, fmt.Errorf("eirinixtest: give the test that did this a control plane of its own, without Shared: %w", err)
	}

	return plane, nil
}

func (s *sharedPlanes) startOf(opts ControlPlaneOptions) func() (*ControlPlane, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	key := opts.key()
	if start, ok := s.starts[key]; ok {
		return start
	}

	if s.starts == nil {
		s.starts = map[string]func() (*ControlPlane, error){}
	}

	// The test that comes first must not take the others down with it, so the start has no context of a test.
	s.starts[key] = sync.OnceValues(func() (*ControlPlane, error) {
		plane, err := NewControlPlane(context.Background(), opts)
		if err == nil {
			plane.shared = true
		}

		return plane, err
	})

	return s.starts[key]
}

// key is equal for options that ask for the same control plane.
func (o ControlPlaneOptions) key() string {
	assets := o.Assets
	if assets == "" {
		assets = os.Getenv(assetsVariable) // tests may set it
	}

	return fmt.Sprintf("%q %t %q %q", assets, o.ControllerManager, o.APIServerArgs, o.LogDir)
}

// stop stops all of them, waiting for those that are being started.
func (s *sharedPlanes) stop(errs io.Writer) {
	s.mu.Lock()
	starts := s.starts
	s.starts = nil
	s.mu.Unlock()

	for _, start := range starts {
		plane, err := start()
		if err != nil {
			continue // the tests that wanted it have told
		}

		if err := plane.stop(); err != nil {
			_, _ = fmt.Fprintf(errs, "eirinixtest: %s\n", strings.TrimSpace(err.Error()))
		}
	}
}

var errShared = errors.New("leave it to Main to stop this control plane: it is shared")

// usable returns an error if what every test relies on does not run any more.
func (c *ControlPlane) usable() error {
	c.mu.Lock()
	etcd, manager, first := c.etcd, c.controllerManager, c.apiServers[0]
	c.mu.Unlock()

	first.mu.Lock()
	apiServer := first.process
	first.mu.Unlock()

	for _, p := range []*process{etcd, apiServer, manager} {
		if p == nil {
			continue
		}

		select {
		case <-p.exited:
			return fmt.Errorf("%s of the shared control plane had ended by itself: %w%s", p.name, p.ending(), p.logTail())
		default:
		}
	}

	if apiServer == nil {
		return fmt.Errorf("%s of the shared control plane was stopped", first.name)
	}

	return nil
}
