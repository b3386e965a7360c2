package eirinixtest_test

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

func TestMain(m *testing.M) { os.Exit(eirinixtest.Main(m)) }

func TestEirinixtest(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second) // of a busy machine
	RunSpecs(t, "eirinixtest")
}
