package admit_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
)

var errTest = errors.New("the license server is away")

func patching(patch string, changes ...func(*admission.Response)) chain.HandleFunc {
	r := raw(admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch)})
	for _, change := range changes {
		change(&r)
	}
	return returning(r)
}

func panicking(value any) chain.HandleFunc {
	return func(context.Context, admission.Request) admission.Response { panic(value) }
}

var _ = Describe("A failure", func() {
	connection := func(req *admissionv1.AdmissionRequest) {
		deletion(req)
		req.Operation = admissionv1.Connect
	}

	DescribeTable("is HTTP 500 in words that name the extension, so that failurePolicy decides:",
		func(f chain.HandleFunc, reason string, changes ...func(*admissionv1.AdmissionRequest)) {
			h := newHook(f)
			got := h.ask(changes...)
			Expect(got.Status).To(Equal(http.StatusInternalServerError), got.Body)
			Expect(got.Header.Get("Content-Type")).To(HavePrefix("text/plain"))
			Expect(got.Header).NotTo(HaveKey("Retry-After"), "the API server would repeat a call that failed for good")
			Expect(got.Body).To(And(HavePrefix(`step "volumes" failed: `), ContainSubstring(reason)))
			Expect(got.Body).NotTo(ContainSubstring(secret))

			failed := h.logs.with("failurePolicy decides")
			Expect(failed).To(HaveLen(1))
			Expect(failed[0]).To(And(
				HaveKeyWithValue("step", "volumes"),
				HaveKeyWithValue("user", "alice"),
				HaveKeyWithValue("resource", "pods"),
				HaveKeyWithValue("namespace", "cf"),
				HaveKeyWithValue("name", "web-0"),
				HaveKeyWithValue("uid", uid),
				HaveKeyWithValue("took", aDuration()),
				HaveKeyWithValue("error", ContainSubstring(reason)),
			))
			Expect(failed[0]).To(HaveKey("operation"))
		},
		Entry("admission.Errored of 500", returning(admission.Errored(500, errTest)), errTest.Error()),
		Entry("admission.Errored of more", returning(admission.Errored(504, errTest)), errTest.Error()),
		Entry("a code of 500 without words", returning(denial(&metav1.Status{Code: 500})), "code 500 without a message"),
		Entry("a panic", panicking("index out of range"), "panic: index out of range"),
		Entry("a panic with an error", panicking(errTest), "panic: the license server is away"),
		Entry("a panic with nil", panicking(nil), "panic"),
		Entry("a step that ends its goroutine", func(context.Context, admission.Request) admission.Response {
			runtime.Goexit()
			return admission.Response{}
		}, "without an answer"),
		Entry("a patch whose parent is missing", patching(`[{"op":"add","path":"/spec/a/b","value":1}]`), "does not apply"),
		Entry("a patch that removes an absent member", patching(`[{"op":"remove","path":"/spec/nothing"}]`), "does not apply"),
		Entry("a patch whose test fails", patching(`[{"op":"test","path":"/spec","value":1}]`), "does not apply"),
		Entry("a patch that fails after its first operation", patching(`[{"op":"add","path":"/x","value":1},{"op":"remove","path":"/y"}]`), "does not apply"),
		Entry("a patch that is a merge patch", patching(`{"spec":null}`), "no JSON patch"),
		Entry("a patch that is no JSON", patching(`[{`), "no JSON patch"),
		Entry("a patch of another type", patching(`[{"op":"add","path":"/x","value":1}]`, func(r *admission.Response) {
			r.PatchType = new(admissionv1.PatchType("MergePatch"))
		}), `type "MergePatch"`),
		Entry("Patch and Patches at once", patching(`[{"op":"add","path":"/x","value":1}]`, func(r *admission.Response) {
			r.Patches = []jsonpatch.Operation{jsonpatch.NewOperation("add", "/y", 1)}
		}), "both Patches and Patch"),
		Entry("a value that cannot be encoded", patching("", func(r *admission.Response) {
			r.Patches = []jsonpatch.Operation{jsonpatch.NewOperation("add", "/x", func() {})}
		}), "patch"),
		Entry("a patch for DELETE", patching(`[{"op":"add","path":"/x","value":1}]`), "patch for DELETE", deletion),
		Entry("a patch for CONNECT without object", patching(`[{"op":"add","path":"/x","value":1}]`), "patch for CONNECT", connection),
	)

	It("of one call leaves the next as it was", func() {
		panics := true
		h := newHook(func(context.Context, admission.Request) admission.Response {
			if panics {
				panic("once")
			}
			return admission.Allowed("")
		})
		Expect(h.ask().Status).To(Equal(http.StatusInternalServerError))
		panics = false
		Expect(h.ask().review("v1").Allowed).To(BeTrue())
	})

	It("by panic is logged once, as an error, with its stack, which the answer has not", func() {
		h := newHook(panicking("boom"))
		Expect(h.ask().Body).NotTo(ContainSubstring(".go:"))
		Expect(h.logs.all()).To(HaveLen(1))
		Expect(h.logs.with("boom")).To(ConsistOf(And(
			Not(HaveKey("level")), HaveKeyWithValue("step", "volumes"), HaveKeyWithValue("error", ContainSubstring("boom")),
			HaveKeyWithValue("stack", ContainSubstring("failure_test.go")),
		)))
	})
})
