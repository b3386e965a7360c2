// Package upstream runs the specs with which Kubernetes tests its own admission and conversion webhooks, as they are,
// against the project's control plane. The webhooks that they call are examples/agnhost instead of Kubernetes' image
// agnhost.
//
// It is a module of its own, because the specs depend on all of Kubernetes. It needs Linux, and the right to make a
// network namespace.
package upstream
