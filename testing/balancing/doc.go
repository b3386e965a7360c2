// Package balancing holds the specs for replicas behind a Service while they are restarted: every call of an API server
// must reach a replica that serves. The package contains only specs. They are here for the fact that each entry of the table
// names: how a real API server finds a replica, and for how long it stays with a connection.
//
// An API server calls a Service in one of two ways. Without --enable-aggregator-routing it dials the cluster IP, and
// connections are balanced. With the flag it dials the addresses in the EndpointSlices. There, Kubernetes 1.37 picks an
// endpoint for each call (feature gate WebhookRoundTripLoadBalancing), and older releases for each connection.
//
// EndpointSlices refuse loopback addresses. So the control plane and the replicas run in a network namespace of the
// test's own, where each replica has an address. Where the machine permits no network namespace, the specs are skipped.
//
// EIRINIX_SOAK=1 makes 30 restarts and 20,000 calls of each spec that otherwise makes two, and 300:
//
//	EIRINIX_SOAK=1 go test ./testing/balancing -timeout 1h -v -ginkgo.label-filter=soak
package balancing
