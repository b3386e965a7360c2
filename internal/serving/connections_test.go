package serving_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/serving"
)

var _ = Describe("Connections", func() {
	const most = 5
	var s *serving.Server
	BeforeEach(func() {
		s = newServer()
		s.SetMostConnections(most)
	})

	// unfinished opens a connection and sends the beginning of a request.
	unfinished := func() net.Conn {
		GinkgoHelper()
		conn, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { _ = conn.Close() }) // which fails where the server has closed it
		_, err = io.WriteString(conn, "POST /x HTTP/1.1\r\nHost: x\r\nX-Long: "+strings.Repeat("x", 1000))
		Expect(err).NotTo(HaveOccurred())
		return conn
	}
	isOpen := func(conn net.Conn) bool {
		GinkgoHelper()
		Expect(conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))).To(Succeed())
		_, err := conn.Read(make([]byte, 1))
		timeout, ok := errors.AsType[net.Error](err)
		return ok && timeout.Timeout()
	}

	It("that wait for their first request make room, the oldest first", func(ctx SpecContext) {
		start(ctx, s)
		var waiting []net.Conn
		for range 3 * most {
			waiting = append(waiting, unfinished())
		}
		Expect(get(caller(), s, "/x")).To(HaveField("Status", http.StatusOK))
		for _, conn := range waiting[:2*most+1] {
			Eventually(func() bool { return isOpen(conn) }).Should(BeFalse())
		}
		for _, conn := range waiting[2*most+1:] {
			Expect(isOpen(conn)).To(BeTrue())
		}
	})

	It("that are closed leave their places", func() {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(listener.Close)
		admit := serving.AdmitConnections(most)
		var all []net.Conn
		for i := range 3 * most {
			client, err := net.Dial("tcp", listener.Addr().String())
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(client.Close)
			conn, err := listener.Accept()
			Expect(err).NotTo(HaveOccurred())
			Expect(admit(conn)).To(Succeed())
			if all = append(all, conn); i > 0 {
				Expect(conn.Close()).To(Succeed())
			}
		}
		Expect(isOpen(all[0])).To(BeTrue())
	})

	It("that are used stay, while others wait for their first request", func(ctx SpecContext) {
		start(ctx, s)
		client := caller()
		Expect(get(client, s, "/x")).To(HaveField("Status", http.StatusOK))
		for range 3 * most {
			unfinished()
		}
		reused := false
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
		req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodGet, "https://"+s.Addr().String()+"/x", nil)
		Expect(err).NotTo(HaveOccurred())
		resp, err := client.Do(req)
		Expect(err).NotTo(HaveOccurred())
		Expect(resp.Body.Close()).To(Succeed())
		Expect(reused).To(BeTrue())
	})

	It("with a request in flight stay, and no other is let in when all have one", func(ctx SpecContext) {
		entered, release := make(chan struct{}, most), make(chan struct{})
		s.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			entered <- struct{}{}
			<-release
		})
		start(ctx, s)
		answers := make(chan error, most)
		for range most {
			client := caller()
			go func() {
				r, err := get(client, s, "/x")
				if err == nil && r.Status != http.StatusOK {
					err = fmt.Errorf("status %d", r.Status)
				}
				answers <- err
			}()
			Eventually(entered).Should(Receive())
		}
		_, err := handshake(s, nil)
		Expect(err).To(HaveOccurred())
		close(release)
		for range most {
			Eventually(answers).Should(Receive(BeNil()))
		}
		Eventually(func() error { _, err := handshake(s, nil); return err }).Should(Succeed())
	})

	DescribeTable("have a header of bounded size", func(ctx SpecContext, size, status int) {
		start(ctx, s)
		conn, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(conn.Close)
		go func() {
			_, _ = io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: x\r\nX-Long: "+strings.Repeat("x", size)+"\r\n\r\n")
		}()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		Expect(err).NotTo(HaveOccurred())
		defer resp.Body.Close()
		Expect(resp.StatusCode).To(Equal(status))
	},
		Entry("16 KiB are taken", 16<<10, http.StatusOK),
		Entry("64 KiB are not", 64<<10, http.StatusRequestHeaderFieldsTooLarge),
	)
})
