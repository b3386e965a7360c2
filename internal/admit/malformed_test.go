package admit_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
)

// setBody gives the request a body of known length.
func setBody(r *http.Request, text string) {
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
}

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
		Expect(got.Header.Get("Content-Type")).To(HavePrefix("text/plain"))
		Expect(got.Header.Get("X-Content-Type-Options")).To(Equal("nosniff"))
		Expect(got.Header).NotTo(HaveKey("Retry-After"))
		Expect(got.Body).To(And(HavePrefix(`step "volumes": `), ContainSubstring(why)))
		Expect(len(got.Body)).To(BeNumerically("<", 1024), "the text of an unknown client is cut")
		Expect(calls.Load()).To(BeZero())
		said := h.logs.with("refused a request")
		Expect(said).To(ConsistOf(And(
			HaveKeyWithValue("webhook", "volumes"),
			HaveKeyWithValue("status", BeEquivalentTo(status)),
			HaveKeyWithValue("reason", ContainSubstring(why)),
			HaveKey("from"),
		)))
	}

	DescribeTable("is refused for its header:",
		func(change func(*http.Request), status int, why string) {
			req, err := http.NewRequest(http.MethodPost, h.URL+volumes, nil)
			Expect(err).NotTo(HaveOccurred())
			setBody(req, body("v1", request()))
			req.Header.Set("Content-Type", "application/json")
			change(req)
			refused(h.do(req), status, why)
		},
		Entry("GET", func(r *http.Request) { r.Method = http.MethodGet }, 405, "method GET"),
		Entry("PUT", func(r *http.Request) { r.Method = http.MethodPut }, 405, "send the review with POST"),
		Entry("no Content-Type", func(r *http.Request) { r.Header.Del("Content-Type") }, 415, "send application/json"),
		Entry("YAML", func(r *http.Request) { r.Header.Set("Content-Type", "application/yaml") }, 415, "application/yaml"),
		Entry("a form", func(r *http.Request) { r.Header.Set("Content-Type", "multipart/form-data; boundary=x") }, 415, "send application/json"),
		Entry("a Content-Type that is none", func(r *http.Request) { r.Header.Set("Content-Type", "application/json; =") }, 415, "send application/json"),
		Entry("a type that only begins so", func(r *http.Request) { r.Header.Set("Content-Type", "application/json-patch+json") }, 415, "send application/json"),
		Entry("gzip", func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, 415, "uncompressed"),
		Entry("too large, by its own word", func(r *http.Request) { setBody(r, strings.Repeat(" ", 64<<10+1)) }, 413, "larger than 65536 bytes (ManagerOptions.MaxRequestBytes)"),
		Entry("too large, without a word", func(r *http.Request) {
			setBody(r, strings.Repeat(" ", 64<<10+1))
			r.ContentLength = -1
		}, 413, "larger than 65536 bytes"),
	)

	It("is answered with the method to use", func() {
		resp, err := h.Client().Get(h.URL + volumes)
		Expect(err).NotTo(HaveOccurred())
		Expect(read(resp).Header.Get("Allow")).To(Equal(http.MethodPost))
	})

	DescribeTable("is welcome with", func(header, value string) {
		req, err := http.NewRequest(http.MethodPost, h.URL+volumes, nil)
		Expect(err).NotTo(HaveOccurred())
		setBody(req, body("v1", request()))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set(header, value)
		h.do(req).review("v1")
	},
		Entry("a charset", "Content-Type", "application/json; charset=utf-8"),
		Entry("capitals", "Content-Type", "Application/JSON"),
		Entry("the encoding that is none", "Content-Encoding", "identity"),
	)

	DescribeTable("is refused for its body:",
		func(text, why string) { refused(h.post(volumes, text), http.StatusBadRequest, why) },
		Entry("none", "", "no body"),
		Entry("no JSON", "hello", "not an AdmissionReview"),
		Entry("half of one", body("v1", request())[:100], "not an AdmissionReview"),
		Entry("more after its end", body("v1", request())+"{}", "not an AdmissionReview"),
		Entry("two of them", body("v1", request())+body("v1", request()), "not an AdmissionReview"),
		Entry("a list", "["+body("v1", request())+"]", "not an AdmissionReview"),
		Entry("a string", `"AdmissionReview"`, "not an AdmissionReview"),
		Entry("null", "null", "document without kind"),
		Entry("an empty object", "{}", "document without kind"),
		Entry("another kind", `{"apiVersion":"v1","kind":"Pod"}`, `a Pod of "v1"`),
		Entry("another group", strings.Replace(body("v1", request()), "admission.k8s.io/v1", "admission.example.org/v1", 1), "admission.example.org"),
		Entry("another version", body("v2", request()), "admission.k8s.io/v2"),
		Entry("no version", strings.Replace(body("v1", request()), "admission.k8s.io/v1", "", 1), "send an AdmissionReview of admission.k8s.io/v1 or v1beta1"),
		Entry("no request", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, "holds no request"),
		Entry("a null request", body("v1", nil), "holds no request"),
		Entry("a request that is a string", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":"x"}`, "not an AdmissionReview"),
		Entry("no uid", body("v1", request(func(r *admissionv1.AdmissionRequest) { r.UID = "" })), "no uid"),
		Entry("a uid longer than any name", body("v1", request(func(r *admissionv1.AdmissionRequest) { r.UID = types.UID(strings.Repeat("u", 254)) })), "uid has 254 bytes; send one of at most 253"),
		Entry("such a uid, written with an escape", strings.Replace(body("v1", request()), `"uid":"`, `"uid":"\u0075`+strings.Repeat("u", 253), 1), "send one of at most 253"),
		Entry("no operation", body("v1", request(func(r *admissionv1.AdmissionRequest) { r.Operation = "" })), "must be CREATE, UPDATE, DELETE or CONNECT"),
		Entry("an unknown operation", body("v1", request(func(r *admissionv1.AdmissionRequest) { r.Operation = "PATCH" })), `operation is "PATCH"`),
		Entry("an operation in small letters", body("v1", request(func(r *admissionv1.AdmissionRequest) { r.Operation = "create" })), `operation is "create"`),
		Entry("a wildcard for an operation", body("v1", request(func(r *admissionv1.AdmissionRequest) { r.Operation = "*" })), `operation is "*"`),
		Entry("Request for request", strings.Replace(body("v1", request()), `"request"`, `"Request"`, 1), "holds no request"),
		Entry("UID for uid", strings.Replace(body("v1", request()), `"uid"`, `"UID"`, 1), "no uid"),
		Entry("Kind for kind", strings.Replace(body("v1", request()), `"kind":"Adm`, `"Kind":"Adm`, 1), "document without kind"),
		Entry("a very long kind", fmt.Sprintf(`{"kind":%q}`, strings.Repeat("k", 50_000)), "kkk"),
		Entry("a very long version", fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":%q}`, strings.Repeat("v", 50_000)), "vvv"),
		Entry("a very long number", `{"kind":`+strings.Repeat("1", 50_000)+`}`, "not an AdmissionReview"),
		Entry("very many brackets", strings.Repeat("[", 60_000), "not an AdmissionReview"),
	)

	// raw opens a connection, sends text on it as it is, and hands both over.
	raw := func(text string) *net.TCPConn {
		GinkgoHelper()
		conn, err := net.Dial("tcp", h.Listener.Addr().String())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(conn.Close)
		Expect(conn.SetDeadline(time.Now().Add(20 * time.Second))).To(Succeed())
		_, err = io.WriteString(conn, text)
		Expect(err).NotTo(HaveOccurred())
		return conn.(*net.TCPConn)
	}
	answer := func(conn net.Conn) reply {
		GinkgoHelper()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		Expect(err).NotTo(HaveOccurred())
		return read(resp)
	}
	const header = "POST /mutate/volumes?timeout=%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"

	It("is refused when it ends before its length", func() {
		conn := raw(fmt.Sprintf(header, "10s"))
		Expect(conn.CloseWrite()).To(Succeed())
		refused(answer(conn), http.StatusBadRequest, "ended before its Content-Length")
	})

	It("is not waited for longer than its timeout", func() {
		got := answer(raw(fmt.Sprintf(header, "200ms")))
		refused(got, http.StatusRequestTimeout, "before its timeout")
		Expect(got.Closes).To(BeTrue())
	})

	It("is refused for the size of its other members, however they are written, and not for that of its objects", func() {
		h.Handler.MaxBytes = 4 << 20
		large := body("v1", request(func(r *admissionv1.AdmissionRequest) {
			r.Object.Raw = []byte(strings.Replace(pod, `"metadata":{`, `"metadata":{"annotations":{"long":"`+strings.Repeat("x", 600_000)+`"},`, 1))
		}))
		plain := `"username":"alice"`
		groups := plain + `,"groups":["` + strings.Repeat(`","`, 100_000) + `"]`
		Expect(large).To(ContainSubstring(plain))
		for _, spelling := range []string{plain, `"username":"\u0061lice"`, `"usern\u0061me":"alice"`, `"username":"alice","username":"alice"`} {
			h.post(volumes, strings.Replace(large, plain, spelling, 1)).review("v1")
			got := h.post(volumes, strings.Replace(large, plain, strings.Replace(groups, plain, spelling, 1), 1))
			Expect(got.Status).To(Equal(http.StatusRequestEntityTooLarge), got.Body)
			Expect(got.Body).To(ContainSubstring("outside its objects; send at most 262144"))
		}
	})

	It("may have a uid as long as a name", func() {
		long := types.UID(strings.Repeat("u", 253))
		Expect(h.ask(func(r *admissionv1.AdmissionRequest) { r.UID = long }).Body).To(ContainSubstring(string(long)))
	})

	It("bounds the time to read and to answer, and leaves that of the next request on its connection alone", func() {
		w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
		req := httptest.NewRequest(http.MethodPost, volumes+"?timeout=10s", strings.NewReader(body("v1", request())))
		req.Header.Set("Content-Type", "application/json")
		h.Handler.Serve(volumes, chain.Config{Steps: []chain.Step{label("a", func(c *chain.Call) error {
			c.Warn(strings.Repeat("long ", 1000))
			return nil
		})}})
		before := time.Now()
		h.ServeHTTP(w, req)
		Expect(w.Code).To(Equal(http.StatusOK))
		Expect(w.deadlines).To(HaveLen(2))
		Expect(w.deadlines[0]).To(BeTemporally("~", before.Add(10*time.Second), time.Second))
		Expect(w.deadlines[1]).To(BeZero())
		Expect(w.writing).To(HaveLen(2))
		Expect(w.writing[0]).To(BeTemporally(">", before))
		Expect(w.writing[1]).To(BeZero())
		Expect(w.Flushed).To(BeTrue(), "nothing is left to be written without a deadline")
	})

	It("leaves a short answer to the server, which sends it when the handler is done", func() {
		w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
		req := httptest.NewRequest(http.MethodPost, volumes+"?timeout=10s", strings.NewReader(body("v1", request())))
		req.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, req)
		Expect(w.Code).To(Equal(http.StatusOK))
		Expect(w.writing).To(BeEmpty())
		Expect(w.Flushed).To(BeFalse())
	})
})

// deadlineRecorder notes which deadlines were set for its connection.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	deadlines, writing []time.Time
}

func (d *deadlineRecorder) SetWriteDeadline(t time.Time) error {
	d.writing = append(d.writing, t)
	return nil
}

func (d *deadlineRecorder) SetReadDeadline(t time.Time) error {
	d.deadlines = append(d.deadlines, t)
	return nil
}
