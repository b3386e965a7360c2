package admit_test

// This file specifies the lines that a call writes to the log.

import (
	"context"
	"fmt"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
)

var _ = Describe("The log", func() {
	It("names the user, the object, the step, the reason and the duration of a denial", func() {
		h := newHook(returning(admission.Denied("no root")))
		h.ask(func(r *admissionv1.AdmissionRequest) {
			r.Resource = metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
			r.SubResource = "scale"
			r.Operation = admissionv1.Update
		})
		Expect(h.logs.all()).To(HaveLen(1))
		Expect(h.logs.with("denied")).To(ConsistOf(And(
			HaveKeyWithValue("user", "alice"),
			HaveKeyWithValue("operation", "UPDATE"),
			HaveKeyWithValue("resource", "deployments.apps/scale"),
			HaveKeyWithValue("namespace", "cf"),
			HaveKeyWithValue("name", "web-0"),
			HaveKeyWithValue("step", "volumes"),
			HaveKeyWithValue("uid", uid),
			HaveKeyWithValue("code", BeEquivalentTo(403)),
			HaveKeyWithValue("reason", "no root"),
			HaveKeyWithValue("took", aDuration()),
			HaveKeyWithValue("level", BeEquivalentTo(0)),
		)))
	})

	It("samples denials for one reason, and says how many it withheld", func() {
		reason := "no root"
		h := newHook(func(context.Context, admission.Request) admission.Response { return admission.Denied(reason) })
		for range 30 {
			h.ask()
		}
		Expect(h.logs.with("denied")).To(HaveLen(10))
		others := 0 // reasons can share a hash with the first one
		for ; len(h.logs.with("denied")) == 10 && others < 20; others++ {
			reason = fmt.Sprintf("no image %d", others)
			h.ask()
		}
		Expect(h.logs.with("denied")).To(HaveLen(11))
		Expect(h.logs.with("denied")[10]).To(And(HaveKeyWithValue("reason", reason), HaveKeyWithValue("withheld", BeEquivalentTo(19+others))))
		Expect(h.count("eirinix_admission_decisions_total", "volumes", "denied")).To(BeEquivalentTo(30 + others))
	})

	It("reports an admission only at a higher verbosity", func() {
		h := newHook(withPatch(`[{"op":"add","path":"/spec/hostname","value":"`+secret+`"}]`, nil))
		h.ask().review("v1")
		Expect(h.logs.all()).To(HaveLen(1))
		Expect(h.logs.with("allowed")).To(ConsistOf(And(
			HaveKeyWithValue("level", BeEquivalentTo(1)),
			HaveKeyWithValue("step", "volumes"),
			HaveKeyWithValue("took", aDuration()),
			HaveKey("patchBytes"),
		)))
	})

	It("names the step where several share a webhook, and the webhook beside it", func() {
		verdict := func(name string, err error) chain.Step {
			return check(name, newPod, func(runtime.Object, runtime.Object) error { return err })
		}
		denial := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-0", errStep)
		h := newHook(allow)
		h.Handler.Serve("/validate/pods-1", chain.Config{Validating: true, Steps: []chain.Step{
			verdict("size", denial), verdict("broken", errStep), verdict("fine", nil), verdict("name", denial),
		}})
		h.post("/validate/pods-1", body("v1", request())).review("v1")
		Expect(h.logs.with("denied")).To(ConsistOf(And(HaveKeyWithValue("webhook", "pods-1"), HaveKeyWithValue("step", "size, name"))))
		Expect(h.logs.with("the denial of another one")).To(ConsistOf(And(
			HaveKeyWithValue("webhook", "pods-1"), HaveKeyWithValue("step", "broken"), HaveKeyWithValue("error", ContainSubstring(errStep.Error())))))
		Expect(h.logs.all()).To(HaveLen(2))

		h.Handler.Serve("/validate/pods-2", chain.Config{Validating: true, Steps: []chain.Step{verdict("broken", errStep), verdict("also", errStep)}})
		h.post("/validate/pods-2", body("v1", request()))
		Expect(h.logs.with("failurePolicy decides")).To(ConsistOf(And(HaveKeyWithValue("webhook", "pods-2"), HaveKeyWithValue("step", "broken"))))
		Expect(h.logs.with("the failure of an earlier one")).To(ConsistOf(HaveKeyWithValue("step", "also")))
	})

	DescribeTable("has the panic of a step that was left behind", func(ignore bool) {
		var begun atomic.Bool
		late := make(chan struct{})
		step := label("late", func(*chain.Call) error {
			begun.Store(true)
			<-late
			panic("too late")
		})
		step.Ignore = ignore
		h := newHook(allow)
		h.Handler.Serve(volumes, chain.Config{Steps: []chain.Step{step}})
		for !begun.Load() { // on a slow machine the time may be over before
			h.post(volumes+"?timeout=40ms", body("v1", request()))
		}
		close(late)
		Eventually(h.logs.with).WithArguments("panicked after its deadline").Should(ConsistOf(And(
			HaveKeyWithValue("step", "late"), HaveKeyWithValue("error", ContainSubstring("too late")), HaveKeyWithValue("stack", ContainSubstring("log_test.go")))))
	},
		Entry("under Fail", false),
		Entry("under Ignore", true),
	)
})
