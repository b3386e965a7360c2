package conformance_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
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
	prioritize = func(class string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			if p.Spec.PriorityClassName != class {
				p.Spec.PriorityClassName, p.Spec.Priority = class, nil
			}
		}
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

func labelledPod(labels map[string]string) *corev1.Pod {
	p := newPod("labelled")
	p.Labels = map[string]string{"x": "true"}
	for k, v := range labels {
		p.Labels[k] = v
	}
	return p
}

type reinvocation struct {
	steps     []reinvoked
	start     map[string]string // labels of the pod
	calls     map[string]int
	labels    map[string]string
	mutations map[string]bool // audit: round and index to whether it mutated
}

var _ = Describe("S24 Reinvocation", Label("S24"), func() {
	var (
		namespace, low, high string
		calls                *callLog
	)
	BeforeEach(func(ctx SpecContext) {
		namespace, calls = newNamespace(ctx), &callLog{}
		low, high = namespace+"-low", namespace+"-high"
		for class, value := range map[string]int32{low: 1, high: 10} {
			_, err := clients().SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{
				ObjectMeta: metav1.ObjectMeta{Name: class}, Value: value,
			}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(func(ctx context.Context) error {
				return clients().SchedulingV1().PriorityClasses().Delete(ctx, class, metav1.DeleteOptions{})
			})
		}
	})

	cases := []TableEntry{
		Entry("no reinvocation for a webhook that changes nothing", reinvocation{
			steps:     []reinvoked{{id: "noop", policy: ifNeeded, apply: noop}},
			calls:     map[string]int{"noop": 1},
			mutations: map[string]bool{"round_0_index_0": false},
		}),
		Entry("no reinvocation of the one that mutates", reinvocation{
			steps:     []reinvoked{{id: "addlabel", policy: ifNeeded, apply: addLabel}},
			calls:     map[string]int{"addlabel": 1},
			labels:    map[string]string{"x": "true", "a": "true"},
			mutations: map[string]bool{"round_0_index_0": true},
		}),
		Entry("A again after B has mutated, and B not", reinvocation{
			steps:     []reinvoked{{id: "addlabel", policy: ifNeeded, apply: addLabel}, {id: "onlabel", policy: ifNeeded, apply: onLabel}},
			calls:     map[string]int{"addlabel": 2, "onlabel": 1},
			labels:    map[string]string{"x": "true", "a": "true", "b": "true"},
			mutations: map[string]bool{"round_0_index_0": true, "round_0_index_1": true, "round_1_index_0": false},
		}),
		Entry("fighters twice each, and the last wins", reinvocation{
			steps:     []reinvoked{{id: "settrue", policy: ifNeeded, apply: fight("true")}, {id: "setfalse", policy: ifNeeded, apply: fight("false")}},
			calls:     map[string]int{"settrue": 2, "setfalse": 2},
			labels:    map[string]string{"x": "true", "fight": "false"},
			mutations: map[string]bool{"round_0_index_0": true, "round_0_index_1": true, "round_1_index_0": true, "round_1_index_1": true},
		}),
		Entry("never for a pod that the objectSelector missed in round 0", reinvocation{
			steps: []reinvoked{
				{id: "onlabel", policy: ifNeeded, apply: onLabel, objects: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "true"}}},
				{id: "addlabel", policy: ifNeeded, apply: addLabel},
			},
			calls:     map[string]int{"addlabel": 1},
			labels:    map[string]string{"x": "true", "a": "true"},
			mutations: map[string]bool{"round_0_index_1": true},
		}),
		Entry("no webhook with policy Never", reinvocation{
			steps:     []reinvoked{{id: "onlabel", policy: never, apply: onLabel}, {id: "addlabel", policy: never, apply: addLabel}},
			calls:     map[string]int{"addlabel": 1, "onlabel": 1},
			labels:    map[string]string{"x": "true", "a": "true"},
			mutations: map[string]bool{"round_0_index_0": false, "round_0_index_1": true},
		}),
		Entry("no webhook without policy", reinvocation{
			steps:     []reinvoked{{id: "onlabel", apply: onLabel}, {id: "addlabel", apply: addLabel}},
			calls:     map[string]int{"addlabel": 1, "onlabel": 1},
			labels:    map[string]string{"x": "true", "a": "true"},
			mutations: map[string]bool{"round_0_index_0": false, "round_0_index_1": true},
		}),
	}

	DescribeTable("by the API server, of steps that are a webhook each, as its audit log shows", func(ctx SpecContext, r reinvocation) {
		audited := auditedServer(ctx)
		serve(ctx, urlMode, namespace, nil, podSteps(calls, true, r.steps)...)
		audited.await(ctx, namespace, "pods", calls)
		pod := labelledPod(r.start)
		pod.Spec.PriorityClassName = low // an in-tree plugin mutates first, which reinvokes no webhook
		created, err := Clients(audited.Config()).CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		if r.labels != nil {
			Expect(created.Labels).To(Equal(r.labels))
		}
		Expect(calls.counts()).To(Equal(r.calls))
		Expect(audited.mutations(ctx, namespace, "labelled")).To(Equal(r.mutations))
	}, cases)

	DescribeTable("by the library, of steps that share an entry if their selectors are equal", func(ctx SpecContext, r reinvocation) {
		m := serve(ctx, serviceMode, namespace, nil, podSteps(calls, false, r.steps)...)
		selectors := map[string]bool{}
		for _, s := range r.steps {
			selectors[metav1.FormatLabelSelector(s.objects)] = true
		}
		Expect(mutatingConfiguration(ctx, m).Webhooks).To(HaveLen(len(selectors)+2), "a chain for each selector, the marker, and the canary")
		created, err := createPod(ctx, namespace, labelledPod(r.start))
		Expect(err).NotTo(HaveOccurred())
		if r.labels != nil {
			Expect(created.Labels).To(Equal(r.labels))
		}
		Expect(calls.counts()).To(Equal(r.calls))
	}, cases)

	eachMode(func(mode mode) {
		It("follows an in-tree plugin that a webhook has given a reason to run again", func(ctx SpecContext) {
			serve(ctx, mode, namespace, nil, podSteps(calls, true, []reinvoked{{id: "prioritize", policy: ifNeeded, apply: prioritize(high)}})...)
			pod := labelledPod(nil)
			pod.Spec.PriorityClassName = low
			created, err := createPod(ctx, namespace, pod)
			Expect(err).NotTo(HaveOccurred())
			Expect(created.Spec.PriorityClassName).To(Equal(high))
			Expect(created.Spec.Priority).To(HaveValue(BeEquivalentTo(10)))
			Expect(calls.counts()).To(Equal(map[string]int{"prioritize": 2}))
		}, SpecTimeout(2*patience))

		It("has the in-tree plugin refuse the change of a webhook", func(ctx SpecContext) {
			serve(ctx, mode, namespace, nil, podSteps(calls, true, []reinvoked{{id: "invalid", policy: ifNeeded, apply: prioritize("invalid")}})...)
			_, err := createPod(ctx, namespace, labelledPod(nil))
			Expect(err).To(MatchError(ContainSubstring("no PriorityClass with name invalid was found")))
			Expect(calls.counts()).To(Equal(map[string]int{"invalid": 1}))
		}, SpecTimeout(2*patience))
	})

	It("reinvokes a chain as a whole when another webhook has mutated after it", func(ctx SpecContext) {
		steps := podSteps(calls, false, []reinvoked{{id: "first", policy: ifNeeded, apply: noop}, {id: "second", policy: ifNeeded, apply: noop}})
		steps = append(steps, podSteps(calls, true, []reinvoked{{id: "addlabel", policy: ifNeeded, apply: addLabel}})...)
		m := serve(ctx, urlMode, namespace, nil, steps...)
		Expect(mutatingConfiguration(ctx, m).Webhooks).To(HaveLen(4), "the chain, the other, the marker, and the canary")
		_, err := createPod(ctx, namespace, labelledPod(nil))
		Expect(err).NotTo(HaveOccurred())
		Expect(calls.counts()).To(Equal(map[string]int{"first": 2, "second": 2, "addlabel": 1}), fmt.Sprint(calls.list()))
	}, SpecTimeout(2*patience))
})
