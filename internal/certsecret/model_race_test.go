//go:build race

package certsecret_test

// modelSteps is of all worlds together. The model runs in one goroutine at a time, and the race detector makes it
// several times slower.
const modelSteps = 15_000
