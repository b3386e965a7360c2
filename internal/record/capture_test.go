package record_test

// A recorder changes nothing for the handler and its client: neither the answer nor the connection, nor by being slow. Its
// end loses no call that had begun, waits no longer than its context, and leaves nothing behind.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gleak"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/record"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("A handler that is recorded", func() {
	// converse sends a client's bytes on a connection of its own, and returns the answer until the
	// server ends the connection.
	converse := func(server *httptest.Server, says string) string {
		GinkgoHelper()
		conn := Must(net.Dial("tcp", server.Listener.Addr().String()))
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
	large := strings.Repeat(" ", 1<<20+1) // more than the handler takes

	// The handler alone decides on its answers and on the connection: a second request follows on it.
	DescribeTable("answers as it would without:", func(says string, recorded record.Counts, want string) {
		w := newWorld(func(context.Context, admission.Request) admission.Response { return admission.Denied("no") })
		s := serve(w.recorded)
		got := converse(s, says+end)
		Expect(got).To(Equal(converse(serve(w.handler), says+end)))
		Expect(got).To(HavePrefix("HTTP/1.1 " + want))
		s.Close()
		w.close()
		Expect(w.counted()).To(Equal(recorded))
	},
		Entry("two reviews", post(review(pod))+post(review(pod)), record.Counts{Written: 2}, "200 OK"),
		Entry("a review that is awaited", post(review(pod), "Expect: 100-continue"), record.Counts{Written: 1}, "100 Continue"),
		Entry("one larger than the first buffer", post(review(`{"x":"`+strings.Repeat("x", 200<<10)+`"}`)), record.Counts{Written: 1}, "200 OK"),
		Entry("one larger than that, in chunks", chunked(review(`{"x":"`+strings.Repeat("x", 200<<10)+`"}`)), record.Counts{Written: 1}, "200 OK"),
		Entry("too large, by its own word", post(large), record.Counts{}, "413"),
		Entry("too large, without a word", chunked(large), record.Counts{Failed: 1}, "413"),
		Entry("no body", post(""), record.Counts{}, "400"),
		Entry("no JSON", post("hello"), record.Counts{Failed: 1}, "400"),
		Entry("a review without request", post(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`), record.Counts{Failed: 1}, "400"),
		Entry("a review without uid, which is answered with an error", post(strings.Replace(review(pod), uid, "", 1)), record.Counts{Written: 1}, "400"),
		Entry("gzip", post(review(pod), "Content-Encoding: gzip"), record.Counts{}, "415"),
		Entry("a body that does not arrive in time", post(review(pod))[:400], record.Counts{Failed: 1}, "408"),
	)

	It("is no worse off when the client goes away", func() {
		w := newWorld(allow)
		conn := Must(net.Dial("tcp", serve(w.recorded).Listener.Addr().String()))
		Must(io.WriteString(conn, post(review(pod))[:400]))
		Expect(conn.Close()).To(Succeed())
		Eventually(w.counted).Should(Equal(record.Counts{Failed: 1}))
		Expect(w.logs.All()).To(ConsistOf(ContainSubstring("did not arrive in full")))
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
		converse(s, post(review(pod), "Connection: close"))
		s.Close()
		got := w.read()[0]
		Expect(got.Status).To(Equal(http.StatusTeapot))
		Expect(got.Error).To(Equal("short and stout"))
	})

	It("may panic, which is the server's business", func() {
		w := newWorld(allow)
		panics := w.recorder.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			panic(http.ErrAbortHandler)
		}))
		request := httptest.NewRequest(http.MethodPost, path, strings.NewReader(review(pod)))
		Expect(func() { panics.ServeHTTP(httptest.NewRecorder(), request) }).To(PanicWith(http.ErrAbortHandler))
		Expect(w.recorder.Budget()).To(Equal(record.MaxWaitingBytes))
		Expect(w.read()).To(BeEmpty())
	})
})

// blocking blocks the goroutine that writes at its first call, until release. Register release with DeferCleanup after
// newWorld: otherwise the end of the world waits for the blocked goroutine.
func blocking() (change func(*record.Options), began <-chan struct{}, release func()) {
	wait, first := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(first) })
	return func(o *record.Options) {
		o.Only = func(*admissionv1.AdmissionRequest) bool {
			begin()
			<-wait
			return true
		}
	}, first, sync.OnceFunc(func() { close(wait) })
}

var _ = Describe("A recorder that cannot keep up", func() {
	It("drops calls that find no place, logs this once, and answers all the same", func() {
		change, began, release := blocking()
		w := newWorld(allow, change)
		DeferCleanup(release)
		w.allowed(review(pod))
		Eventually(began).Should(BeClosed())
		for range record.MaxWaiting + 20 {
			w.allowed(review(pod))
		}
		Expect(w.counted()).To(Equal(record.Counts{Dropped: 20}))
		Expect(w.logs.All()).To(ConsistOf(And(ContainSubstring("more calls came than could be written"), ContainSubstring(`"droppedBefore":0`))))
		release()
		Expect(w.read()).To(HaveLen(record.MaxWaiting + 1))
	})

	It("bounds the bytes that wait as well as the calls", func() {
		change, _, release := blocking()
		w := newWorld(allow, change)
		DeferCleanup(release)
		w.budget = 3 << 20
		w.recorder.SetBudget(w.budget)
		for range 10 {
			w.allowed(review(`{"kind":"Pod","x":"` + strings.Repeat("x", 900<<10) + `"}`))
		}
		Expect(w.recorder.Budget()).To(And(BeNumerically(">=", 0), BeNumerically("<", 1<<20)))
		Expect(w.counted()).To(Equal(record.Counts{Dropped: 7}))
		release()
		Expect(w.read()).To(HaveLen(3))
	})
})

// hanging is a step that stands still with pods called hangs, until release.
func hanging() (f chain.HandleFunc, began <-chan struct{}, release func()) {
	wait, stands := make(chan struct{}), make(chan struct{}, 100)
	return func(_ context.Context, r admission.Request) admission.Response {
		if r.Name == "hangs" {
			stands <- struct{}{}
			<-wait
		}
		return admission.Allowed("")
	}, stands, sync.OnceFunc(func() { close(wait) })
}

// hung is a review for such a pod.
var hung = strings.Replace(review(pod), `"name":"web-0","namespace":"cf"`, `"name":"hangs","namespace":"cf"`, 1)

// ended is a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	return ctx
}

// waited is a context that signals the first wait for its end.
type waited struct {
	context.Context
	by chan struct{}
}

func (w waited) Done() <-chan struct{} {
	select {
	case w.by <- struct{}{}:
	default:
	}
	return w.Context.Done()
}

var _ = Describe("The end of a recording", func() {
	It("waits for the calls that have begun, and takes no others, which are served all the same", func() {
		step, began, release := hanging()
		w := newWorld(step)
		DeferCleanup(release)
		var calls sync.WaitGroup
		calls.Go(func() { defer GinkgoRecover(); w.allowed(hung) })
		Eventually(began).Should(Receive())
		closed, waiting := make(chan error, 1), waited{context.Background(), make(chan struct{}, 1)}
		go func() { closed <- w.recorder.Close(waiting) }()
		Eventually(waiting.by).Should(Receive())
		w.allowed(review(pod))
		Expect(closed).NotTo(Receive())

		release()
		Eventually(closed).Should(Receive(BeNil()))
		Expect(w.counted()).To(Equal(record.Counts{Written: 1}))
		Expect(w.read()).To(HaveExactElements(And(HaveField("Review.Request.Name", "hangs"), HaveField("Review.Response.Allowed", true))))
		Expect(w.logs.All()).To(BeEmpty())
		calls.Wait()
	})

	It("drops the calls that are neither answered nor written at its deadline, and counts them before it returns", func() {
		before := gleak.Goroutines()
		step, began, release := hanging()
		change, writes, proceed := blocking()
		w := newWorld(step, change)
		DeferCleanup(release)
		DeferCleanup(proceed)
		for range 3 {
			w.allowed(review(pod))
		}
		Eventually(writes).Should(BeClosed())
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() { defer GinkgoRecover(); w.allowed(hung) })
			Eventually(began).Should(Receive())
		}

		Expect(w.recorder.Close(ended())).To(MatchError(And(ContainSubstring("before everything was written (5 calls were left)"), ContainSubstring("enough"))))
		expectTold := func() {
			GinkgoHelper()
			Expect(w.counted()).To(Equal(record.Counts{Dropped: 5}))
			Expect(w.logs.All()).To(BeEmpty())
		}
		expectTold()
		Expect(w.recorder.Close(ended())).NotTo(Succeed())
		expectTold()

		release()
		proceed()
		calls.Wait()
		w.close()
		expectTold()
		Expect(filesOf(w.dir)).To(BeEmpty())
		Eventually(w.recorder.Budget).Should(Equal(record.MaxWaitingBytes))
		Eventually(gleak.Goroutines).ShouldNot(gleak.HaveLeaked(before))
	})

	It("leaves no goroutine and no open file", func() {
		before, files := gleak.Goroutines(), openFiles()
		for range 5 {
			dir := GinkgoT().TempDir()
			r := Must(record.New(record.Options{Dir: dir}, logr.Discard()))
			Expect(record.New(record.Options{Dir: dir}, logr.Discard())).Error().To(HaveOccurred())
			Expect(r.Close(context.Background())).To(Succeed())
			Expect(record.New(record.Options{Dir: dir + "/\x00"}, logr.Discard())).Error().To(HaveOccurred())
		}
		Eventually(gleak.Goroutines).ShouldNot(gleak.HaveLeaked(before))
		Eventually(openFiles).Should(BeNumerically("<=", files))
	})
})

// openFiles are the open files of this process, where the system lists them.
func openFiles() int {
	all, _ := os.ReadDir("/proc/self/fd")
	return len(all)
}
