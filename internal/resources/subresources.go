package resources

// This file lists the built-in subresources, with the operation and the kind that API servers send for them.

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// subresource holds the operation and the kind that an API server sends for a subresource, whatever its version. The
// source is the storages that kube-apiserver 1.37 installs (pkg/registry/*/rest).
type subresource struct {
	operation admissionregistrationv1.OperationType // empty: it is read-only, so nothing is ever sent
	kind      schema.GroupKind                      // empty: the kind of the resource itself
}

func connects(kind string) subresource {
	return subresource{admissionregistrationv1.Connect, schema.GroupKind{Kind: kind}}
}

func creates(group, kind string) subresource {
	return subresource{admissionregistrationv1.Create, schema.GroupKind{Group: group, Kind: kind}}
}

var (
	updated = subresource{operation: admissionregistrationv1.Update}
	scaled  = subresource{admissionregistrationv1.Update, schema.GroupKind{Group: "autoscaling", Kind: "Scale"}}

	// everywhere holds those that any resource can have.
	everywhere = map[string]subresource{"status": updated, "scale": scaled}

	// subresources holds all subresources of the most common built-in resources.
	subresources = map[schema.GroupResource]map[string]subresource{
		{Resource: "pods"}: {
			"attach": connects("PodAttachOptions"), "exec": connects("PodExecOptions"),
			"portforward": connects("PodPortForwardOptions"), "proxy": connects("PodProxyOptions"),
			"binding": creates("", "Binding"), "eviction": creates("policy", "Eviction"),
			"ephemeralcontainers": updated, "resize": updated, "status": updated, "log": {},
		},
		{Resource: "services"}:               {"proxy": connects("ServiceProxyOptions"), "status": updated},
		{Resource: "nodes"}:                  {"proxy": connects("NodeProxyOptions"), "status": updated},
		{Resource: "serviceaccounts"}:        {"token": creates("authentication.k8s.io", "TokenRequest")},
		{Resource: "namespaces"}:             {"finalize": updated, "status": updated},
		{Resource: "persistentvolumes"}:      {"status": updated},
		{Resource: "persistentvolumeclaims"}: {"status": updated},
		{Resource: "replicationcontrollers"}: everywhere,
		{Resource: "resourcequotas"}:         {"status": updated},

		{Group: "apps", Resource: "daemonsets"}:                                {"status": updated},
		{Group: "apps", Resource: "deployments"}:                               everywhere,
		{Group: "apps", Resource: "replicasets"}:                               everywhere,
		{Group: "apps", Resource: "statefulsets"}:                              everywhere,
		{Group: "batch", Resource: "cronjobs"}:                                 {"status": updated},
		{Group: "batch", Resource: "jobs"}:                                     {"status": updated},
		{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}: {"approval": updated, "status": updated},
	}
)

// Subresource checks a step on a subresource as far as possible without a cluster. It returns the operations that the
// step is registered for: the asked ones, or the subresource's only one. kind is empty if any kind is accepted.
func Subresource(resource schema.GroupVersionResource, name string, kind schema.GroupVersionKind, asked []admissionregistrationv1.OperationType) ([]admissionregistrationv1.OperationType, error) {
	all, builtIn := subresources[resource.GroupResource()]
	if !builtIn {
		all = everywhere
	}
	if err := exists(resource.GroupResource(), name); err != nil {
		return nil, err
	}
	s, found := all[name]
	switch {
	case found && s.operation == "":
		return nil, fmt.Errorf("%s/%s can only be read, and the API server calls no webhook for a read", resource.GroupResource(), name)
	case !found && len(asked) == 0:
		return nil, fmt.Errorf("set Settings.Operations: those of the subresource %q are known to its own API alone", name)
	case !found:
		return asked, nil
	}
	for _, operation := range asked {
		if operation != s.operation && operation != admissionregistrationv1.OperationAll {
			return nil, fmt.Errorf("%s/%s is never sent for %s; leave out Operations, or set %s", resource.Resource, name, operation, s.operation)
		}
	}
	if want := s.kind; !kind.Empty() && !s.sends(resource, kind) {
		if want.Empty() {
			return nil, fmt.Errorf("%s/%s sends the kind of %s in %s, and T is %s of %s", resource.Resource, name, resource.Resource, resource.GroupVersion(), kind.Kind, kind.GroupVersion())
		}
		return nil, fmt.Errorf("%s/%s sends %s, and T is %s of %s; make T a pointer to the type that is sent", resource.Resource, name, want, kind.Kind, kind.GroupVersion())
	}
	if len(asked) == 0 {
		asked = []admissionregistrationv1.OperationType{s.operation}
	}
	return asked, nil
}

// exists returns an error for a subresource that a built-in resource does not have, and for a name that is not that of a
// resource. An empty name is the resource itself.
func exists(resource schema.GroupResource, name string) error {
	all, builtIn := subresources[resource]
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: resource.Group, Kind: resource.Resource})
	if _, meant := subresources[plural.GroupResource()]; meant && !builtIn {
		return misnamed(resource, plural.Resource)
	}
	if name == "" {
		return nil
	}
	if _, found := all[name]; found || !builtIn || strings.Contains(name, "*") {
		return nil
	}
	return fmt.Errorf("%s has no subresource %q; it has %s", resource, name, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
}

// misnamed returns the error for a kind, or its singular, in the place of a resource. As with notServed, a later cluster
// may have it if the group has a dot in its name.
func misnamed(given schema.GroupResource, resource string) error {
	err := fmt.Errorf("%q is not a resource; did you mean %q?", given.Resource, resource)
	if strings.Contains(given.Group, ".") {
		return &NotServedError{err}
	}
	return err
}

// sends reports whether objects of the kind are sent. For the resource's own kind, it compares the plural only for
// built-in resources, which have regular plurals.
func (s subresource) sends(resource schema.GroupVersionResource, kind schema.GroupVersionKind) bool {
	if !s.kind.Empty() {
		return kind.GroupKind() == s.kind
	}
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	_, builtIn := subresources[resource.GroupResource()]
	return kind.GroupVersion() == resource.GroupVersion() && (!builtIn || plural == resource)
}
