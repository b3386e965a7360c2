package resources

// This file compares rules with words, and with each other. Package chain compares them with requests.

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Names reports whether a list of a rule holds a word, or the wildcard.
func Names[T ~string](list []T, word T) bool {
	return slices.Contains(list, word) || slices.Contains(list, "*")
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
