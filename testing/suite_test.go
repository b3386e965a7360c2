package eirinixtest_test

import (
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

func TestMain(m *testing.M) { os.Exit(eirinixtest.Main(m)) }

func TestEirinixtest(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "eirinixtest")
}
