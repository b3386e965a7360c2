// Package netns runs the specs of a package in a network namespace of their own. There, programs can listen on the
// addresses of pods and Services, which EndpointSlices require: they refuse loopback addresses.
package netns

// This file is the part that suites call.

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// missing is the reason why this process has no network namespace of its own; nil if it has one.
var missing error

// Main runs the tests of a package in a new network namespace, and returns the exit code. TestMain calls it.
func Main(m *testing.M) int {
	code, isOutside, err := Run()
	if isOutside && err == nil {
		return code
	}
	missing = err
	return m.Run()
}

// SetUp turns on the loopback interface, and makes all addresses of these subnets local: a program of the namespace can
// listen on each of them. The address of a subnet is the one that connections come from. BeforeSuite calls it. Where the
// machine permits no namespace, it skips the suite and prints why.
func SetUp(subnets ...string) {
	GinkgoHelper()
	err := missing
	if err == nil {
		err = setUp(subnets...)
	}
	if missing != nil || errors.Is(err, syscall.EPERM) {
		reason := fmt.Sprintf("the specs need a network namespace of their own, and this machine permits none: %v", err)
		fmt.Println("SKIPPED:", reason)
		Skip(reason)
	}
	Expect(err).NotTo(HaveOccurred())
}
