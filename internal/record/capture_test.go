package record_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/record"
)

// large is more than the handler takes.
var large = strings.Repeat(" ", 1<<20+1)

var _ = Describe("A handler that is recorded", func() {
	// converse sends a client's bytes on a connection of its own, and returns the answer until the
	// server ends the connection.
	converse := func(server *httptest.Server, says string) string {
		GinkgoHelper()
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		Expect(err).NotTo(HaveOccurred())
		defer conn.Close()
		go func() { _, _ = io.WriteString(conn, says) }()
		var text strings.Builder
		answers := bufio.NewReader(conn)
		for {
			resp, err := http.ReadResponse(answers, nil)
			if err != nil {
				return text.String()
			}
			resp.Header.Del("Date")
			Expect(resp.Write(&text)).To(Succeed())
			text.WriteString("\n")
			if resp.Close {
				return text.String()
			}
		}
	}
	head := func(method, path string, more ...string) string {
		return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\n%s\r\n", method, path, strings.Join(append(more, ""), "\r\n"))
	}
	const isJSON = "Content-Type: application/json"
	post := func(body string, more ...string) string {
		return head(http.MethodPost, path+"?timeout=1s", append(more, isJSON, fmt.Sprintf("Content-Length: %d", len(body)))...) + body
	}
	chunked := func(body string) string {
		return head(http.MethodPost, path+"?timeout=1s", isJSON, "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	}
	const end = "GET /end HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

	// The handler alone decides on its answers and on the connection: a second request follows on it.
	DescribeTable("answers as it would without:", func(says string, recorded record.Counts, want string) {
		w := newWorld(func(context.Context, admission.Request) admission.Response { return admission.Denied("no") })
		bare := httptest.NewServer(w.handler)
		DeferCleanup(bare.Close)
		got := converse(w.Server, says+end)
		Expect(got).To(Equal(converse(bare, says+end)))
		Expect(got).To(HavePrefix("HTTP/1.1 " + want))
		w.close()
		Expect(w.counted()).To(Equal(recorded))
	},
		Entry("a review", post(review(pod)), record.Counts{Written: 1}, "200 OK"),
		Entry("a review in chunks", chunked(review(pod)), record.Counts{Written: 1}, "200 OK"),
		Entry("two reviews", post(review(pod))+post(review(pod)), record.Counts{Written: 2}, "200 OK"),
		Entry("a review that is awaited", post(review(pod), "Expect: 100-continue"), record.Counts{Written: 1}, "100 Continue"),
		Entry("one larger than the first buffer", post(review(`{"x":"`+strings.Repeat("x", 200<<10)+`"}`)), record.Counts{Written: 1}, "200 OK"),
		Entry("one larger than that, in chunks", chunked(review(`{"x":"`+strings.Repeat("x", 200<<10)+`"}`)), record.Counts{Written: 1}, "200 OK"),
		Entry("too large, by its own word", post(large), record.Counts{}, "413"),
		Entry("too large, without a word", chunked(large), record.Counts{Failed: 1}, "413"),
		Entry("no body", post(""), record.Counts{}, "400"),
		Entry("no JSON", post("hello"), record.Counts{Failed: 1}, "400"),
		Entry("no review", post(`{"kind":"Pod"}`), record.Counts{Failed: 1}, "400"),
		Entry("a review without request", post(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`), record.Counts{Failed: 1}, "400"),
		Entry("a review of another version", post(strings.Replace(review(pod), "k8s.io/v1", "k8s.io/v9", 1)), record.Counts{Failed: 1}, "400"),
		Entry("a review without uid, which is answered with an error", post(strings.Replace(review(pod), uid, "", 1)), record.Counts{Written: 1}, "400"),
		Entry("gzip", post(review(pod), "Content-Encoding: gzip"), record.Counts{}, "415"),
		Entry("GET", head(http.MethodGet, path), record.Counts{}, "405"),
		Entry("a path that another replica may know", strings.Replace(post(review(pod)), path, "/mutate/unknown", 1), record.Counts{}, "503"),
		Entry("a body that does not arrive in time", post(review(pod))[:400], record.Counts{Failed: 1}, "408"),
	)

	It("is no worse off when the client goes away", func() {
		w := newWorld(allow)
		conn, err := net.Dial("tcp", w.Listener.Addr().String())
		Expect(err).NotTo(HaveOccurred())
		_, err = io.WriteString(conn, post(review(pod))[:400])
		Expect(err).NotTo(HaveOccurred())
		Expect(conn.Close()).To(Succeed())
		Eventually(w.counted).Should(Equal(record.Counts{Failed: 1}))
		Expect(w.logs.all()).To(ConsistOf(ContainSubstring("did not arrive in full")))
		w.allowed(review(pod))
		Expect(w.read()).To(HaveLen(1))
	})

	It("is recorded with the status that was sent, which is the first", func() {
		w := newWorld(allow)
		s := httptest.NewUnstartedServer(w.recorder.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusTeapot)
			w.WriteHeader(http.StatusOK)
			_, _ = io.WriteString(w, " short and stout\n")
		})))
		s.Config.ErrorLog = log.New(io.Discard, "", 0) // net/http complains of the third
		s.Start()
		DeferCleanup(s.Close)
		ask(s.URL, review(pod))
		got := w.read()[0]
		Expect(got.Status).To(Equal(http.StatusTeapot))
		Expect(got.Error).To(Equal("short and stout"))
	})

	It("may panic, which is the server's business", func() {
		w := newWorld(allow)
		s := httptest.NewServer(w.recorder.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			panic(http.ErrAbortHandler)
		})))
		DeferCleanup(s.Close)
		_, err := http.Post(s.URL+path, "application/json", strings.NewReader(review(pod)))
		Expect(err).To(MatchError(io.EOF))
		Eventually(w.recorder.Budget).Should(Equal(record.MaxWaitingBytes))
		Expect(w.read()).To(BeEmpty())
	})

	It("may speak HTTP/2", func() {
		w := newWorld(allow)
		s := httptest.NewUnstartedServer(w.recorder.Wrap(w.handler))
		s.EnableHTTP2 = true
		s.StartTLS()
		DeferCleanup(s.Close)
		resp, err := s.Client().Post(s.URL+path, "application/json", strings.NewReader(review(pod)))
		Expect(err).NotTo(HaveOccurred())
		Expect(resp.Body.Close()).To(Succeed())
		Expect(resp.ProtoMajor).To(Equal(2))
		Expect(w.read()).To(HaveLen(1))
	})
})
