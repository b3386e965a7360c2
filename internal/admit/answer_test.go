package admit_test

// This file specifies the answer that a response or an error of a step becomes, and that of an object that does not decode.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
)

var errTest = errors.New("the license server is away")

func raw(r admissionv1.AdmissionResponse) admission.Response {
	return admission.Response{AdmissionResponse: r}
}

func denial(result *metav1.Status) admission.Response {
	return raw(admissionv1.AdmissionResponse{Result: result, AuditAnnotations: map[string]string{"asked": "yes"}})
}

// withPatch answers with a patch, and with one change.
func withPatch(patch string, change func(*admission.Response)) chain.HandleFunc {
	r := raw(admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch)})
	if change != nil {
		change(&r)
	}
	return returning(r)
}

func panicking(value any) chain.HandleFunc {
	return func(context.Context, admission.Request) admission.Response { panic(value) }
}

// bePatchless matches a response without a patch and its type.
var bePatchless = And(HaveField("Patch", BeNil()), HaveField("PatchType", BeNil()))

var _ = Describe("An answer", func() {
	It("comes in the version of the question, with its UID", func() {
		answered := newHook(allow).post(volumes, body("v1beta1", request()))
		Expect(answered.review("v1beta1")).To(And(HaveField("Allowed", true), bePatchless))
	})

	It("is made of the request as it came, of which each call has its own copy", func() {
		var got admissionv1.AdmissionRequest
		h := newHook(func(_ context.Context, req admission.Request) admission.Response {
			got = *req.DeepCopy()
			req.UID = "overwritten"
			clear(req.Object.Raw)
			return raw(admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(`[{"op":"remove","path":"/spec/containers/0/env"}]`)})
		})
		Expect(h.ask().review("v1").PatchType).NotTo(BeNil())
		Expect(got).To(Equal(*request()))
	})

	It("carries warnings and audit annotations, of leave and of refusal", func() {
		for _, allowed := range []bool{true, false} {
			h := newHook(returning(raw(admissionv1.AdmissionResponse{Allowed: allowed, Warnings: []string{"spec.x is deprecated"}, AuditAnnotations: map[string]string{"image": "pinned"}})))
			Expect(h.ask().review("v1")).To(And(HaveField("Allowed", allowed), HaveField("Warnings", Equal([]string{"spec.x is deprecated"})),
				HaveField("AuditAnnotations", Equal(map[string]string{"image": "pinned"}))))
		}
	})

	DescribeTable("that denies is HTTP 200, not allowed, and has code and message", func(response admission.Response, code int32, message string) {
		resp := newHook(returning(response)).ask().review("v1")
		Expect(resp).To(And(HaveField("Allowed", false), bePatchless))
		Expect(resp.Result).To(And(HaveField("Code", code), HaveField("Message", message), HaveField("Status", metav1.StatusFailure)))
	},
		Entry("as admission.Denied gives them", admission.Denied("no root"), int32(403), "no root"),
		Entry("also of admission.Errored below 500", admission.Errored(499, errTest), int32(499), errTest.Error()),
		Entry("403 without a code", denial(&metav1.Status{Message: "m"}), int32(403), "m"),
		Entry("403 for the last code that is no refusal", denial(&metav1.Status{Code: 399, Message: "m"}), int32(403), "m"),
		Entry("the reason for a message", denial(&metav1.Status{Code: 400, Reason: "TooBig"}), int32(400), "TooBig"),
		Entry("the message rather than the reason", denial(&metav1.Status{Reason: "TooBig", Message: "m"}), int32(403), "m"),
		Entry("the extension's name where there is nothing else", denial(nil), int32(403), `denied by step "volumes"`),
		Entry("and no patch", admission.Response{
			Patches:           []jsonpatch.Operation{jsonpatch.NewOperation("remove", "/spec", nil)},
			AdmissionResponse: admissionv1.AdmissionResponse{Patch: []byte("[]"), Result: &metav1.Status{Message: "m"}},
		}, int32(403), "m"),
	)

	It("that denies keeps reason and details, and leaves a Result that the extension returns every time as it was", func() {
		shared := &metav1.Status{Code: 200, Reason: metav1.StatusReasonInvalid, Details: &metav1.StatusDetails{Kind: "pods", Causes: []metav1.StatusCause{{Field: "spec", Message: "no"}}}}
		was := shared.DeepCopy()
		Expect(newHook(returning(denial(shared))).ask().review("v1").Result).To(And(
			HaveField("Reason", was.Reason), HaveField("Details", was.Details), HaveField("Code", int32(403))))
		Expect(shared).To(Equal(was))
	})

	It("that has nothing to say lets the object through, and is logged once per extension", func() {
		h := newHook(returning(admission.Response{}))
		h.Handle("other", returning(admission.Response{}))
		for range 3 {
			for _, path := range []string{volumes, "/mutate/other"} {
				Expect(h.post(path, body("v1", request())).review("v1")).To(And(HaveField("Allowed", true), bePatchless))
			}
		}
		Expect(h.logs.with("zero Response")).To(ConsistOf(HaveKeyWithValue("step", "volumes"), HaveKeyWithValue("step", "other")))
		little := returning(raw(admissionv1.AdmissionResponse{Warnings: []string{"careful"}}))
		Expect(newHook(little).ask().review("v1").Allowed).To(BeFalse(), "it says a little")
	})

	add := []jsonpatch.Operation{jsonpatch.NewOperation("add", "/metadata/labels", map[string]string{"a": "<b>"})}
	const added = `[{"op":"add","path":"/metadata/labels","value":{"a":"\u003cb\u003e"}}]`

	DescribeTable("with a patch has the patch type, for", func(response admission.Response) {
		resp := newHook(returning(response)).ask().review("v1")
		Expect(resp.Allowed).To(BeTrue())
		Expect(resp.Patch).To(MatchJSON(added))
		Expect(resp.PatchType).To(HaveValue(Equal(admissionv1.PatchTypeJSONPatch)))
	},
		Entry("Patches", admission.Patched("", add...)),
		Entry("Patch without type", raw(admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(added)})),
		Entry("Patch with type", raw(admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(added), PatchType: new(admissionv1.PatchTypeJSONPatch)})),
		Entry("admission.PatchResponseFromRaw", admission.PatchResponseFromRaw([]byte(`{"metadata":{}}`), []byte(`{"metadata":{"labels":{"a":"<b>"}}}`))),
	)

	DescribeTable("with a patch that is empty has neither patch nor type, for", func(patch string) {
		for _, patchType := range []*admissionv1.PatchType{nil, new(admissionv1.PatchTypeJSONPatch)} {
			h := newHook(returning(raw(admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: patchType})))
			Expect(h.ask().review("v1")).To(And(HaveField("Allowed", true), bePatchless))
		}
	},
		Entry("no bytes", ""),
		Entry("no operations, with space between", " [ ]\n"),
		Entry("null", "null"),
	)
})

var _ = Describe("A failure", func() {
	const one = `[{"op":"add","path":"/x","value":1}]`
	operations := func(all ...jsonpatch.Operation) func(*admission.Response) {
		return func(r *admission.Response) { r.Patches = all }
	}

	DescribeTable("is HTTP 500 in words that name the extension, so that failurePolicy decides:",
		func(f chain.HandleFunc, reason string, changes ...func(*admissionv1.AdmissionRequest)) {
			h := newHook(f)
			got := h.ask(changes...)
			Expect(got.Status).To(Equal(http.StatusInternalServerError), got.Body)
			Expect(got.Header.Get("Content-Type")).To(HavePrefix("text/plain"))
			Expect(got.Header).NotTo(HaveKey("Retry-After"), "the API server would repeat a call that failed for good")
			Expect(got.Body).To(And(HavePrefix(`step "volumes" failed: `), ContainSubstring(reason), Not(ContainSubstring(secret))))
			Expect(h.logs.with("failurePolicy decides")).To(ConsistOf(And(
				HaveKeyWithValue("step", "volumes"), HaveKeyWithValue("user", "alice"), HaveKeyWithValue("resource", "pods"),
				HaveKeyWithValue("namespace", "cf"), HaveKeyWithValue("name", "web-0"), HaveKeyWithValue("uid", uid),
				HaveKeyWithValue("took", aDuration()), HaveKeyWithValue("error", ContainSubstring(reason)), HaveKey("operation"),
			)))
		},
		Entry("admission.Errored of 500", returning(admission.Errored(500, errTest)), errTest.Error()),
		Entry("a code of 500 without words", returning(denial(&metav1.Status{Code: 500})), "code 500 without a message"),
		Entry("a panic with an error", panicking(errTest), "panic: the license server is away"),
		Entry("a panic with nil", panicking(nil), "panic"),
		Entry("a step that ends its goroutine", func(context.Context, admission.Request) admission.Response {
			goruntime.Goexit()
			return admission.Response{}
		}, "without an answer"),
		Entry("a patch that fails after its first operation", withPatch(`[{"op":"add","path":"/x","value":1},{"op":"remove","path":"/y"}]`, nil), "does not apply"),
		Entry("a patch that is a merge patch", withPatch(`{"spec":null}`, nil), "no JSON patch"),
		Entry("a patch of another type", withPatch(one, func(r *admission.Response) { r.PatchType = new(admissionv1.PatchType("MergePatch")) }), `type "MergePatch"`),
		Entry("Patch and Patches at once", withPatch(one, operations(jsonpatch.NewOperation("add", "/y", 1))), "both Patches and Patch"),
		Entry("a value that cannot be encoded", withPatch("", operations(jsonpatch.NewOperation("add", "/x", func() {}))), "patch"),
		Entry("a patch for DELETE", withPatch(one, nil), "patch for DELETE", deletion),
	)

	It("by panic is logged once, as an error, with its stack, which the answer has not, and leaves the next call as it was", func() {
		panics := true
		h := newHook(func(context.Context, admission.Request) admission.Response {
			if panics {
				panic("boom")
			}
			return admission.Allowed("")
		})
		Expect(h.ask().Body).NotTo(ContainSubstring(".go:"))
		Expect(h.logs.all()).To(HaveLen(1))
		Expect(h.logs.with("boom")).To(ConsistOf(And(
			Not(HaveKey("level")), HaveKeyWithValue("step", "volumes"), HaveKeyWithValue("error", ContainSubstring("boom")),
			HaveKeyWithValue("stack", ContainSubstring("answer_test.go")),
		)))
		panics = false
		Expect(h.ask().review("v1").Allowed).To(BeTrue())
	})
})

var _ = Describe("An error of a step that is an API status", func() {
	verdictOn := func(err error, changes ...func(*admissionv1.AdmissionRequest)) reply {
		GinkgoHelper()
		judge := check("judge", newTree, func(_, _ runtime.Object) error { return err })
		r, _ := serve(chain.Config{Validating: true, Steps: []chain.Step{judge}}, changes...)
		return r
	}
	status := func(code int32, details *metav1.StatusDetails) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: "m", Details: details}}
	}
	pods, deployments := corev1.Resource("pods"), metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	forbidden := func(resource, name string) error {
		return apierrors.NewForbidden(schema.ParseGroupResource(resource), name, errStep)
	}
	invalid := func(kind, name string) error {
		return apierrors.NewInvalid(schema.ParseGroupKind(kind), name, field.ErrorList{field.Invalid(field.NewPath("spec"), "x", "must be y")})
	}
	generated := func(req *admissionv1.AdmissionRequest) {
		req.Name, req.Object.Raw = "", []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-"}}`)
	}
	named := func(req *admissionv1.AdmissionRequest) { req.Name = "" }
	exec := func(req *admissionv1.AdmissionRequest) {
		req.Operation, req.SubResource, req.Kind.Kind, req.Object.Raw = admissionv1.Connect, "exec", "PodExecOptions", []byte(`{"kind":"PodExecOptions"}`)
	}
	converted := func(req *admissionv1.AdmissionRequest) {
		req.Kind, req.Resource = metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, deployments
		req.RequestKind = &metav1.GroupVersionKind{Group: "extensions", Version: "v1beta1", Kind: "Deployment"}
		req.RequestResource = &metav1.GroupVersionResource{Group: "extensions", Version: "v1beta1", Resource: "deployments"}
	}

	DescribeTable("refuses the object when it is about that:", func(err error, code int, changes ...func(*admissionv1.AdmissionRequest)) {
		resp := verdictOn(err, changes...).review("v1")
		Expect(resp.Allowed).To(BeFalse())
		Expect(resp.Result.Code).To(BeEquivalentTo(code))
	},
		Entry("403 without details", status(403, nil), 403),
		Entry("422 with nothing but causes", status(422, &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: "spec"}}}), 422),
		Entry("400", apierrors.NewBadRequest("no"), 400),
		Entry("Invalid, beside the error of a client", errors.Join(apierrors.NewNotFound(pods, "x"), invalid("Pod", "web-0")), 422),
		Entry("Invalid, without a name", invalid("Pod", ""), 422),
		Entry("Forbidden, wrapped", fmt.Errorf("looking at it: %w", forbidden("pods", "web-0")), 403),
		Entry("Forbidden, by name alone", forbidden("", "web-0"), 403),
		Entry("of an object whose name will be generated", forbidden("pods", ""), 403, generated),
		Entry("the same, by the beginning of its name", invalid("Pod", "web-"), 422, generated),
		Entry("by the name in the object", invalid("Pod", "web-0"), 422, named),
		Entry("of a subresource, by the object's kind", invalid("Pod", "web-0"), 422, exec),
		Entry("of a subresource, by its resource", apierrors.NewForbidden(corev1.Resource("pods/exec"), "web-0", errStep), 403, exec),
		Entry("in the group that was asked for", invalid("Deployment.extensions", "web-0"), 422, converted),
		Entry("in the group that it was converted to", invalid("Deployment.apps", "web-0"), 422, converted),
	)

	DescribeTable("is a failure when the error is that of the step's own client:", func(err error) {
		for _, told := range []error{err, fmt.Errorf("asking: %w", err), errors.Join(errStep, err)} {
			Expect(verdictOn(told).Status).To(Equal(http.StatusInternalServerError), "%v", told)
		}
	},
		Entry("401", apierrors.NewUnauthorized("who are you")),
		Entry("404 of the object itself", apierrors.NewNotFound(pods, "web-0")),
		Entry("409", apierrors.NewConflict(pods, "web-0", errStep)),
		Entry("no code", status(0, nil)),
		Entry("200", status(200, nil)),
		Entry("500", apierrors.NewInternalError(errStep)),
		Entry("403 about a Secret", forbidden("secrets", "web-0")),
		Entry("403 about another pod", forbidden("pods", "web-1")),
		Entry("403 about a list of pods", forbidden("pods", "")),
		Entry("403 about the pods of another group", forbidden("pods.metrics.k8s.io", "web-0")),
		Entry("422 about another kind", invalid("ConfigMap", "web-0")),
		Entry("422 about another object", invalid("Pod", "web-1")),
	)
})

const (
	typo     = `{"metadata":{"name":"web-0"},"spec":{"containers":[{"name":"web","resources":{"limits":{"cpu":"1x"}}}]}}`
	misfit   = "spec.containers[0].resources.limits.cpu cannot be read: quantities must match the regular expression"
	asFailed = "the object cannot be read as *v1.Pod: "
)

// carrying puts an object into the request.
func carrying(raw string) func(*admissionv1.AdmissionRequest) {
	return func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(raw) }
}

// replacing makes the request the update of an object.
func replacing(raw string) func(*admissionv1.AdmissionRequest) {
	return func(r *admissionv1.AdmissionRequest) {
		r.Operation, r.OldObject = admissionv1.Update, runtime.RawExtension{Raw: []byte(raw)}
	}
}

// classic is a step in the style of EiriniX.
func classic(name string) chain.Step {
	pods := &chain.Pods{}
	return chain.Step{Name: name, Pods: pods, Handle: func(_ context.Context, req admission.Request) admission.Response {
		if _, err := pods.Pod(req); err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		return admission.Allowed("")
	}}
}

var _ = Describe("An object that does not decode", func() {
	kinds := map[string]func(string) chain.Step{
		"Validation": accepting, "Mutation": func(name string) chain.Step { return onPod(name, func(*corev1.Pod) error { return nil }) }, "Extension": classic,
	}
	only := func(s chain.Step) chain.Config {
		return chain.Config{Validating: !s.Mutates && s.Handle == nil, Steps: []chain.Step{s}}
	}
	// breaks makes the limit of a pod one that does not decode.
	breaks := onTree("breaks", func(tree map[string]any) error {
		tree["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["resources"] = map[string]any{"limits": map[string]any{"cpu": "1x"}}
		return nil
	})

	for kind, step := range kinds {
		Describe("for a "+kind, func() {
			It("is denied, with its path and the decoder's words, and counts as a denial", func() {
				r, h := serve(only(step("typed")), carrying(typo))
				Expect(r.review("v1")).To(And(HaveField("Allowed", false), HaveField("Result", HaveValue(And(
					HaveField("Code", BeEquivalentTo(http.StatusBadRequest)), HaveField("Reason", metav1.StatusReasonBadRequest), HaveField("Message", HavePrefix(misfit)))))))
				Expect(decided(h, "typed", "denied")()).To(Equal(1.0))
				Expect(decided(h, "typed", "failed")()).To(BeZero())
				Expect(h.logs.with(`"error"`)).To(BeEmpty())
				Expect(h.logs.with("denied")).To(ConsistOf(HaveKeyWithValue("reason", HavePrefix(misfit))))
			})

			DescribeTable("in another mode, or under Ignore, counts as", func(mode chain.Mode, ignore, lenient bool, decision string, warnings, audit int) {
				s := in(mode, step("typed"))
				s.Ignore, s.Lenient = ignore, lenient
				r, h := serve(only(s), carrying(typo))
				Eventually(decided(h, "typed", decision)).Should(Equal(1.0))
				switch decision {
				case "would_deny":
					resp := r.review("v1")
					Expect(resp).To(And(HaveField("Allowed", true), HaveField("Warnings", HaveLen(warnings)), HaveField("AuditAnnotations", HaveLen(audit))))
					Expect(strings.Join(resp.Warnings, "") + resp.AuditAnnotations["would-deny"]).To(Or(BeEmpty(), ContainSubstring(misfit)))
					Eventually(h.logs.with).WithArguments("would deny").Should(ConsistOf(HaveKeyWithValue("reason", HavePrefix(misfit))))
				case "ignored":
					Expect(r.Status).To(Equal(http.StatusInternalServerError))
					Expect(r.Body).To(ContainSubstring(asFailed))
				}
			},
				Entry("a failure that is ignored", chain.ModeDeny, true, true, "ignored", 0, 0),
				Entry("a denial in Warn", chain.ModeWarn, false, false, "would_deny", 1, 0),
				Entry("a denial in Audit", chain.ModeAudit, false, false, "would_deny", 0, 1),
				Entry("a denial in Shadow", chain.ModeShadow, false, false, "would_deny", 0, 0),
				Entry("a failure in Audit under Ignore", chain.ModeAudit, true, true, "ignored", 0, 0),
				Entry("a failure in Shadow under Ignore", chain.ModeShadow, true, true, "would_fail", 0, 0),
				Entry("a denial of a shadow whose author wrote Fail", chain.ModeShadow, true, false, "would_deny", 0, 0),
			)

			It("because an earlier step broke it, is a failure, also of a shadow", func() {
				r, h := serve(chain.Config{Steps: []chain.Step{breaks, step("typed")}})
				Expect(r.Status).To(Equal(http.StatusInternalServerError))
				Expect(r.Body).To(And(HavePrefix(`step "typed" failed: `), ContainSubstring(asFailed)))
				Expect(decided(h, "typed", "failed")()).To(Equal(1.0))
				r, h = serve(chain.Config{Steps: []chain.Step{breaks, shadow(step("typed"))}})
				Expect(r.review("v1").Allowed).To(BeTrue())
				Eventually(decided(h, "typed", "would_fail")).Should(Equal(1.0))
			})

			It("as it arrived, is denied after an earlier step has changed something else", func() {
				r, _ := serve(chain.Config{Steps: []chain.Step{labelTree("label"), step("typed")}}, carrying(typo))
				Expect(r.review("v1").Result.Message).To(HavePrefix("typed: " + misfit))
			})

			It("is none for a step after the one that repairs it", func() {
				repairs := onTree("repairs", func(tree map[string]any) error { tree["spec"] = nil; return nil })
				r, _ := serve(chain.Config{Steps: []chain.Step{repairs, step("typed")}}, carrying(typo))
				Expect(r.review("v1").Allowed).To(BeTrue())
			})

			It("because it takes too much memory, is a failure, also with a value that does not fit", func() {
				items := strings.Repeat(`{},`, 15_000)
				for _, last := range []string{`{}`, `5`} {
					r, h := serve(only(step("typed")), carrying(`{"spec":{"containers":[`+items+last+`]}}`))
					Expect(r.Status).To(Equal(http.StatusRequestEntityTooLarge), r.Body)
					Expect(decided(h, "typed", "failed")()).To(Equal(1.0))
				}
			})
		})
	}

	DescribeTable("and is old, is a failure", func(change func(*admissionv1.AdmissionRequest)) {
		r, h := serve(only(accepting("typed")), carrying(typo), change)
		Expect(r.Status).To(Equal(http.StatusInternalServerError))
		Expect(r.Body).To(ContainSubstring(asFailed))
		Expect(decided(h, "typed", "failed")()).To(Equal(1.0))
	},
		Entry("in a deletion", deletion),
		Entry("in an update", func(r *admissionv1.AdmissionRequest) { replacing(typo)(r); r.Object.Raw = []byte(pod) }),
	)

	It("is denied in an update, too", func() {
		r, _ := serve(only(accepting("typed")), carrying(typo), replacing(pod))
		Expect(r.review("v1").Result.Message).To(HavePrefix(misfit))
	})

	It("is denied for each step that reads it, and for steps under Ignore goes on", func() {
		r, h := serve(chain.Config{Validating: true, Steps: []chain.Step{accepting("a"), ignoring(accepting("b")), accepting("c")}}, carrying(typo))
		Expect(r.review("v1").Result.Message).To(And(HavePrefix("a: "+misfit), ContainSubstring("; c: "+misfit), Not(ContainSubstring("b: "))))
		Expect(decided(h, "b", "ignored")()).To(Equal(1.0))
	})

	It("is denied in few words, however long its value is", func() {
		r, _ := serve(only(accepting("typed")), carrying(`{"metadata":{"generation":1`+strings.Repeat("0", 5000)+`}}`))
		Expect(r.review("v1").Result.Message).To(And(HavePrefix("metadata.generation cannot be read: "), HaveLen(253+len("..."))))
	})

	It("is no denial of a step that returns a decoder's error", func() {
		r, _ := serve(only(check("reads", newPod, func(_, _ runtime.Object) error { return errors.New(misfit) })), carrying(pod))
		Expect(r.Status).To(Equal(http.StatusInternalServerError))
	})
})
