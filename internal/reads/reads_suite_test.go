package reads

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestReads(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "reads")
}
