//go:build !race

package controller_test

// rotationSteps and rolloutSteps are of all worlds together.
const (
	rotationSteps = 100_000
	rolloutSteps  = 100_000
)
