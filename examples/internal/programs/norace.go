//go:build !race

package programs

// This file makes Build omit the race detector if the tests do not use it.

var buildFlags []string
