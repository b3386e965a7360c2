package certsecret_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestCertSecret(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "internal/certsecret")
}

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// now is the moment of every spec that does not choose its own.
var now = time.Date(2030, time.May, 17, 12, 0, 0, 0, time.UTC)
