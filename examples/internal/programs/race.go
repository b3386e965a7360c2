//go:build race

package programs

// This file makes Build use the race detector if the tests use it.

var buildFlags = []string{"-race"}
