package serving_test

import (
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("Connections that fail", func() {
	It("are written to the program's logger, a few at a time", func(ctx SpecContext) {
		var logs logLines
		s := newServer()
		s.Log = logs.logger()
		start(ctx, s)
		for range 20 {
			conn, err := net.Dial("tcp", s.Addr().String())
			Expect(err).NotTo(HaveOccurred())
			_, err = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
			Expect(err).NotTo(HaveOccurred())
			Expect(conn.SetReadDeadline(time.Now().Add(10 * time.Second))).To(Succeed())
			_, _ = conn.Read(make([]byte, 100)) // the server hangs up, or says that it speaks TLS
			Expect(conn.Close()).To(Succeed())
		}
		Eventually(logs.with).WithArguments("a connection failed").Should(ContainElement(ContainSubstring("handshake")))
		Expect(len(logs.with(""))).To(BeNumerically("<", 6))
	}, SpecTimeout(time.Minute))
})
