package fakeapi_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestFakeAPI(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "A Kubernetes API in memory")
}
