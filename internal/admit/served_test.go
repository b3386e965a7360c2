package admit_test

// This file specifies what is served on which path, what is counted of it, and the bounds on calls and objects.

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/convert"
)

var _ = It("A handler with metrics counts its decisions, by webhook, step and operation", func() {
	h := newHook(allow)
	broken := label("broken", func(*chain.Call) error { panic("oops") })
	broken.Ignore = true
	h.Handler.Serve(volumes, chain.Config{Steps: []chain.Step{label("a", nil), broken}})
	h.Handle("denier", returning(admission.Denied("no")))
	Expect(h.ask().Status).To(Equal(http.StatusOK))
	Expect(h.post("/mutate/denier", body("v1", request())).Status).To(Equal(http.StatusOK))
	Expect(h.post(volumes, "{}").Status).To(Equal(http.StatusBadRequest))

	for metric, values := range map[string][]string{
		"eirinix_admission_decisions_total": {"a", "CREATE", "patched"}, "eirinix_admission_panics_total": {"broken"},
		"eirinix_admission_patch_operations_total": {"volumes"}, "eirinix_admission_refused_requests_total": {"400"},
	} {
		Expect(h.count(metric, values...)).To(BeEquivalentTo(1), metric)
	}
	Expect(decided(h, "broken", "ignored")() + decided(h, "denier", "denied")()).To(BeEquivalentTo(2))
	Expect(h.count("eirinix_admission_duration_seconds")).To(BeEquivalentTo(2))
	Expect(h.count("eirinix_admission_patch_bytes_total")).To(BeNumerically(">", 50))
	Expect(h.count("eirinix_admission_request_bytes")).To(BeEquivalentTo(2))
	Expect(h.count("eirinix_admission_in_flight_requests")).To(BeZero())
	families, err := h.registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	Expect(promlint.NewWithMetricFamilies(families).Lint()).To(BeEmpty(), "they keep to the conventions of Prometheus")
})

var _ = It("A flood lets so many work and so many wait, and sends the rest away to come back in a second", func() {
	const places = 100 + 400
	release := make(chan struct{})
	h := newHook(func(context.Context, admission.Request) admission.Response {
		<-release
		return admission.Allowed("")
	})
	var mu sync.Mutex
	answers := map[int][]http.Header{}
	sentAway := func() []http.Header {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(answers[http.StatusServiceUnavailable])
	}
	var calls sync.WaitGroup
	for range places + 20 {
		calls.Go(func() {
			w := httptest.NewRecorder()
			h.Handler.ServeHTTP(w, posted(volumes+"?timeout=30s", body("v1", request())))
			mu.Lock()
			defer mu.Unlock()
			answers[w.Code] = append(answers[w.Code], w.Header())
		})
	}
	Eventually(sentAway).Should(HaveLen(20))
	close(release)
	calls.Wait()
	Expect(answers).To(HaveKeyWithValue(http.StatusOK, HaveLen(places)))
	Expect(sentAway()).To(And(HaveLen(20), HaveEach(HaveKeyWithValue("Retry-After", []string{"1"}))))
})

var _ = It("An object that would take too much memory is refused in words that the API server shows", func() {
	h := newHook(allow)
	h.Handler.MaxBytes = 4 << 20
	h.Handler.Serve(volumes, chain.Config{Steps: []chain.Step{label("a", nil)}})
	hostile := carrying(`{"spec":{"containers":[` + strings.Repeat("{},", 300_000) + `{}]}}`)
	for range 3 {
		got := h.ask(hostile)
		Expect(got.Status).To(Equal(http.StatusRequestEntityTooLarge))
		Expect(got.Header.Get("Content-Type")).To(Equal("application/json"))
		var status metav1.Status
		Expect(json.Unmarshal([]byte(got.Body), &status)).To(Succeed())
		Expect(apierrors.FromObject(&status)).To(MatchError(And(HavePrefix(`step "a" failed: `), ContainSubstring("takes too much memory"), ContainSubstring("send a smaller object"))))
	}
	Expect(h.ask().review("v1").Allowed).To(BeTrue())
})

var _ = Describe("Paths", func() {
	It("are those of the steps, and lead to the one that was given last", func() {
		Expect(admit.MutatePrefix + "volumes").To(Equal(volumes))
		h := newHook(allow)
		h.Handle("other", returning(admission.Denied("other")))
		Expect(h.ask().review("v1").Allowed).To(BeTrue())
		Expect(h.post("/mutate/other", body("v1", request())).review("v1").Result.Message).To(Equal("other"))
		h.Handle("volumes", returning(admission.Denied("replaced")))
		Expect(h.ask().review("v1").Result.Message).To(Equal("replaced"))
	})

	DescribeTable("of steps that this replica does not have are worth another try elsewhere:",
		func(path string) {
			h := newHook(allow)
			got := h.post(path, body("v1", request()))
			Expect(got.Status).To(Equal(http.StatusServiceUnavailable))
			Expect(got.Header).To(HaveKeyWithValue("Retry-After", []string{"0"}))
			Expect(got.Closes).To(BeTrue(), "a new connection may reach a replica that has it")
			Expect(got.Body).To(ContainSubstring("no step is served on"))
			Expect(h.logs.with("unknown path, answered 503")).To(HaveLen(1))
		},
		Entry("another name", "/mutate/removed"),
		Entry("one with a slash at the end", "/mutate/volumes/"),
		Entry("of a definition that another version has", "/convert/others.example.com"),
	)

	DescribeTable("elsewhere are not found:",
		func(path string) {
			got := newHook(allow).post(path, body("v1", request()))
			Expect(got.Status).To(Equal(http.StatusNotFound))
			Expect(got.Header).NotTo(HaveKey("Retry-After"))
			Expect(got.Body).To(ContainSubstring("nothing is served on"))
		},
		Entry("the root", "/"),
		Entry("the prefix alone", "/mutate"),
		Entry("an unclean one", "//mutate/volumes"),
	)

	It("are not repeated at length", func() {
		for _, prefix := range []string{"/", "/mutate/"} {
			got := newHook(allow).post(prefix+strings.Repeat("x", 5000), "")
			Expect(len(got.Body)).To(BeNumerically("<", 400))
		}
	})

	Describe("of others", func() {
		var h *hook

		BeforeEach(func() {
			h = newHook(allow)
			h.Others = http.NewServeMux()
			echo := func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, r.Pattern+" "+r.PathValue("kind"))
			}
			for _, pattern := range []string{"/convert", "/below/", "/kinds/{kind}", "/mutate/volumes", "/mutate/theirs"} {
				h.Others.HandleFunc(pattern, echo)
			}
		})

		DescribeTable("are served as a ServeMux serves them:",
			func(path, expected string) {
				got := h.post(path, "")
				Expect(got.Status).To(Equal(http.StatusOK), got.Body)
				Expect(got.Body).To(Equal(expected))
			},
			Entry("a path below one", "/below/x", "/below/ "),
			Entry("one with a wildcard", "/kinds/pods", "/kinds/{kind} pods"),
		)

		DescribeTable("are never reached by a redirect, which would send the API server on with the object:",
			func(path string) { Expect(h.post(path, "").Status).To(Equal(http.StatusNotFound)) },
			Entry("two slashes", "//convert"),
			Entry("a parent directory", "/x/../convert"),
			Entry("a missing slash", "/below"),
		)

		It("take no path away from steps", func() {
			Expect(h.ask().review("v1").Allowed).To(BeTrue())
			Expect(h.post("/mutate/theirs", "").Status).To(Equal(http.StatusServiceUnavailable))
		})
	})
})

var _ = Describe("Draining", func() {
	var (
		h        *hook
		draining atomic.Bool
		during   func()
	)

	BeforeEach(func() {
		draining.Store(false)
		during = func() {}
		h = newHook(func(_ context.Context, req admission.Request) admission.Response {
			during()
			if req.Name == "failing" {
				panic("failing")
			}
			return admission.Allowed("")
		})
		h.Draining = draining.Load
		h.Others = http.NewServeMux()
		h.Others.HandleFunc("/convert", func(http.ResponseWriter, *http.Request) {})
	})

	DescribeTable("closes the connection after every answer:",
		func(path, text string, status int) {
			before := h.post(path, text)
			Expect(before.Status).To(Equal(status))
			Expect(before.Closes).To(Equal(status == http.StatusServiceUnavailable))
			draining.Store(true)
			got := h.post(path, text)
			Expect(got.Status).To(Equal(status))
			Expect(got.Closes).To(BeTrue())
		},
		Entry("of a step", volumes, body("v1", request()), http.StatusOK),
		Entry("of a step that fails", volumes, strings.Replace(body("v1", request()), "web-0", "failing", 1), http.StatusInternalServerError),
		Entry("of refusal", volumes, "{}", http.StatusBadRequest),
		Entry("for a step that is not here", "/mutate/removed", "", http.StatusServiceUnavailable),
		Entry("for nothing", "/", "", http.StatusNotFound),
		Entry("of others", "/convert", "", http.StatusOK),
	)

	It("closes it also after the answer to a call that was in flight when it began", func() {
		during = func() { draining.Store(true) }
		Expect(h.ask().Closes).To(BeTrue())
		draining.Store(false)
		failing := strings.Replace(body("v1", request()), "web-0", "failing", 1)
		Expect(h.post(volumes, failing)).To(And(HaveField("Status", http.StatusInternalServerError), HaveField("Closes", true)))
	})
})

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
		Entry("for an ended goroutine", func() ([]byte, error) { goruntime.Goexit(); return nil, nil }, http.StatusInternalServerError, "without an answer"),
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
})
