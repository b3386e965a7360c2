package diagnose_test

import (
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// newBlackhole gives a port that swallows everything, as a firewall does.
func newBlackhole() int32 {
	GinkgoHelper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	DeferCleanup(l.Close) // it never accepts: the kernel connects, and no process answers
	connection := must(net.DialTimeout("tcp", l.Addr().String(), time.Second))
	Expect(connection.Close()).To(Succeed())
	return portOf(l)
}
