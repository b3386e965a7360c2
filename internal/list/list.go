// Package list maps lists.
package list

import "slices"

// Of returns the result of f for each item, in order. It is nil for an empty list.
func Of[S, T any](items []S, f func(S) T) []T {
	all := slices.Grow([]T(nil), len(items))
	for _, item := range items {
		all = append(all, f(item))
	}
	return all
}
