package jsontext

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestJSONText(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "JSON text")
}
