package admit_test

// This file specifies how a conversion is asked and answered over HTTP.

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/convert"
)

var _ = Describe("A conversion", func() {
	const path = "/convert/shops.example.com"
	var (
		h       *hook
		reviews chan string
	)
	// answers makes f the conversion.
	answers := func(f func(context.Context, []byte) ([]byte, error)) {
		h.Convert(map[string]admit.Conversion{path: {Name: "shops.example.com", Answer: func(ctx context.Context, review []byte, _ admit.Room) ([]byte, error) {
			reviews <- string(review)
			return f(ctx, review)
		}}})
	}
	BeforeEach(func() {
		h, reviews = newHook(allow), make(chan string, 100)
		answers(func(context.Context, []byte) ([]byte, error) { return []byte("answer"), nil })
	})

	It("gets the review, and its answer is sent as JSON", func() {
		got := h.post(path, "the review")
		Expect(got.Status).To(Equal(http.StatusOK))
		Expect(got.Body).To(Equal("answer"))
		Expect(got.Header.Get("Content-Type")).To(Equal("application/json"))
		Expect(reviews).To(Receive(Equal("the review")))
		Expect(h.count("eirinix_conversion_duration_seconds", "shops.example.com")).To(BeEquivalentTo(1))
	})

	DescribeTable("that fails is answered with the reason", func(failure func() ([]byte, error), status int, reason string) {
		answers(func(context.Context, []byte) ([]byte, error) { return failure() })
		got := h.post(path, "x")
		Expect(got.Status).To(Equal(status))
		Expect(got.Body).To(And(HavePrefix("conversion of shops.example.com: "), ContainSubstring(reason)))
		Expect(got.Header.Get("Retry-After") != "").To(Equal(status == http.StatusServiceUnavailable))
		Expect(h.logs.with("refused a conversion")).To(HaveLen(1))
	},
		Entry("for no review", func() ([]byte, error) {
			return nil, &convert.Refusal{Status: http.StatusBadRequest, Reason: "no review"}
		}, http.StatusBadRequest, "no review"),
		Entry("for one that another replica can do, which is sent there", func() ([]byte, error) {
			return nil, &convert.Refusal{Status: http.StatusServiceUnavailable, Reason: "v2 is converted elsewhere"}
		}, http.StatusServiceUnavailable, "v2 is converted elsewhere"),
		Entry("for an error", func() ([]byte, error) { return nil, errors.New("no shop") }, http.StatusInternalServerError, "no shop"),
		Entry("for a panic", func() ([]byte, error) { panic("provoked") }, http.StatusInternalServerError, "provoked"),
		Entry("for an ended goroutine", func() ([]byte, error) { runtime.Goexit(); return nil, nil }, http.StatusInternalServerError, "without an answer"),
	)

	It("has the deadline of the URL, else the API server's 30 s", func() {
		for query, timeout := range map[string]time.Duration{"": 29500 * time.Millisecond, "?timeout=5s": 4750 * time.Millisecond} {
			var end time.Time
			answers(func(ctx context.Context, _ []byte) ([]byte, error) {
				end, _ = ctx.Deadline()
				return nil, nil
			})
			before := time.Now()
			h.post(path+query, "x")
			Expect(end).To(And(BeTemporally(">=", before.Add(timeout)), BeTemporally("<=", time.Now().Add(timeout))))
		}
	})

	It("is left behind at the deadline, with its review", func() {
		entered, release, ended := make(chan struct{}), make(chan struct{}), make(chan string, 1)
		answers(func(_ context.Context, review []byte) ([]byte, error) {
			close(entered)
			<-release
			ended <- string(review)
			return nil, nil
		})
		got := h.post(path+"?timeout=100ms", "kept")
		Expect(got.Status).To(Equal(http.StatusInternalServerError))
		Expect(got.Body).To(ContainSubstring("no answer before the deadline"))
		<-entered
		answers(func(context.Context, []byte) ([]byte, error) { return []byte("another"), nil })
		for range 50 {
			Expect(h.post(path, "overwrites").Body).To(Equal("another"))
		}
		close(release)
		Eventually(ended).Should(Receive(Equal("kept")), "its memory is its own until it ends")
	})

	DescribeTable("is not begun for", func(method, contentType, body string, status int) {
		req := posted(h.URL+path, body)
		req.Method = method
		req.Header.Set("Content-Type", contentType)
		Expect(h.do(req).Status).To(Equal(status))
		Expect(reviews).NotTo(Receive())
	},
		Entry("a GET", http.MethodGet, "application/json", "", http.StatusMethodNotAllowed),
		Entry("YAML", http.MethodPost, "application/yaml", "x", http.StatusUnsupportedMediaType),
		Entry("no body", http.MethodPost, "application/json", "", http.StatusBadRequest),
		Entry("a body beyond the limit", http.MethodPost, "application/json", strings.Repeat("x", 64<<10+1), http.StatusRequestEntityTooLarge),
	)

	It("of a definition that only another version of the program has is retried there", func() {
		got := h.post("/convert/others.example.com", "x")
		Expect(got.Status).To(Equal(http.StatusServiceUnavailable))
		Expect(got.Header).To(HaveKeyWithValue("Retry-After", []string{"0"}))
	})
})
