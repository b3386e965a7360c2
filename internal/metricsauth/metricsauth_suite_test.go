package metricsauth

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestMetricsauth(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second) // of a busy machine
	RunSpecs(t, "internal/metricsauth")
}

var _ = DescribeTable("An address is exposed, or not:",
	func(address string, exposed bool) { Expect(Exposed(address)).To(Equal(exposed)) },
	Entry("of all interfaces", ":9090", true),
	Entry("unspecified", "0.0.0.0:9090", true),
	Entry("unspecified, IPv6", "[::]:9090", true),
	Entry("of one interface", "10.0.0.5:9090", true),
	Entry("by name", "metrics.example.org:9090", true),
	Entry("that cannot be read", "9090", true),
	Entry("of loopback", "127.0.0.1:9090", false),
	Entry("of the rest of loopback", "127.1.2.3:9090", false),
	Entry("of loopback, IPv6", "[::1]:9090", false),
	Entry("of loopback, mapped to IPv6", "[::ffff:127.0.0.1]:9090", false),
	Entry("called localhost", "localhost:9090", false),
	Entry("switched off", "0", false),
	Entry("not given", "", false),
)
