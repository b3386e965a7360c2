package eirinixtest_test

import (
	"testing"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// A real API server, and a Manager that it calls.
func ExampleStartManager() {
	_ = func(t *testing.T) {
		cluster := eirinixtest.StartControlPlane(t)
		m := eirinix.NewManager(eirinix.ManagerOptions{
			RestConfig: cluster.Config(), Namespace: "default", Host: "127.0.0.1", ListenAddress: "127.0.0.1:0",
		})
		_ = m.AddExtension(noRoot) // StartManager reports the error
		eirinixtest.StartManager(t, m)
	}
}
