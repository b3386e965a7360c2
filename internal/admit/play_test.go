package admit_test

// Specs of steps that are played without a request of an API server.

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
)

var _ = Describe("A step that is played", func() {
	play := func(s admit.Step) admit.Verdict {
		return admit.NewPlayer(s, logr.Discard()).Play(context.Background(), request())
	}
	label := onPod("label", func(p *corev1.Pod) error { p.Labels = map[string]string{"a": secret}; return nil })
	refuse := check("refuse", newPod, func(_, _ runtime.Object) error {
		return apierrors.NewForbidden(corev1.Resource("pods"), "web-0", errors.New("too large"))
	})

	DescribeTable("makes the patch and the denial of a request, whatever its mode and failurePolicy", func(mode admit.Mode, ignore bool) {
		own := func(s admit.Step) admit.Step { s.Mode, s.Ignore = mode, ignore; return s }
		asked, _ := serve(admit.Chain{Steps: []admit.Step{label}})
		v := play(own(label))
		Expect(v.Err).NotTo(HaveOccurred())
		Expect(v.Denied).To(BeNil())
		Expect(v.Patch).To(MatchJSON(asked.review("v1").Patch))
		Expect(v.Paths()).To(Equal([]string{"/metadata/labels"}))
		Expect(v.Changed([]byte(pod))).To(ContainSubstring(`"labels":{"a":"` + secret + `"}`))
		asked, _ = serve(admit.Chain{Validating: true, Steps: []admit.Step{refuse}})
		Expect(play(own(refuse)).Denied).To(Equal(asked.review("v1").Result))
		failed := play(own(check("fails", newPod, func(_, _ runtime.Object) error { return errors.New("down") })))
		Expect(failed).To(And(HaveField("Err", MatchError("down")), HaveField("Panic", BeNil()), HaveField("Unreadable", false)))
	},
		Entry("Deny", admit.ModeDeny, false),
		Entry("Warn, Ignore", admit.ModeWarn, true),
		Entry("Audit", admit.ModeAudit, false),
		Entry("Shadow, Ignore", admit.ModeShadow, true),
	)

	It("can change nothing", func() {
		v := play(onPod("nothing", func(*corev1.Pod) error { return nil }))
		Expect(v).To(BeZero())
		Expect(v.Paths()).To(BeEmpty())
		Expect(v.Changed([]byte(pod))).To(BeEquivalentTo(pod))
	})

	It("distinguishes a panic, and an object that does not decode", func() {
		v := play(check("panics", newPod, func(_, _ runtime.Object) error { panic("no") }))
		Expect(v.Err).To(HaveOccurred())
		Expect(v.Panic).To(Equal("no"))
		Expect(string(v.Stack)).To(ContainSubstring("play_test.go"))
		v = admit.NewPlayer(refuse, logr.Discard()).Play(context.Background(), request(func(r *admissionv1.AdmissionRequest) {
			r.Object.Raw = []byte(`{"spec":{"containers":5}}`)
		}))
		Expect(v.Unreadable).To(BeTrue())
		Expect(v.Err).To(MatchError(ContainSubstring("*v1.Pod")))
	})

	It("ends at the step's timeout, and with its caller's context", func() {
		s := check("hangs", newPod, nil)
		s.Run = func(ctx context.Context, _ *admit.Call, _, _ runtime.Object) error { <-ctx.Done(); return ctx.Err() }
		s.Timeout = 20 * time.Millisecond
		Expect(play(s).Err).To(MatchError(context.DeadlineExceeded))
		s.Timeout = time.Hour
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		Expect(admit.NewPlayer(s, logr.Discard()).Play(ctx, request()).Err).To(HaveOccurred())
	})

	It("leaves the request as it was, even if the step writes into its text", func() {
		req := request()
		was := bytes.Clone(req.Object.Raw)
		p := admit.NewPlayer(admit.Step{Name: "writes", Pods: &admit.Pods{}, Handle: func(_ context.Context, r admission.Request) admission.Response {
			clear(r.Object.Raw)
			return admission.Allowed("")
		}}, logr.Discard())
		for range 2 {
			Expect(p.Play(context.Background(), req)).To(BeZero())
			Expect(req.Object.Raw).To(Equal(was))
		}
	})

	It("wants the requests of its Matcher", func() {
		matcher, err := admit.NewMatcher([]admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"CREATE"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}}, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		s := refuse
		s.Matcher = matcher
		p := admit.NewPlayer(s, logr.Discard())
		Expect(p.Wants(request())).To(BeTrue())
		Expect(p.Wants(request(func(r *admissionv1.AdmissionRequest) { r.Operation = "UPDATE" }))).To(BeFalse())
		Expect(admit.NewPlayer(refuse, logr.Discard()).Wants(request())).To(BeTrue(), "a nil Matcher matches every request")
	})

	It("does not want an object that a controller of Kubernetes, or a kubelet, can have made, if the step leaves it alone", func() {
		matcher, err := admit.NewMatcher([]admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"*"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
		}}, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		set := request(func(r *admissionv1.AdmissionRequest) {
			r.Resource = metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
			r.Object.Raw = []byte(`{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","controller":true}]}}`)
		})
		s := refuse
		s.Matcher = matcher
		Expect(admit.NewPlayer(s, logr.Discard()).Wants(set)).To(BeTrue())
		matcher.Leave(false)
		Expect(admit.NewPlayer(s, logr.Discard()).Wants(set)).To(BeFalse())
		Expect(admit.NewPlayer(s, logr.Discard()).Wants(request())).To(BeTrue())
		Expect(admit.NewPlayer(s, logr.Discard()).Wants(request(func(r *admissionv1.AdmissionRequest) {
			r.Object.Raw = []byte(`{"metadata":{"annotations":{"kubernetes.io/config.mirror":"hash"}}}`)
		}))).To(BeFalse(), "the mirror of a static pod")
	})
})
