// Package list maps and compares lists.
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

// Common returns the index pairs of a longest common subsequence. Its time and memory grow with the product of both
// lengths.
func Common[T comparable](a, b []T) [][2]int {
	width := len(b) + 1
	length := make([]uint32, (len(a)+1)*width)
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				length[i*width+j] = length[(i+1)*width+j+1] + 1
			} else {
				length[i*width+j] = max(length[(i+1)*width+j], length[i*width+j+1])
			}
		}
	}
	var out [][2]int
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			out = append(out, [2]int{i, j})
			i, j = i+1, j+1
		case length[(i+1)*width+j] >= length[i*width+j+1]:
			i++
		default:
			j++
		}
	}
	return out
}
