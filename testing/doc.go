// Package eirinixtest helps to test programs that use eirinix.
//
// # Without a cluster
//
// A Harness simulates the admission phase of an API server in memory. It takes an extension, a step or a Manager and
// sends requests through the complete path: selectors, the wire protocol and the patch.
//
//	func TestSidecar(t *testing.T) {
//		h := eirinixtest.NewHarness(t, sidecar.Extension{})
//		result := h.Create(pod)
//		NewWithT(t).Expect(result).To(eirinixtest.HaveWarned("sidecar"))
//	}
//
// BeAllowed, BeDenied, HavePatched, HaveChanged and others are gomega matchers for results. CheckIdempotent,
// CheckLossless, CheckDeterministic, CheckDeadline, CheckDryRun, CheckRaceFree, CheckTotal and CheckReads each test a
// property that is hard to test by hand. CheckProperties runs all of them. Golden sends the YAML files of a folder and compares
// the results with checked-in golden files. For a conversion.Of, CheckRoundTrip converts random objects there and
// back, and GoldenConversions compares converted objects with golden files. API is an in-memory Kubernetes API for a
// handler's client; it records every request. EiriniX's Catalog still provides managers for tests that call Handle
// themselves.
//
// # With a real API server
//
// For everything else, StartControlPlane starts a real control plane on loopback within seconds: etcd, kube-apiserver
// and, on request, kube-controller-manager. The binaries come from KUBEBUILDER_ASSETS, from setup-envtest's cache, or
// are built once from Go modules. The tests of a package can share one control plane.
//
//	func TestMyExtension(t *testing.T) {
//		cluster := eirinixtest.StartControlPlane(t)
//		m := eirinix.NewManager(eirinix.ManagerOptions{RestConfig: cluster.Config(), ...})
//		eirinixtest.StartManager(t, m)
//
// Shipped code must not import this package.
package eirinixtest
