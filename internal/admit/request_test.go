package admit_test

// This file specifies which requests are read, how long and how much of them, and what refuses the others.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/chain"
)

// largest is the bound on a request in some specs; there is room for eight such at once.
const largest = 1 << 20

// posted is the review of a pod with this body, before it is sent.
func posted(url, text string) *http.Request {
	GinkgoHelper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(text))
	Expect(err).NotTo(HaveOccurred())
	req.Header.Set("Content-Type", "application/json")
	return req
}

// upload begins a request on a connection of its own that says it is so large, and sends the text.
func (h *hook) upload(path string, size int, text string) *net.TCPConn {
	GinkgoHelper()
	conn, err := net.Dial("tcp", h.Listener.Addr().String())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(conn.Close)
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, size, text)
	Expect(err).NotTo(HaveOccurred())
	return conn.(*net.TCPConn)
}

// padded is the text of a review with white space up to a size.
func padded(size int) string {
	text := body("v1", request())
	return strings.Replace(text, `{`, `{`+strings.Repeat(" ", size-len(text)), 1)
}

// large makes the pod of a request larger than what is read of every client.
func large(req *admissionv1.AdmissionRequest) {
	req.Object.Raw = []byte(strings.Replace(pod, `"metadata":{`, `"metadata":{"annotations":{"long":"`+strings.Repeat("x", 600_000)+`"},`, 1))
}

var _ = Describe("A body", func() {
	var h *hook
	BeforeEach(func() {
		h = newHook(allow)
		h.Handler.MaxBytes = largest
	})

	DescribeTable("may have any size up to the bound:", func(size int) {
		Expect(h.post(volumes, padded(size)).review("v1").Allowed).To(BeTrue())
		unknown := posted(h.URL+volumes, "")
		unknown.Body, unknown.ContentLength = io.NopCloser(strings.NewReader(padded(size))), -1
		Expect(h.do(unknown).review("v1").Allowed).To(BeTrue())
	},
		Entry("just what is read from every client", 64<<10),
		Entry("one byte more", 64<<10+1),
		Entry("just the bound", largest),
	)

	It("makes room for others when it arrives slowly, and is answered with a request to retry", func() {
		const clients = 20 // eight of them have room
		answers := make(chan string, clients)
		for range clients {
			conn := h.upload(volumes+"?timeout=30s", largest, strings.Repeat(" ", 100<<10))
			go func() {
				answer, _ := io.ReadAll(conn)
				answers <- string(answer)
			}()
		}
		Expect(h.ask(large).review("v1").Allowed).To(BeTrue())
		Eventually(answers).Should(Receive(And(HavePrefix("HTTP/1.1 503 "), ContainSubstring("Retry-After: 1\r\n"),
			ContainSubstring("Connection: close\r\n"), ContainSubstring("too slowly"))))
	})

	It("costs nothing but its own connection when it announces more than it sends", func() {
		for range 100 {
			h.upload(volumes+"?timeout=30s", largest, "{")
		}
		Expect(h.ask(large).review("v1").Allowed).To(BeTrue())
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
		for range clients {
			conn := h.upload("/mutate/long?timeout=30s", largest, "")
			Expect(conn.SetReadBuffer(4 << 10)).To(Succeed())
			_, err := io.WriteString(conn, padded(largest))
			Expect(err).NotTo(HaveOccurred())
			_, err = conn.Read(make([]byte, 1)) // the answer has begun
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(h.ask(large).review("v1").Allowed).To(BeTrue())
	})
})

var _ = Describe("A request that is no AdmissionReview", func() {
	var (
		h     *hook
		calls atomic.Int32
	)
	BeforeEach(func() {
		calls.Store(0)
		h = newHook(func(context.Context, admission.Request) admission.Response {
			calls.Add(1)
			return admission.Allowed("")
		})
	})

	// refused expects a 4xx in words, and no extension to have seen anything.
	refused := func(got reply, status int, why string) {
		GinkgoHelper()
		Expect(got.Status).To(Equal(status), got.Body)
		Expect(got.Header).To(And(HaveKeyWithValue("Content-Type", HaveEach(HavePrefix("text/plain"))),
			HaveKeyWithValue("X-Content-Type-Options", []string{"nosniff"}), Not(HaveKey("Retry-After"))))
		Expect(got.Body).To(And(HavePrefix(`step "volumes": `), ContainSubstring(why)))
		Expect(len(got.Body)).To(BeNumerically("<", 1024), "the text of an unknown client is cut")
		Expect(calls.Load()).To(BeZero())
		Expect(h.logs.with("refused a request")).To(ConsistOf(And(
			HaveKeyWithValue("webhook", "volumes"), HaveKeyWithValue("status", BeEquivalentTo(status)),
			HaveKeyWithValue("reason", ContainSubstring(why)), HaveKey("from"),
		)))
	}
	tooLarge := func(length int64) func(*http.Request) {
		return func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat(" ", 64<<10+1))), length
		}
	}
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}

	DescribeTable("is refused for its header:", func(change func(*http.Request), status int, why string) {
		req := posted(h.URL+volumes, body("v1", request()))
		change(req)
		refused(h.do(req), status, why)
	},
		Entry("another method", func(r *http.Request) { r.Method = http.MethodPut }, 405, "method PUT: send the review with POST"),
		Entry("no Content-Type", func(r *http.Request) { r.Header.Del("Content-Type") }, 415, "send application/json"),
		Entry("another one", header("Content-Type", "application/yaml"), 415, "application/yaml"),
		Entry("one that cannot be read", header("Content-Type", "application/json; ="), 415, "send application/json"),
		Entry("gzip", header("Content-Encoding", "gzip"), 415, "uncompressed"),
		Entry("too large, by its own word", tooLarge(64<<10+1), 413, "larger than 65536 bytes (ManagerOptions.MaxRequestBytes)"),
		Entry("too large, without a word", tooLarge(-1), 413, "larger than 65536 bytes"),
	)

	It("is answered with the method to use", func() {
		resp, err := h.Client().Get(h.URL + volumes)
		Expect(err).NotTo(HaveOccurred())
		Expect(read(resp).Header.Get("Allow")).To(Equal(http.MethodPost))
	})

	DescribeTable("is welcome with", func(name, value string) {
		req := posted(h.URL+volumes, body("v1", request()))
		header(name, value)(req)
		h.do(req).review("v1")
	},
		Entry("a charset and capitals", "Content-Type", "Application/JSON; charset=utf-8"),
		Entry("the encoding that is none", "Content-Encoding", "identity"),
	)

	changed := func(old, by string) string { return strings.Replace(body("v1", request()), old, by, 1) }
	const envelope = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"%s}`

	DescribeTable("is refused for its body:",
		func(text, why string) { refused(h.post(volumes, text), http.StatusBadRequest, why) },
		Entry("none", "", "no body"),
		Entry("half of one", body("v1", request())[:100], "not an AdmissionReview"),
		Entry("two of them", body("v1", request())+body("v1", request()), "not an AdmissionReview"),
		Entry("null", "null", "document without kind"),
		Entry("another kind", `{"apiVersion":"v1","kind":"Pod"}`, `a Pod of "v1"`),
		Entry("another group", changed("admission.k8s.io/v1", "admission.example.org/v1"), "admission.example.org"),
		Entry("another version", body("v2", request()), "send an AdmissionReview of admission.k8s.io/v1 or v1beta1"),
		Entry("no request", fmt.Sprintf(envelope, ""), "holds no request"),
		Entry("a null request", body("v1", nil), "holds no request"),
		Entry("a request that is a string", fmt.Sprintf(envelope, `,"request":"x"`), "not an AdmissionReview"),
		Entry("no uid", changed(uid, ""), "no uid"),
		Entry("a uid longer than any name", changed(uid, strings.Repeat("u", 254)), "uid has 254 bytes; send one of at most 253"),
		Entry("such a uid, written with an escape", changed(uid, `\u0075`+strings.Repeat("u", 253)), "send one of at most 253"),
		Entry("no operation", changed("CREATE", ""), "must be CREATE, UPDATE, DELETE or CONNECT"),
		Entry("an operation in small letters", changed("CREATE", "create"), `operation is "create"`),
		Entry("UID for uid", changed(`"uid"`, `"UID"`), "no uid"),
		Entry("a very long kind", fmt.Sprintf(`{"kind":%q}`, strings.Repeat("k", 50_000)), "kkk"),
		Entry("very many brackets", strings.Repeat("[", 60_000), "not an AdmissionReview"),
	)

	DescribeTable("is refused when it ends before its length", func(size, sent int) {
		h.Handler.MaxBytes = largest
		conn := h.upload(volumes+"?timeout=30s", size, strings.Repeat(" ", sent))
		Expect(conn.CloseWrite()).To(Succeed())
		refused(answerOn(conn), http.StatusBadRequest, "ended before its Content-Length")
	},
		Entry("within what is read from every client", 1000, 1),
		Entry("beyond that", 200<<10, 100<<10),
	)

	It("is not waited for longer than its timeout", func() {
		got := answerOn(h.upload(volumes+"?timeout=200ms", 1000, "{"))
		refused(got, http.StatusRequestTimeout, "before its timeout")
		Expect(got.Closes).To(BeTrue())
	})

	It("is refused for the size of its other members, however they are written, and not for that of its objects", func() {
		h.Handler.MaxBytes = 4 << 20
		review := body("v1", request(large))
		plain := `"username":"alice"`
		groups := plain + `,"groups":["` + strings.Repeat(`","`, 100_000) + `"]`
		Expect(review).To(ContainSubstring(plain))
		for _, spelling := range []string{plain, `"username":"\u0061lice"`, `"usern\u0061me":"alice"`, `"username":"alice","username":"alice"`} {
			h.post(volumes, strings.Replace(review, plain, spelling, 1)).review("v1")
			got := h.post(volumes, strings.Replace(review, plain, strings.Replace(groups, plain, spelling, 1), 1))
			Expect(got.Status).To(Equal(http.StatusRequestEntityTooLarge), got.Body)
			Expect(got.Body).To(ContainSubstring("outside its objects; send at most 262144"))
		}
	})

	It("may have a uid as long as a name", func() {
		long := types.UID(strings.Repeat("u", 253))
		Expect(h.ask(func(r *admissionv1.AdmissionRequest) { r.UID = long }).Body).To(ContainSubstring(string(long)))
	})

	DescribeTable("bounds the time to read and to answer, and leaves that of the next request on its connection alone:", func(warning string, bounded OmegaMatcher) {
		w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
		h.Handler.Serve(volumes, chain.Config{Steps: []chain.Step{label("a", func(c *chain.Call) error {
			c.Warn(warning)
			return nil
		})}})
		before := time.Now()
		h.ServeHTTP(w, posted(volumes+"?timeout=10s", body("v1", request())))
		Expect(w.Code).To(Equal(http.StatusOK))
		after := time.Now()
		Expect(w.reading).To(HaveExactElements(And(BeTemporally(">=", before.Add(10*time.Second)), BeTemporally("<=", after.Add(10*time.Second))), BeZero()))
		Expect(w.writing).To(bounded)
	},
		Entry("a short answer", "short", BeEmpty()),
		Entry("a long one", strings.Repeat("long ", 1000), ConsistOf(BeTemporally(">", time.Now()))),
	)
})

// answerOn reads the answer on a connection.
func answerOn(conn net.Conn) reply {
	GinkgoHelper()
	Expect(conn.SetDeadline(time.Now().Add(30 * time.Second))).To(Succeed())
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	Expect(err).NotTo(HaveOccurred())
	return read(resp)
}

// deadlineRecorder notes which deadlines were set for its connection.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	reading, writing []time.Time
}

func (d *deadlineRecorder) SetWriteDeadline(t time.Time) error {
	d.writing = append(d.writing, t)
	return nil
}

func (d *deadlineRecorder) SetReadDeadline(t time.Time) error {
	d.reading = append(d.reading, t)
	return nil
}

// FuzzServeHTTP sends any bytes as an AdmissionReview. The answer is a review in the version and with the
// UID of the question, or an HTTP error in words; nothing panics, and no step sees a refused request.
func FuzzServeHTTP(f *testing.F) {
	const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","object":` + pod + `}}`
	f.Add([]byte(review))
	changes := []string{
		"/v1", "/v1beta1", "CREATE", "DELETE", `"request"`, `"Request"`, `"u"`, `"\ud800"`, pod, "null", pod, "[1,2]", pod, `"text"`,
		pod, `{"metadata":null}`, `"uid":"u"`, `"uid":"u","dryRun":true,"options":{},"userInfo":{"extra":{"a":["b"]}}`,
		review, "", review, "{}", review, "null", review, "\xff", review, `{"apiVersion":1,"kind":{}}`, review, review + "x",
	}
	for change := range slices.Chunk(changes, 2) {
		f.Add([]byte(strings.Replace(review, change[0], change[1], 1)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		g, called := NewWithT(t), false
		h := &admit.Handler{MaxBytes: 1 << 20}
		h.Serve(volumes, handling("volumes", func(_ context.Context, req admission.Request) admission.Response {
			called = true
			g.Expect(req.UID).NotTo(BeEmpty())
			return raw(admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(`[{"op":"add","path":"/metadata/labels","value":{}}]`)})
		}))
		r, w := httptest.NewRequest(http.MethodPost, volumes+"?timeout=30s", bytes.NewReader(text)), httptest.NewRecorder()
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)

		if w.Code == http.StatusOK {
			var answered admissionv1.AdmissionReview
			g.Expect(json.Unmarshal(w.Body.Bytes(), &answered)).To(Succeed())
			g.Expect(answered.Kind).To(Equal("AdmissionReview"))
			g.Expect(answered.APIVersion).To(BeElementOf("admission.k8s.io/v1", "admission.k8s.io/v1beta1"))
			g.Expect(answered.Response.UID).NotTo(BeEmpty())
			g.Expect(called).To(BeTrue())
			return
		}
		g.Expect(w.Code).To(And(BeNumerically(">=", 400), BeNumerically("<=", 500)))
		g.Expect(called).To(Equal(w.Code == http.StatusInternalServerError), "only an extension fails")
		g.Expect(w.Body.String()).To(And(ContainSubstring("volumes"), WithTransform(utf8.ValidString, BeTrue())))
		g.Expect(w.Body.Len()).To(BeNumerically("<", 4096))
	})
}
