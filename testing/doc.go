// Package eirinixtest helps to test programs that use eirinix.
//
// # Without a cluster
//
// A Harness is the admission of an API server in memory: it takes an extension, a step or a Manager and sends it
// requests, all the way through selectors, the wire protocol and the patch.
//
//	func TestSidecar(t *testing.T) {
//		h := eirinixtest.NewHarness(t, sidecar.Extension{})
//		result := h.Create(pod)
//		NewWithT(t).Expect(result).To(eirinixtest.HaveWarned("sidecar"))
//	}
//
// BeAllowed, BeDenied, HavePatched, HaveChanged and others are matchers of gomega for results. CheckIdempotent,
// CheckLossless, CheckDeterministic, CheckDeadline, CheckDryRun, CheckRaceFree and CheckTotal, or all of them as
// CheckProperties, test in one call what is hard to test by hand. Golden compares what becomes of the YAML files of a
// folder with what is checked in. API is what a handler's client talks to, and records what it is asked.
// EiriniX's Catalog still gives managers for tests that call Handle themselves.
//
// # With a real API server
//
// For everything else StartControlPlane gives a real one, on loopback, within seconds: etcd, kube-apiserver and, on
// request, kube-controller-manager, from KUBEBUILDER_ASSETS, from setup-envtest's cache, or built once from Go modules. The
// tests of a package can share one.
//
//	func TestMyExtension(t *testing.T) {
//		cluster := eirinixtest.StartControlPlane(t)
//		m := eirinix.NewManager(eirinix.ManagerOptions{RestConfig: cluster.Config(), ...})
//		eirinixtest.StartManager(t, m)
//
// Shipped code must not import this package.
package eirinixtest
