package resources

// This file compares rules with words, with requests, and with each other.

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Names reports whether a list of a rule holds a word, or the wildcard.
func Names[T ~string](list []T, word T) bool {
	return slices.Contains(list, word) || slices.Contains(list, "*")
}

// Match reports whether an API server calls a webhook with these rules for a request. It compares them with resource and
// subResource, for which the webhook is registered. Under matchPolicy Equivalent, the resource of the user's own request
// is in requestResource.
func Match(rules []admissionregistrationv1.RuleWithOperations, req *admissionv1.AdmissionRequest) bool {
	// A namespace is cluster-scoped, although a request for one carries its name as the namespace.
	namespaced := req.Namespace != "" && req.Resource != metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	for i := range rules {
		r := &rules[i]
		if Names(r.Operations, admissionregistrationv1.OperationType(req.Operation)) && Names(r.APIGroups, req.Resource.Group) &&
			Names(r.APIVersions, req.Resource.Version) && matchesScope(r.Scope, namespaced) && matchesResource(r.Resources, req) {
			return true
		}
	}
	return false
}

func matchesScope(scope *admissionregistrationv1.ScopeType, namespaced bool) bool {
	switch ptr.Deref(scope, admissionregistrationv1.AllScopes) {
	case admissionregistrationv1.AllScopes:
		return true
	case admissionregistrationv1.NamespacedScope:
		return namespaced
	case admissionregistrationv1.ClusterScope:
		return !namespaced
	}
	return false
}

func matchesResource(names []string, req *admissionv1.AdmissionRequest) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		// "pods/*" includes pods, and "*" includes no subresource.
		resource, sub, _ := strings.Cut(name, "/")
		return (resource == "*" || resource == req.Resource.Resource) && (sub == "*" || sub == req.SubResource)
	})
}

// Overlap reports whether a request can match rules of both. It ignores scopes, and versions, because an API server
// converts objects.
func Overlap(as, bs []admissionregistrationv1.RuleWithOperations) bool {
	return anyPair(as, bs, func(a, b admissionregistrationv1.RuleWithOperations) bool {
		return anyPair(a.Operations, b.Operations, same) && anyPair(a.APIGroups, b.APIGroups, same) &&
			anyPair(a.Resources, b.Resources, sameResource)
	})
}

func anyPair[T any](as, bs []T, test func(a, b T) bool) bool {
	return slices.ContainsFunc(as, func(a T) bool {
		return slices.ContainsFunc(bs, func(b T) bool { return test(a, b) })
	})
}

func same[T ~string](a, b T) bool { return a == b || a == "*" || b == "*" }

// sameResource compares resources with the wildcards of rules: * is every resource without its subresources, */* is
// everything.
func sameResource(a, b string) bool {
	resourceA, subA, _ := strings.Cut(a, "/")
	resourceB, subB, _ := strings.Cut(b, "/")
	return same(resourceA, resourceB) && same(subA, subB)
}
