package serving_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gleak"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/serving"
)

// http2Caller is a caller that speaks HTTP/2 where it is offered.
func http2Caller() *http.Client {
	client := caller()
	client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	return client
}

var _ = Describe("HTTP/2", func() {
	var s *serving.Server
	BeforeEach(func() {
		s = newServer()
		s.HTTP2 = true
	})

	DescribeTable("is offered beside HTTP/1.1", func(ctx SpecContext, offers []string, chosen string) {
		start(ctx, s)
		state, err := handshake(s, &tls.Config{NextProtos: offers})
		Expect(err).NotTo(HaveOccurred())
		Expect(state.NegotiatedProtocol).To(Equal(chosen))
	},
		Entry("both", []string{"http/1.1", "h2"}, "h2"),
		Entry("HTTP/2 only", []string{"h2"}, "h2"),
		Entry("HTTP/1.1 only", []string{"http/1.1"}, "http/1.1"),
		Entry("nothing", nil, ""),
	)

	It("is not spoken unless it is wanted", func(ctx SpecContext) {
		s.HTTP2 = false
		start(ctx, s)
		resp, err := http2Caller().Get("https://" + s.Addr().String() + "/x")
		Expect(err).NotTo(HaveOccurred())
		Expect(resp.Body.Close()).To(Succeed())
		Expect(resp.ProtoMajor).To(Equal(1))
	})

	It("carries admission calls, many at once on one connection, with large objects", func(ctx SpecContext) {
		handler := &admit.Handler{MaxBytes: 8 << 20, Draining: s.Draining}
		handler.Handle("all", func(_ context.Context, req admission.Request) admission.Response {
			return admission.Denied("seen " + string(req.UID))
		})
		s.Handler = handler
		start(ctx, s)
		client := http2Caller()
		review := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u-1",` +
			`"kind":{"group":"","version":"v1","kind":"ConfigMap"},"resource":{"group":"","version":"v1","resource":"configmaps"},` +
			`"operation":"CREATE","object":{"apiVersion":"v1","kind":"ConfigMap","data":{"x":"` + strings.Repeat("x", 3<<20) + `"}}}}`
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				defer GinkgoRecover()
				resp, err := client.Post("https://"+s.Addr().String()+"/mutate/all?timeout=30s", "application/json", strings.NewReader(review))
				Expect(err).NotTo(HaveOccurred())
				defer resp.Body.Close()
				answer, err := io.ReadAll(resp.Body)
				Expect(err).NotTo(HaveOccurred())
				Expect(resp.Proto).To(Equal("HTTP/2.0"))
				Expect(string(answer)).To(And(ContainSubstring(`"uid":"u-1"`), ContainSubstring("seen u-1")))
			})
		}
		all.Wait()
	}, SpecTimeout(time.Minute))

	It("never redirects either", func(ctx SpecContext) {
		start(ctx, s)
		Expect(get(http2Caller(), s, "//mutate/../x")).To(Equal(reply{Status: http.StatusOK, Body: "//mutate/../x"}))
	})

	DescribeTable("ends idle connections after the server's timeout, not after controller-runtime's", func(ctx SpecContext, protocol, greeting string) {
		s.SetIdleTimeout(100 * time.Millisecond)
		start(ctx, s)
		conn, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
		Expect(err).NotTo(HaveOccurred())
		defer conn.Close()
		Expect(conn.SetDeadline(time.Now().Add(30 * time.Second))).To(Succeed())
		_, err = io.WriteString(conn, greeting)
		Expect(err).NotTo(HaveOccurred())
		got, err := io.ReadAll(conn)
		Expect(err).NotTo(HaveOccurred(), "ended by the server")
		Expect(got).NotTo(BeEmpty())
		if protocol == "h2" {
			Expect(bytes.Contains(got, []byte{0, 0, 8, 7, 0, 0, 0, 0, 0})).To(BeTrue(), "a GOAWAY tells the client that nothing was lost")
		}
	},
		Entry("HTTP/1.1", "http/1.1", "GET /x HTTP/1.1\r\nHost: x\r\n\r\n"),
		Entry("HTTP/2", "h2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"), // and empty SETTINGS
	)

	It("sends connections away while draining, after their answer", func(ctx SpecContext) {
		start(ctx, s)
		client := http2Caller()
		var opened sync.Map
		dialled := func() (n int) {
			opened.Range(func(any, any) bool { n++; return true })
			return n
		}
		ask := func() {
			GinkgoHelper()
			resp, err := client.Get("https://" + s.Addr().String() + "/healthz")
			Expect(err).NotTo(HaveOccurred())
			Expect(resp.Body.Close()).To(Succeed())
			Expect(resp.ProtoMajor).To(Equal(2))
			opened.Store(resp.TLS, true) // one for each connection
		}
		ask()
		ask()
		Expect(dialled()).To(Equal(1), "kept alive")
		s.Drain()
		ask()
		Eventually(func() int { ask(); return dialled() }).Should(BeNumerically(">", 1))
	}, SpecTimeout(time.Minute))

	It("is shut down gracefully: the call in flight is answered, idle connections do not hold it up", func(ctx SpecContext) {
		before := gleak.Goroutines()
		entered, release := make(chan struct{}), make(chan struct{})
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				close(entered)
				<-release
			}
			_, _ = io.WriteString(w, "finished")
		})
		Expect(s.Start(ctx)).To(Succeed())
		idle, busy := http2Caller(), http2Caller()
		Expect(get(idle, s, "/x")).To(HaveField("Body", "finished"))
		answered := make(chan reply, 1)
		go func() {
			defer GinkgoRecover()
			r, err := get(busy, s, "/slow")
			Expect(err).NotTo(HaveOccurred())
			answered <- r
		}()
		Eventually(entered).Should(BeClosed())
		ended := make(chan error, 1)
		go func() { ended <- s.Shutdown(ctx) }()
		Eventually(func() error { _, err := handshake(s, nil); return err }).Should(MatchError(syscall.ECONNREFUSED))
		Expect(ended).NotTo(Receive())
		close(release)
		Eventually(answered).Should(Receive(HaveField("Body", "finished")))
		Eventually(ended).WithTimeout(20 * time.Second).Should(Receive(BeNil()))
		idle.CloseIdleConnections()
		busy.CloseIdleConnections()
		Eventually(gleak.Goroutines).WithTimeout(10 * time.Second).ShouldNot(gleak.HaveLeaked(before))
	}, SpecTimeout(time.Minute))
})
