package admit_test

// This file specifies which paths lead to steps, and when connections are closed.

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
)

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
