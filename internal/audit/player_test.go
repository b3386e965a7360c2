package audit

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

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/hang"
)

var _ = Describe("A step that is played", func() {
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"cf"},"spec":{"containers":[{"name":"web"}]}}`
	// sent is the API server's request for a pod, after changes.
	sent := func(changes ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionRequest {
		req := &admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Namespace: "cf", Name: "web-0", Object: runtime.RawExtension{Raw: []byte(pod)},
			Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		}
		for _, change := range changes {
			change(req)
		}
		return req
	}
	newPod := func() runtime.Object { return &corev1.Pod{} }
	play := func(s chain.Step) Verdict {
		return NewPlayer(s, logr.Discard()).Play(context.Background(), sent())
	}
	check := func(name string, decide func() error) chain.Step {
		return chain.Step{Name: name, New: newPod, Run: func(context.Context, *chain.Call, runtime.Object, runtime.Object) error { return decide() }}
	}
	refuse := check("refuse", func() error { return apierrors.NewForbidden(corev1.Resource("pods"), "web-0", errors.New("too large")) })

	It("can change nothing", func() {
		v := play(chain.Step{Name: "nothing", New: newPod, Mutates: true, Run: func(context.Context, *chain.Call, runtime.Object, runtime.Object) error { return nil }})
		Expect(v).To(BeZero())
		Expect(chain.Paths(v.Patch)).To(BeEmpty())
		Expect(v.Changed([]byte(pod))).To(BeEquivalentTo(pod))
	})

	It("distinguishes a panic, and an object that does not decode", func() {
		v := play(check("panics", func() error { panic("no") }))
		panicked, ok := errors.AsType[*hang.PanicError](v.Err)
		Expect(ok).To(BeTrue())
		Expect(panicked.Value).To(Equal("no"))
		Expect(string(panicked.Stack)).To(ContainSubstring("player_test.go"))
		v = NewPlayer(refuse, logr.Discard()).Play(context.Background(), sent(func(r *admissionv1.AdmissionRequest) {
			r.Object.Raw = []byte(`{"spec":{"containers":5}}`)
		}))
		Expect(v.Err).To(And(MatchError(chain.ErrUnreadable), MatchError(ContainSubstring("*v1.Pod"))))
	})

	It("ends at the step's timeout, and with its caller's context", func() {
		s := check("hangs", nil)
		s.Run = func(ctx context.Context, _ *chain.Call, _, _ runtime.Object) error { <-ctx.Done(); return ctx.Err() }
		s.Timeout = 20 * time.Millisecond
		Expect(play(s).Err).To(MatchError(context.DeadlineExceeded))
		s.Timeout = time.Hour
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		Expect(NewPlayer(s, logr.Discard()).Play(ctx, sent()).Err).To(HaveOccurred())
	})

	It("leaves the request as it was, even if the step writes into its text", func() {
		req := sent()
		was := bytes.Clone(req.Object.Raw)
		p := NewPlayer(chain.Step{Name: "writes", Pods: &chain.Pods{}, Handle: func(_ context.Context, r admission.Request) admission.Response {
			clear(r.Object.Raw)
			return admission.Allowed("")
		}}, logr.Discard())
		for range 2 {
			Expect(p.Play(context.Background(), req)).To(BeZero())
			Expect(req.Object.Raw).To(Equal(was))
		}
	})

	It("wants the requests of its Matcher", func() {
		matcher, err := chain.NewMatcher([]admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"CREATE"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}}, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		s := refuse
		s.Matcher = matcher
		p := NewPlayer(s, logr.Discard())
		Expect(p.Wants(sent())).To(BeTrue())
		Expect(p.Wants(sent(func(r *admissionv1.AdmissionRequest) { r.Operation = "UPDATE" }))).To(BeFalse())
		Expect(NewPlayer(refuse, logr.Discard()).Wants(sent())).To(BeTrue(), "a nil Matcher matches every request")
	})

	It("does not want an object that a controller of Kubernetes, or a kubelet, can have made, if the step leaves it alone", func() {
		matcher, err := chain.NewMatcher([]admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"*"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
		}}, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		set := sent(func(r *admissionv1.AdmissionRequest) {
			r.Resource = metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
			r.Object.Raw = []byte(`{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","controller":true}]}}`)
		})
		s := refuse
		s.Matcher = matcher
		Expect(NewPlayer(s, logr.Discard()).Wants(set)).To(BeTrue())
		matcher.Leave(false)
		Expect(NewPlayer(s, logr.Discard()).Wants(set)).To(BeFalse())
		Expect(NewPlayer(s, logr.Discard()).Wants(sent())).To(BeTrue())
		Expect(NewPlayer(s, logr.Discard()).Wants(sent(func(r *admissionv1.AdmissionRequest) {
			r.Object.Raw = []byte(`{"metadata":{"annotations":{"kubernetes.io/config.mirror":"hash"}}}`)
		}))).To(BeFalse(), "the mirror of a static pod")
	})
})
