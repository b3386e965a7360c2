package eirinixtest

import (
	"context"
	"os"
	"path/filepath"
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
// suite when called from BeforeSuite) ends. Progress goes to standard error. If the test fails, the end of each
// server's log is logged; whole logs survive in a ControlPlaneOptions.LogDir.
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

	plane, err := NewControlPlane(context.Background(), opts)
	if err != nil {
		t.Fatalf("%v", err)

		return nil
	}

	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := filepath.Glob(filepath.Join(plane.LogDir(), "*.log"))
			for _, path := range logs {
				t.Logf("%s", logTail(path, 0))
			}
		}

		if err := plane.Stop(); err != nil {
			t.Logf("%v", err)
		}
	})

	return plane
}
