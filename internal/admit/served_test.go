package admit_test

// This file specifies what a handler counts, and its bounds on calls and objects.

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
)

var _ = Describe("A handler with metrics", func() {
	It("counts its decisions, by webhook, step and operation", func() {
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
	})
})

var _ = Describe("A handler that is flooded", func() {
	It("lets so many work and so many wait, and sends the rest away to come back in a second", func() {
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
})

var _ = Describe("An object that would take too much memory", func() {
	It("is refused by a message that the API server shows, with the reason and the remedy", func() {
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
})

var _ = Describe("A large object that an API server accepts", func() {
	list := func(n int, item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	numbered := func(n int, item string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, item+",", i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	tree := func() runtime.Object { return &unstructured.Unstructured{} }

	DescribeTable("is admitted, and changed, also if several come at once:", func(raw string, fresh func() runtime.Object) {
		h := newHook(allow)
		h.Handler.MaxBytes = 32 << 20
		h.Handler.Serve(volumes, chain.Config{Steps: []chain.Step{mutation("a", fresh, func(_ context.Context, _ *chain.Call, o runtime.Object) error {
			o.(metav1.Object).SetLabels(map[string]string{"a": "b"})
			return nil
		})}})
		const calls = 2
		answers := make(chan reply, calls)
		for range calls {
			go func() {
				defer GinkgoRecover()
				answers <- h.ask(carrying(raw))
			}()
		}
		for range calls {
			var got reply
			Eventually(answers, time.Minute).Should(Receive(&got))
			Expect(string(got.review("v1").Patch)).To(Equal(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`))
		}
	},
		Entry("a definition of 20,000 properties", `{"metadata":{"name":"a"},"spec":{"versions":[{"schema":{"openAPIV3Schema":{"properties":{`+numbered(20_000, `"p%d":{"type":"string"}`)+`}}}}]}}`,
			func() runtime.Object { return &apiextensionsv1.CustomResourceDefinition{} }),
		Entry("400,000 numbers", `{"kind":"A","metadata":{"name":"a"},"spec":{"numbers":[`+list(400_000, "123456")+`]}}`, tree),
		Entry("60,000 small objects", `{"kind":"A","metadata":{"name":"a"},"spec":{"items":[`+numbered(60_000, `{"a":%d}`)+`]}}`, tree),
	)
})
