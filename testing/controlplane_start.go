package eirinixtest

import (
	"context"
	"os"
)

// TB is what this package needs of a test: *testing.T, *testing.B, *testing.F and ginkgo's GinkgoT() and GinkgoTB() have
// it.
type TB interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// StartControlPlane starts a control plane for a test and stops it when the test (in ginkgo: the spec, or the
// suite when called from BeforeSuite) ends. With Shared it is one for all tests of the package instead.
//
// Progress goes to standard error. If the test fails, the end of what each server has logged since the call is logged;
// whole logs survive in a ControlPlaneOptions.LogDir.
//
// Each configure function may change the options:
//
//	plane := eirinixtest.StartControlPlane(t, func(o *eirinixtest.ControlPlaneOptions) { o.ControllerManager = true })
func StartControlPlane(t TB, configure ...func(*ControlPlaneOptions)) *ControlPlane {
	t.Helper()

	opts := ControlPlaneOptions{Progress: os.Stderr}
	for _, f := range configure {
		f(&opts)
	}

	// A folder of the user's may hold the logs of others.
	logged := logSizes(opts.LogDir)

	var (
		plane *ControlPlane
		err   error
	)

	if opts.shared {
		plane, err = planes.take(opts)
	} else {
		plane, err = NewControlPlane(context.Background(), opts)
	}

	if err != nil {
		t.Fatalf("%v", err)

		return nil
	}

	if opts.shared {
		logged = logSizes(plane.LogDir())
	}

	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", loggedSince(plane.LogDir(), logged))
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
