package eirinixtest

// This file starts a control plane for the duration of a test.

import (
	"context"
	"os"

	"code.cloudfoundry.org/eirinix/testing/internal/controlplane"
)

// TB is the part of a test that this package needs. *testing.T, *testing.B, *testing.F and ginkgo's GinkgoT() and
// GinkgoTB() implement it.
type TB interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// StartControlPlane starts a control plane for a test and stops it when the test ends. In ginkgo it stops when the
// spec ends, or when the suite ends if it was called from BeforeSuite. With Shared, all tests of the package use one
// control plane instead.
//
// Progress goes to standard error. If the test fails, the end of each server's log since the call is logged. Set
// ControlPlaneOptions.LogDir to keep the whole logs.
//
// Each configure function can change the options:
//
//	plane := eirinixtest.StartControlPlane(t, func(o *eirinixtest.ControlPlaneOptions) { o.ControllerManager = true })
func StartControlPlane(t TB, configure ...func(*ControlPlaneOptions)) *ControlPlane {
	t.Helper()
	opts := ControlPlaneOptions{Progress: os.Stderr}
	for _, f := range configure {
		f(&opts)
	}
	// A folder that the user specifies can already hold older logs.
	logged := controlplane.LogSizesIn(opts.LogDir)

	start := NewControlPlane
	if opts.shared {
		start = planes.take
	}
	plane, err := start(context.Background(), opts)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	if opts.shared {
		logged = controlplane.LogSizesIn(plane.LogDir())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", logged.LoggedSince(plane.LogDir()))
		}
		if opts.shared {
			return
		}
		if err := plane.Stop(); err != nil {
			t.Logf("%v", err)
		}
	})
	return plane
}
