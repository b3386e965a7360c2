package admit_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// largest is the bound on a request in these specs; there is room for eight such at once.
const largest = 1 << 20

var _ = Describe("A body", func() {
	var h *hook
	BeforeEach(func() {
		h = newHook(allow)
		h.Handler.MaxBytes = largest
	})

	// upload begins a request of its own connection that says it is so large, and sends the text.
	upload := func(size int, text string) net.Conn {
		GinkgoHelper()
		conn, err := net.Dial("tcp", h.Listener.Addr().String())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(conn.Close)
		_, err = fmt.Fprintf(conn, "POST %s?timeout=30s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", volumes, size, text)
		Expect(err).NotTo(HaveOccurred())
		return conn
	}
	large := func(req *admissionv1.AdmissionRequest) {
		req.Object.Raw = []byte(strings.Replace(pod, `"metadata":{`, `"metadata":{"annotations":{"long":"`+strings.Repeat("x", 600_000)+`"},`, 1))
	}

	It("may be large", func() {
		Expect(h.ask(large).review("v1").Allowed).To(BeTrue())
	})

	DescribeTable("may have any size up to the bound:", func(size int) {
		text := body("v1", request())
		text = strings.Replace(text, `{`, `{`+strings.Repeat(" ", size-len(text)), 1)
		Expect(text).To(HaveLen(size))
		Expect(h.post(volumes, text).review("v1").Allowed).To(BeTrue())

		chunked, err := http.NewRequest(http.MethodPost, h.URL+volumes, io.NopCloser(strings.NewReader(text)))
		Expect(err).NotTo(HaveOccurred())
		chunked.Header.Set("Content-Type", "application/json")
		Expect(h.do(chunked).review("v1").Allowed).To(BeTrue())
	},
		Entry("one byte less than is read from every client", 64<<10-1),
		Entry("just that", 64<<10),
		Entry("one byte more", 64<<10+1),
		Entry("just the bound", largest),
	)

	It("makes room for others when it arrives slowly, and is answered with a request to retry", func() {
		const clients = 20 // eight of them have room
		var slow []net.Conn
		for range clients {
			slow = append(slow, upload(largest, strings.Repeat(" ", 100<<10)))
		}
		began := time.Now()
		Expect(h.ask(large).review("v1").Allowed).To(BeTrue())
		Expect(time.Since(began)).To(BeNumerically("<", 8*time.Second), "their time is 30 s")
		answers := make(chan string, clients)
		for _, conn := range slow {
			go func() {
				answer, _ := io.ReadAll(conn)
				answers <- string(answer)
			}()
		}
		var answer string
		Eventually(answers).WithTimeout(10 * time.Second).Should(Receive(&answer))
		Expect(answer).To(HavePrefix("HTTP/1.1 503 "))
		Expect(answer).To(ContainSubstring("Retry-After: 1\r\n"))
		Expect(answer).To(ContainSubstring("Connection: close\r\n"))
		Expect(answer).To(ContainSubstring("too slowly"))
	})

	It("costs nothing but its own connection when it announces more than it sends", func() {
		for range 100 {
			upload(largest, "{")
		}
		began := time.Now()
		Expect(h.ask(large).review("v1").Allowed).To(BeTrue())
		Expect(time.Since(began)).To(BeNumerically("<", 8*time.Second))
	})

	It("is given up before the answer is written, so that clients which do not read theirs keep no other call waiting", func() {
		const clients = 8 // as many as there is room for
		long := strings.Repeat("x", 1<<20)
		h.Handle("long", func(context.Context, admission.Request) admission.Response {
			return raw(admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{long}})
		})
		h.Server = httptest.NewUnstartedServer(h.Handler)
		h.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			Expect(c.(*net.TCPConn).SetWriteBuffer(4 << 10)).To(Succeed())
			return ctx
		}
		h.Start()
		DeferCleanup(h.Close)
		text := body("v1", request())
		text = strings.Replace(text, `{`, `{`+strings.Repeat(" ", largest-len(text)), 1)
		for range clients {
			conn, err := net.Dial("tcp", h.Listener.Addr().String())
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(conn.Close)
			Expect(conn.(*net.TCPConn).SetReadBuffer(4 << 10)).To(Succeed())
			_, err = fmt.Fprintf(conn, "POST /mutate/long?timeout=30s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
			Expect(err).NotTo(HaveOccurred())
			_, err = conn.Read(make([]byte, 1)) // the answer has begun
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(h.ask(large).review("v1").Allowed).To(BeTrue())
	})

	It("that ends early is refused for that reason", func() {
		conn := upload(200<<10, strings.Repeat(" ", 100<<10))
		Expect(conn.(*net.TCPConn).CloseWrite()).To(Succeed())
		answer, err := io.ReadAll(conn)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(answer)).To(And(HavePrefix("HTTP/1.1 400 "), ContainSubstring("ended before its Content-Length")))
	})
})
