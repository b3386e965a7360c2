package serving_test

import (
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("Connections that fail", func() {
	It("are told to the program's logger, a few at a time", func(ctx SpecContext) {
		var mu sync.Mutex
		var lines []string
		logged := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(lines)
		}
		s := newServer()
		s.Log = funcr.New(func(_, line string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, line)
		}, funcr.Options{})
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
		Eventually(logged).Should(ContainElement(And(ContainSubstring("a connection failed"), ContainSubstring("handshake"))))
		Expect(len(logged())).To(BeNumerically("<", 6))
	}, SpecTimeout(time.Minute))
})
