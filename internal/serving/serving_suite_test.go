package serving_test

import (
	"crypto/rand"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// The generator of random numbers in FIPS 140 mode starts at its first use, which fails in the time of a bubble.
func init() { _ = rand.Text() }

func TestServing(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second) // of a busy machine
	RunSpecs(t, "internal/serving")
}
