//go:build !race

package certsecret_test

// modelSteps is of all worlds together.
const modelSteps = 100_000
