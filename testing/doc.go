// Package eirinixtest helps to test programs that use eirinix.
//
// For unit tests, EiriniX's Catalog gives managers that need no cluster. For everything that crosses the API
// server, StartControlPlane gives a real one, on loopback, within seconds: etcd, kube-apiserver and, on request,
// kube-controller-manager, from KUBEBUILDER_ASSETS or built once from Go modules.
//
//	func TestMyExtension(t *testing.T) {
//		cluster := eirinixtest.StartControlPlane(t)
//		m := eirinix.NewManager(eirinix.ManagerOptions{RestConfig: cluster.Config(), ...})
//
// Shipped code must not import this package.
package eirinixtest
