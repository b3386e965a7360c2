package conformance_test

// This file plays how the API server uses answers, on which conditions it asks, and the time that it leaves.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/preview"
)

var _ = Describe("S34 The API server", Label("S34"), func() {
	const fail, ignore = admissionregistrationv1.Fail, admissionregistrationv1.Ignore

	var (
		namespace string
		calls     *callLog
	)
	BeforeEach(func(ctx SpecContext) { namespace, calls = newNamespace(ctx), &callLog{} })

	DescribeTable("decides on the outcome of an answer",
		func(ctx SpecContext, operation admissionregistrationv1.OperationType, answer func() admission.Response, underFail, underIgnore OmegaMatcher) {
			for policy, outcome := range map[admissionregistrationv1.FailurePolicyType]OmegaMatcher{fail: underFail, ignore: underIgnore} {
				in := newNamespace(ctx)
				serve(ctx, serviceMode, in, nil, rawStep{
					name:     "raw",
					settings: eirinix.Settings{FailurePolicy: policy, Rules: ruleFor("", "v1", []string{"configmaps"}, operation)},
					handle:   func(admission.Request) admission.Response { return answer() },
				})
				_, err := createConfigMap(ctx, in, newConfigMap("a", map[string]string{"a": "b"}))
				if operation == deleted {
					Expect(err).NotTo(HaveOccurred())
					err = clients().CoreV1().ConfigMaps(in).Delete(ctx, "a", metav1.DeleteOptions{})
				}
				Expect(err).To(outcome, string(policy))
			}
		},
		// The API server itself would refuse these under Ignore too, and not name the cause; the library
		// answers with an HTTP error instead, so that failurePolicy decides.
		Entry("a patch that removes an absent member", created, patched(`[{"op":"remove","path":"/data/nothing"}]`), failedCall("raw"), BeNil(), SpecTimeout(3*patience)),
		Entry("a text that is no patch", created, patched(`{"a":"b"}`), failedCall("raw"), BeNil(), SpecTimeout(3*patience)),
		Entry("a patch on DELETE", deleted, patched(`[{"op":"add","path":"/data/c","value":"d"}]`), failedCall("raw"), BeNil(), SpecTimeout(3*patience)),
		Entry("a failure", created, func() admission.Response {
			return admission.Errored(http.StatusInternalServerError, errors.New("no database"))
		},
			failedCall("no database"), BeNil(), SpecTimeout(3*patience)),
		// These are the user's, whatever the policy.
		Entry("a patch that makes the object invalid", created, patched(`[{"op":"add","path":"/data/not~1a~1key","value":"c"}]`),
			Satisfy(apierrors.IsInvalid), Satisfy(apierrors.IsInvalid), SpecTimeout(3*patience)),
		Entry("a refusal with a code of its own", created, func() admission.Response {
			return admission.Response{AdmissionResponse: deniedWith(http.StatusTeapot, "I am a teapot")}
		}, refusedAs(http.StatusTeapot, "I am a teapot"), refusedAs(http.StatusTeapot, "I am a teapot"), SpecTimeout(3*patience)),
		Entry("a refusal without a code, which the library fills in", created, func() admission.Response {
			return admission.Response{AdmissionResponse: deniedWith(0, "just so")}
		}, refusedAs(http.StatusForbidden, "just so"), refusedAs(http.StatusForbidden, "just so"), SpecTimeout(3*patience)),
	)

	It("sends a generated name to validations, and none to mutations", func(ctx SpecContext) {
		note := func(kind string) func(context.Context, *eirinix.Call, *corev1.Pod) error {
			return func(_ context.Context, c *eirinix.Call, p *corev1.Pod) error {
				calls.add(kind, "<"+p.GenerateName+">", "<"+p.Name+">", "<"+c.Name+">", "<"+c.Namespace+">", "<"+p.Namespace+">")
				return nil
			}
		}
		serve(ctx, serviceMode, namespace, nil,
			eirinix.Mutation[*corev1.Pod]{Apply: note("mutating")}, eirinix.Validation[*corev1.Pod]{Create: note("validating")})
		p := NewPod("", nil)
		p.GenerateName = "made-"
		p = Must(createPod(ctx, namespace, p))
		Expect(p.Name).To(HavePrefix("made-"))
		Expect(calls.list()).To(Equal([]string{
			"mutating <made-> <> <> <" + namespace + "> <" + namespace + ">",
			"validating <made-> <" + p.Name + "> <" + p.Name + "> <" + namespace + "> <" + namespace + ">",
		}))
	}, SpecTimeout(2*patience))

	It("calls once for each object of a collection that is deleted, without a name", func(ctx SpecContext) {
		serve(ctx, serviceMode, namespace, nil, eirinix.Validation[*corev1.ConfigMap]{
			Settings: eirinix.Settings{Rules: ruleFor("", "v1", []string{"configmaps"}, deleted)},
			Delete: func(_ context.Context, c *eirinix.Call, m *corev1.ConfigMap) error {
				calls.add("<"+c.Name+">", m.Name)
				if strings.HasPrefix(m.Name, "kept") {
					return eirinix.Deny("%s is kept", m.Name)
				}
				return nil
			},
		})
		for _, name := range []string{"a", "b", "c"} {
			m := newConfigMap(name, nil)
			m.Labels = map[string]string{"collected": "yes"}
			_, err := createConfigMap(ctx, namespace, m)
			Expect(err).NotTo(HaveOccurred())
		}
		maps := clients().CoreV1().ConfigMaps(namespace)
		Expect(maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "collected"})).To(Succeed())
		Expect(calls.take()).To(ConsistOf("<> a", "<> b", "<> c"))

		m := newConfigMap("kept", nil)
		m.Labels = map[string]string{"collected": "yes"}
		_, err := createConfigMap(ctx, namespace, m)
		Expect(err).NotTo(HaveOccurred())
		Expect(maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "collected"})).To(MatchError(ContainSubstring("kept is kept")))
	}, SpecTimeout(2*patience))
})

func patched(operations string) func() admission.Response {
	return func() admission.Response {
		return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(operations), PatchType: new(admissionv1.PatchTypeJSONPatch)}}
	}
}

func deniedWith(code int32, message string) admissionv1.AdmissionResponse {
	return admissionv1.AdmissionResponse{Result: &metav1.Status{Code: code, Message: message}}
}

// failedCall matches the user's error under Fail, which names the webhook and the reason.
func failedCall(why string) OmegaMatcher {
	return And(Satisfy(apierrors.IsInternalError), MatchError(And(ContainSubstring("failed calling webhook"), ContainSubstring(why))))
}

func refusedAs(code int32, message string) OmegaMatcher {
	return And(MatchError(And(ContainSubstring("denied the request"), ContainSubstring(message))),
		WithTransform(func(err error) int32 {
			var status apierrors.APIStatus
			if errors.As(err, &status) {
				return status.Status().Code
			}
			return 0
		}, Equal(code)))
}

var _ = Describe("S25 The time of a step", Label("S25"), func() {
	It("is the shorter one of request and webhook, and its context ends before that", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		var left sync.Map // how long the context of each step lets it work
		note := func(id string) func(context.Context, *eirinix.Call, *corev1.ConfigMap) error {
			return func(ctx context.Context, _ *eirinix.Call, _ *corev1.ConfigMap) error {
				end, _ := ctx.Deadline()
				left.Store(id, time.Until(end))
				return nil
			}
		}
		settings := func(timeout time.Duration) eirinix.Settings {
			return eirinix.Settings{Isolated: true, Timeout: timeout}
		}
		serve(ctx, urlMode, namespace, nil,
			eirinix.Mutation[*corev1.ConfigMap]{ID: "m-long", Settings: settings(30 * time.Second), Apply: note("m-long")},
			eirinix.Mutation[*corev1.ConfigMap]{ID: "m-short", Settings: settings(10 * time.Second), Apply: note("m-short")},
			eirinix.Validation[*corev1.ConfigMap]{ID: "v-long", Settings: settings(30 * time.Second), Create: note("v-long")},
			eirinix.Validation[*corev1.ConfigMap]{ID: "v-short", Settings: settings(10 * time.Second), Create: note("v-short")})
		Expect(clients().CoreV1().RESTClient().Post().Resource("configmaps").Namespace(namespace).
			Param("timeout", "25s").Body(newConfigMap("timed", nil)).Do(ctx).Error()).To(Succeed())
		for id, bounds := range map[string][2]time.Duration{
			"m-long": {10 * time.Second, 25 * time.Second}, "v-long": {10 * time.Second, 25 * time.Second},
			"m-short": {0, 10 * time.Second}, "v-short": {0, 10 * time.Second},
		} {
			took, called := left.Load(id)
			Expect(called).To(BeTrue(), id)
			Expect(took).To(And(BeNumerically(">", bounds[0]), BeNumerically("<", bounds[1])), id)
		}
	}, SpecTimeout(2*patience))
})

// where makes named conditions of expressions.
func where(expressions ...string) []admissionregistrationv1.MatchCondition {
	conditions := make([]admissionregistrationv1.MatchCondition, 0, len(expressions))
	for i, e := range expressions {
		conditions = append(conditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("condition-%d", i), Expression: e})
	}
	return conditions
}

var _ = Describe("S26 matchConditions", Label("S26"), func() {
	const fail, ignore = admissionregistrationv1.Fail, admissionregistrationv1.Ignore

	// steps returns a step of each kind, which count their calls.
	steps := func(calls *callLog, conditions []admissionregistrationv1.MatchCondition, policy admissionregistrationv1.FailurePolicyType) []any {
		settings := eirinix.Settings{Conditions: conditions, FailurePolicy: policy}
		note := func(kind string) func(context.Context, *eirinix.Call, *corev1.Pod) error {
			return func(_ context.Context, _ *eirinix.Call, p *corev1.Pod) error {
				calls.add(kind, p.Name)
				return nil
			}
		}
		return []any{
			eirinix.Mutation[*corev1.Pod]{ID: "mutating", Settings: settings, Apply: note("mutating")},
			eirinix.Validation[*corev1.Pod]{ID: "validating", Settings: settings, Create: note("validating")},
		}
	}

	const missing = "object.nonExistentProperty == 'someval'"
	DescribeTable("decide who is called", func(ctx SpecContext, conditions []admissionregistrationv1.MatchCondition, policy admissionregistrationv1.FailurePolicyType, called []string, refused string) {
		namespace, calls := newNamespace(ctx), &callLog{}
		serve(ctx, serviceMode, namespace, nil, steps(calls, conditions, policy)...)
		for _, name := range []string{"test1", "test2"} {
			_, err := createPod(ctx, namespace, NewPod(name, nil))
			if refused != "" {
				Expect(err).To(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring(refused))))
			} else {
				Expect(err).NotTo(HaveOccurred())
			}
		}
		var expected []string
		for _, name := range called {
			expected = append(expected, "mutating "+name, "validating "+name)
		}
		Expect(calls.list()).To(ConsistOf(expected))
	},
		Entry("one is true", where("object.metadata.name != 'test1'"), fail, []string{"test2"}, "", SpecTimeout(2*patience)),
		Entry("an error under Fail refuses, with 403 and without a call", where(missing, "true"), fail, nil, "no such key: nonExistentProperty", SpecTimeout(2*patience)),
		Entry("an error under Ignore skips", where(missing, "true"), ignore, nil, "", SpecTimeout(2*patience)),
	)

	DescribeTable("that do not compile are refused by the API server, which ends the start, and by a preview",
		func(ctx SpecContext, expression, reason string) {
			o := optionsFor(ctx, urlMode, newNamespace(ctx))
			bad := func() *eirinix.ExtensionManager {
				m := eirinix.NewManager(o)
				for _, s := range steps(&callLog{}, where(expression), fail) {
					Expect(m.AddExtension(s)).To(Succeed())
				}
				return m
			}
			m := bad()
			Expect(m.Validate()).To(Succeed(), "it compiles nothing")
			Expect(m.Run(ctx)).To(And(Satisfy(apierrors.IsInvalid), MatchError(And(ContainSubstring(reason), ContainSubstring("webhooks[0].matchConditions[0].expression")))))
			Expect(m.Ready()).NotTo(BeClosed())

			By("previewing it without a cluster")
			Expect(preview.Command(ctx, bad(), []string{"-"}, func(o *preview.Options) {
				o.Stdin, o.Stdout, o.Stderr = strings.NewReader("{apiVersion: v1, kind: Pod, metadata: {name: a}}"), io.Discard, io.Discard
			})).To(MatchError(And(ContainSubstring("correct Settings.Conditions"), ContainSubstring(reason))), "for the same reason")
		},
		Entry("a syntax error", "object.metadata.", "compilation failed", SpecTimeout(patience)),
		Entry("not a boolean", "'yes'", "must evaluate to bool", SpecTimeout(patience)),
	)
})
