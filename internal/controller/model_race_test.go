//go:build race

package controller_test

// rotationSteps and rolloutSteps are of all worlds together. The models run in one goroutine at a time, and the race
// detector makes them several times slower.
const (
	rotationSteps = 15_000
	rolloutSteps  = 20_000
)
