package conformance_test

// This file compares the reinvocation of steps by the library with that of webhooks by the API server.

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

const (
	ifNeeded = admissionregistrationv1.IfNeededReinvocationPolicy
	never    = admissionregistrationv1.NeverReinvocationPolicy
)

// reinvoked is one step of a scenario of reinvocation.
type reinvoked struct {
	id      string
	policy  admissionregistrationv1.ReinvocationPolicyType
	objects *metav1.LabelSelector
	apply   func(p *corev1.Pod)
}

// These are the changes of the steps to a pod.
var (
	noop     = func(*corev1.Pod) {}
	addLabel = func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, "a", "true") }
	onLabel  = func(p *corev1.Pod) { // if a is set, set b
		if p.Labels["a"] != "" {
			metav1.SetMetaDataLabel(&p.ObjectMeta, "b", "true")
		}
	}
	fight = func(value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, "fight", value) }
	}
)

// podSteps makes the steps; isolated ones are a webhook each, the others share one entry, and so are a chain, if their
// selectors are equal.
func podSteps(calls *callLog, isolated bool, all []reinvoked) []any {
	steps := make([]any, 0, len(all))
	for _, r := range all {
		steps = append(steps, eirinix.Mutation[*corev1.Pod]{
			ID:       r.id,
			Settings: eirinix.Settings{Reinvoke: r.policy, Objects: r.objects, Isolated: isolated},
			Apply: func(_ context.Context, _ *eirinix.Call, p *corev1.Pod) error {
				calls.add(r.id)
				r.apply(p)
				return nil
			},
		})
	}
	return steps
}

func labelledPod() *corev1.Pod { return NewPod("labelled", map[string]string{"x": "true"}) }

type reinvocation struct {
	steps  []reinvoked
	calls  map[string]int
	labels map[string]string
}

var _ = Describe("S24 Reinvocation", Label("S24"), func() {
	var (
		namespace string
		calls     *callLog
	)
	BeforeEach(func(ctx SpecContext) { namespace, calls = newNamespace(ctx), &callLog{} })

	cases := []TableEntry{
		Entry("no reinvocation of the one that mutates", reinvocation{
			steps:  []reinvoked{{id: "addlabel", policy: ifNeeded, apply: addLabel}},
			calls:  map[string]int{"addlabel": 1},
			labels: map[string]string{"x": "true", "a": "true"},
		}, SpecTimeout(2*patience)),
		Entry("A again after B has mutated, and B not", reinvocation{
			steps:  []reinvoked{{id: "addlabel", policy: ifNeeded, apply: addLabel}, {id: "onlabel", policy: ifNeeded, apply: onLabel}},
			calls:  map[string]int{"addlabel": 2, "onlabel": 1},
			labels: map[string]string{"x": "true", "a": "true", "b": "true"},
		}, SpecTimeout(2*patience)),
		Entry("fighters twice each, and the last wins", reinvocation{
			steps:  []reinvoked{{id: "settrue", policy: ifNeeded, apply: fight("true")}, {id: "setfalse", policy: ifNeeded, apply: fight("false")}},
			calls:  map[string]int{"settrue": 2, "setfalse": 2},
			labels: map[string]string{"x": "true", "fight": "false"},
		}, SpecTimeout(2*patience)),
		Entry("never for a pod that the objectSelector missed in round 0", reinvocation{
			steps: []reinvoked{
				{id: "onlabel", policy: ifNeeded, apply: onLabel, objects: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "true"}}},
				{id: "addlabel", policy: ifNeeded, apply: addLabel},
			},
			calls:  map[string]int{"addlabel": 1},
			labels: map[string]string{"x": "true", "a": "true"},
		}, SpecTimeout(2*patience)),
		Entry("no webhook with policy Never", reinvocation{
			steps:  []reinvoked{{id: "onlabel", policy: never, apply: onLabel}, {id: "addlabel", policy: never, apply: addLabel}},
			calls:  map[string]int{"addlabel": 1, "onlabel": 1},
			labels: map[string]string{"x": "true", "a": "true"},
		}, SpecTimeout(2*patience)),
	}

	for _, isolated := range []bool{true, false} {
		by := map[bool]string{true: "by the API server, of steps that are a webhook each", false: "by the library, of steps that share an entry if their selectors are equal"}[isolated]
		DescribeTable(by, func(ctx SpecContext, r reinvocation) {
			m := serve(ctx, serviceMode, namespace, nil, podSteps(calls, isolated, r.steps)...)
			webhooks := map[string]bool{} // a chain for each selector
			for _, s := range r.steps {
				webhooks[map[bool]string{true: s.id, false: metav1.FormatLabelSelector(s.objects)}[isolated]] = true
			}
			Expect(mutatingConfiguration(ctx, m).Webhooks).To(HaveLen(len(webhooks)+2), "the marker, and the canary")
			created := Must(createPod(ctx, namespace, labelledPod()))
			Expect(created.Labels).To(Equal(r.labels))
			Expect(calls.counts()).To(Equal(r.calls))
		}, cases)
	}

	It("reinvokes a chain as a whole when another webhook has mutated after it", func(ctx SpecContext) {
		steps := podSteps(calls, false, []reinvoked{{id: "first", policy: ifNeeded, apply: noop}, {id: "second", policy: ifNeeded, apply: noop}})
		steps = append(steps, podSteps(calls, true, []reinvoked{{id: "addlabel", policy: ifNeeded, apply: addLabel}})...)
		m := serve(ctx, urlMode, namespace, nil, steps...)
		Expect(mutatingConfiguration(ctx, m).Webhooks).To(HaveLen(4), "the chain, the other, the marker, and the canary")
		_, err := createPod(ctx, namespace, labelledPod())
		Expect(err).NotTo(HaveOccurred())
		Expect(calls.counts()).To(Equal(map[string]int{"first": 2, "second": 2, "addlabel": 1}), fmt.Sprint(calls.list()))
	}, SpecTimeout(2*patience))
})
