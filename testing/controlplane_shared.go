package eirinixtest

// This file lets the tests of a process share control planes.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"code.cloudfoundry.org/eirinix/testing/internal/controlplane"
)

// Shared makes StartControlPlane return one control plane to all tests of the process that request it with equal
// options. Progress is not compared. The first of these tests starts it, also if they run in parallel, and it outlives
// them.
//
//	func TestMain(m *testing.M) { os.Exit(eirinixtest.Main(m)) }
//
//	func TestMyExtension(t *testing.T) {
//		t.Parallel()
//		cluster := eirinixtest.StartControlPlane(t, eirinixtest.Shared)
//		namespace := cluster.NewNamespace(t)
//
// Main stops it; a test cannot. Without Main it ends as after a crash. On Linux the kernel kills the servers when the
// process ends. The next control plane of the same user removes the files and, on other systems, also kills the
// servers. A start that failed is not retried: it fails each of the tests.
//
// The tests must keep their objects apart. Each needs its own namespace (NewNamespace), and its own
// OperatorFingerprint for a Manager, which names the Manager's cluster-scoped registrations. A test needs its own
// control plane if it freezes, stops or restarts API servers, or changes state that all tests see. A ginkgo suite that
// starts one in BeforeSuite already shares it among its specs.
func Shared(o *ControlPlaneOptions) { o.shared = true }

// Main runs a package's tests, stops the control planes that they shared and returns the exit code of the tests. Call
// it from TestMain; see Shared. Failures to stop or remove a control plane are reported on standard error and do not
// change the exit code.
func Main(m interface{ Run() int }) int {
	code := m.Run()
	planes.stop(os.Stderr)
	return code
}

// planes are the control planes that this process shares. A library should normally have no such variable. Here it is
// inherent: tests have only their process in common, and Main must find the control planes that they have started.
var planes sharedPlanes

// sharedPlanes starts one control plane for each set of options.
type sharedPlanes struct {
	mu     sync.Mutex
	starts map[string]func() (*ControlPlane, error)
}

// take returns the control plane for the options. The first call starts it, while concurrent calls wait.
func (s *sharedPlanes) take(ctx context.Context, opts ControlPlaneOptions) (*ControlPlane, error) {
	plane, err := s.startOf(ctx, opts)()
	if err != nil {
		return nil, err
	}
	if err := plane.plane.Running(); err != nil {
		return nil, fmt.Errorf("eirinixtest: give the test that did this a control plane of its own, without Shared: %w", err)
	}
	return plane, nil
}

func (s *sharedPlanes) startOf(ctx context.Context, opts ControlPlaneOptions) func() (*ControlPlane, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	key := opts.internal().Key()
	if start, ok := s.starts[key]; ok {
		return start
	}
	if s.starts == nil {
		s.starts = map[string]func() (*ControlPlane, error){}
	}
	// ctx must outlive the first test: its end would cancel the start for the other tests.
	s.starts[key] = sync.OnceValues(func() (*ControlPlane, error) {
		plane, err := newShared(ctx, opts)
		if err == nil {
			plane.shared = true
		}
		return plane, err
	})
	return s.starts[key]
}

// newShared returns a control plane that the process above this one holds for several packages, if it holds any and the
// options say nothing of their own. Otherwise it starts one.
func newShared(ctx context.Context, opts ControlPlaneOptions) (*ControlPlane, error) {
	folders := filepath.SplitList(os.Getenv(controlplane.FoldersVariable))
	if len(folders) == 0 || opts.internal().Key() != (controlplane.Options{}).Key() {
		return NewControlPlane(ctx, opts)
	}
	plane, err := controlplane.Attach(ctx, folders, opts.internal())
	if err != nil {
		return nil, prefixed(err)
	}
	return &ControlPlane{plane: plane, first: &APIServer{plane.APIServer()}}, nil
}

// stop stops all of them and waits for those that are still starting.
func (s *sharedPlanes) stop(errs io.Writer) {
	s.mu.Lock()
	starts := s.starts
	s.starts = nil
	s.mu.Unlock()
	for _, start := range starts {
		plane, err := start()
		if err != nil {
			continue // the tests that requested it have reported the error
		}
		if err := plane.plane.Stop(); err != nil {
			_, _ = fmt.Fprintf(errs, "eirinixtest: %s\n", strings.TrimSpace(err.Error()))
		}
	}
}

var errShared = errors.New("leave it to Main to stop this control plane: it is shared")
