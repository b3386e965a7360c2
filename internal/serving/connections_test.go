package serving_test

// This file is about the connections that clients hold, whatever they send or do not send on them.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/serving"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
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
		return dial(s, "POST /x HTTP/1.1\r\nHost: x\r\nX-Long: "+strings.Repeat("x", 1000))
	}
	// trickling opens a connection and sends a request without the end of its body.
	trickling := func() net.Conn {
		GinkgoHelper()
		return dial(s, "POST /x?timeout=30s HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345")
	}
	isOpen := func(conn net.Conn) bool {
		GinkgoHelper()
		Expect(conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))).To(Succeed())
		_, err := conn.Read(make([]byte, 1))
		timeout, ok := errors.AsType[net.Error](err)
		return ok && timeout.Timeout()
	}
	// reading has the server count the bodies, and read each whole.
	reading := func() *atomic.Int64 {
		var bodies atomic.Int64
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			bodies.Add(1)
			if _, err := io.ReadAll(r.Body); err == nil {
				_, _ = io.WriteString(w, r.URL.Path)
			}
		})
		return &bodies
	}
	// calls makes calls one after the other, as an API server does on its connections.
	calls := func(client *http.Client, n int) error {
		for range n {
			resp, err := client.Post("https://"+s.Addr().String()+"/x", "application/json", strings.NewReader("1234567890"))
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, resp.Body)
			if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK {
				return fmt.Errorf("status %d: %w", resp.StatusCode, err)
			}
		}
		return nil
	}

	It("that wait for their first request make room, the oldest first, and one that is used stays", func(ctx SpecContext) {
		start(ctx, s)
		client := caller()
		Expect(get(client, s, "/x")).To(HaveField("Status", http.StatusOK))
		var waiting []net.Conn
		for range 3 * most {
			waiting = append(waiting, unfinished())
		}
		reused := false
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
		resp := Must(client.Do(Must(http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodGet, "https://"+s.Addr().String()+"/x", nil))))
		Expect(resp.Body.Close()).To(Succeed())
		Expect(reused).To(BeTrue())
		for _, conn := range waiting[:2*most+1] {
			Eventually(isOpen).WithArguments(conn).Should(BeFalse())
		}
		for _, conn := range waiting[2*most+1:] {
			Expect(isOpen(conn)).To(BeTrue())
		}
	})

	It("that are closed leave their places", func() {
		listener := Must(net.Listen("tcp", "127.0.0.1:0"))
		DeferCleanup(listener.Close)
		admit := serving.AdmitConnections(most)
		var all []net.Conn
		for i := range 3 * most {
			DeferCleanup(Must(net.Dial("tcp", listener.Addr().String())).Close)
			conn := Must(listener.Accept())
			Expect(admit(conn)).To(Succeed())
			if all = append(all, conn); i > 0 {
				Expect(conn.Close()).To(Succeed())
			}
		}
		Expect(isOpen(all[0])).To(BeTrue())
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
				_, err := get(client, s, "/x")
				answers <- err
			}()
			Eventually(entered).Should(Receive())
		}
		Expect(handshake(s, nil)).Error().To(HaveOccurred())
		close(release)
		for range most {
			Eventually(answers).Should(Receive(BeNil()))
		}
		Eventually(func() error { _, err := handshake(s, nil); return err }).Should(Succeed())
	})

	It("of a thousand clients that trickle their requests keep no API server out", Label("sequential"), func(ctx SpecContext) {
		const clients, servers = 1000, 40
		s.SetMostConnections(0)
		bodies := reading()
		start(ctx, s)
		for range clients {
			trickling()
		}
		Eventually(bodies.Load).Should(BeEquivalentTo(clients))
		answers := make(chan error, servers)
		for range servers {
			client := caller()
			go func() { answers <- calls(client, 5) }()
		}
		for range servers {
			Eventually(answers).Should(Receive(BeNil()), "no call fails, so none needs another attempt")
		}
	})

	It("whose handler does not read the body are not busy while net/http waits for the rest", func(ctx SpecContext) {
		s.Handler = answerWith(10_000) // too long for net/http to wait for the end of the handler
		start(ctx, s)
		for range 3 * most {
			trickling()
		}
		Expect(get(caller(), s, "/x")).To(HaveField("Status", http.StatusOK))
	})

	DescribeTable("are used again only if net/http knows the end of the body: one that the handler", func(ctx SpecContext, handle http.HandlerFunc, size, sent int, again bool) {
		s.Handler = handle
		start(ctx, s)
		conn := dial(s, "")
		Expect(conn.SetReadDeadline(time.Now().Add(30 * time.Second))).To(Succeed())
		go func() {
			_, _ = fmt.Fprintf(conn, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("GET /y H", sent/8))
		}()
		resp := Must(http.ReadResponse(bufio.NewReader(conn), nil))
		Expect(resp).To(HaveHTTPStatus(http.StatusOK))
		Expect(resp.Close).NotTo(Equal(again))
	},
		Entry("does not read, before a long answer", answerWith(10_000), 800, 800, true),
		Entry("does not read, and that is too long to wait for", answerWith(1), 1<<20, 0, false),
		Entry("closes too early, before a long answer", func(w http.ResponseWriter, r *http.Request) {
			_ = r.Body.Close()
			answerWith(10_000)(w, r)
		}, 1<<20, 1<<20, false),
	)

	DescribeTable("have a header of bounded size", func(ctx SpecContext, size, status int) {
		start(ctx, s)
		conn := dial(s, "")
		go func() {
			_, _ = io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: x\r\nX-Long: "+strings.Repeat("x", size)+"\r\n\r\n")
		}()
		Expect(Must(http.ReadResponse(bufio.NewReader(conn), nil))).To(HaveHTTPStatus(status))
	},
		Entry("16 KiB are taken", 16<<10, http.StatusOK),
		Entry("64 KiB are not", 64<<10, http.StatusRequestHeaderFieldsTooLarge),
	)

	It("that fail are written to the program's logger, a few at a time", func(ctx SpecContext) {
		var logs logLines
		s.Log = logs.logger()
		start(ctx, s)
		for range 20 {
			conn := Must(net.Dial("tcp", s.Addr().String()))
			Must(io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n"))
			Expect(conn.SetReadDeadline(time.Now().Add(10 * time.Second))).To(Succeed())
			_, _ = conn.Read(make([]byte, 100)) // the server hangs up, or says that it speaks TLS
			Expect(conn.Close()).To(Succeed())
		}
		Eventually(logs.with).WithArguments("a connection failed").Should(ContainElement(ContainSubstring("handshake")))
		Expect(len(logs.with(""))).To(BeNumerically("<", 6))
	}, SpecTimeout(time.Minute))
})

func answerWith(bytes int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", bytes)) }
}
