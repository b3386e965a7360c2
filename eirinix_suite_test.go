package eirinix_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestEirinix(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "eirinix")
}
