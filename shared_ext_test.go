package eirinix_test

// This file specifies that steps which share a call are called for what each of them asks for, and for no more.

import (
	"context"
	"fmt"
	"maps"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// asker is a step on ConfigMaps, with the settings that its user wrote.
type asker struct {
	objects    *metav1.LabelSelector
	operations []admissionregistrationv1.OperationType // empty: create and update
	validates  bool
	ignores    bool
	isolated   bool
}

func (a asker) settings() eirinix.Settings {
	s := eirinix.Settings{Objects: a.objects, Isolated: a.isolated}
	if a.ignores {
		s.FailurePolicy = admissionregistrationv1.Ignore
	}
	if len(a.operations) > 0 {
		s.Rules = []admissionregistrationv1.RuleWithOperations{{
			Operations: a.operations,
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		}}
	}
	return s
}

// step has nothing against any object.
func (a asker) step(n int) any {
	if a.validates {
		yes := func(context.Context, *eirinix.Call, *corev1.ConfigMap) error { return nil }
		return eirinix.Validation[*corev1.ConfigMap]{
			ID: fmt.Sprint("step-", n), Settings: a.settings(), Create: yes,
			Update: func(context.Context, *eirinix.Call, *corev1.ConfigMap, *corev1.ConfigMap) error { return nil },
		}
	}
	return eirinix.Mutation[*corev1.ConfigMap]{
		ID: fmt.Sprint("step-", n), Settings: a.settings(),
		Apply: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error { return nil },
	}
}

// request is one on a ConfigMap: a creation, or an update where there is an old one.
type request struct{ old, new labels.Set }

func (r request) String() string {
	if r.old == nil {
		return fmt.Sprintf("create {%s}", r.new)
	}
	return fmt.Sprintf("update {%s} to {%s}", r.old, r.new)
}

// asks reports whether a step asks for a request: by its own words, with nothing of the library.
func (a asker) asks(r request) bool {
	operation := admissionregistrationv1.Create
	if r.old != nil {
		operation = admissionregistrationv1.Update
	}
	if len(a.operations) > 0 && !slices.Contains(a.operations, operation) {
		return false
	}
	selector := labels.Everything()
	if a.objects != nil {
		selector = Must(metav1.LabelSelectorAsSelector(a.objects))
	}
	return selector.Matches(r.new) || r.old != nil && selector.Matches(r.old)
}

var _ = Describe("Steps that may share a call", func() {
	selecting := func(text string) *metav1.LabelSelector { return Must(metav1.ParseToLabelSelector(text)) }
	create := []admissionregistrationv1.OperationType{admissionregistrationv1.Create}
	update := []admissionregistrationv1.OperationType{admissionregistrationv1.Update}
	a, other, b := selecting("a=1"), selecting("a=2"), selecting("b=1")

	sets := map[string][]asker{
		"one":                   {{objects: a}},
		"two with one selector": {{objects: a}, {objects: a}},
		"two with one selector, worded differently": {{objects: a}, {objects: selecting("a in (1)")}},
		"two values of a label":                     {{objects: a}, {objects: other}},
		"two labels":                                {{objects: a}, {objects: b}},
		"part of the other's objects":               {{objects: a}, {objects: selecting("a=1,b=1")}},
		"the objects that the other leaves out":     {{objects: a}, {objects: selecting("a notin (1,2)")}},
		"two operations":                            {{objects: a, operations: create}, {objects: a, operations: update}},
		"two operations and selectors":              {{objects: a, operations: create}, {objects: b, operations: update}},
		"all objects, ignored, beside some":         {{objects: a}, {ignores: true}},
		"all objects, and some ignored":             {{operations: create}, {objects: a, ignores: true}},
		"both ignored":                              {{objects: a, ignores: true}, {objects: b, ignores: true}},
		"validations":                               {{objects: a, validates: true}, {objects: b, validates: true}},
		"a mutation and a validation":               {{objects: a, operations: create}, {objects: b, operations: update, validates: true}},
		"one isolated":                              {{objects: a}, {objects: b, isolated: true}, {objects: a}},
		"four":                                      {{objects: a}, {objects: b, operations: update}, {objects: other, ignores: true}, {objects: a, operations: create}},
	}

	var requests []request
	sorts := []labels.Set{{}, {"a": "1"}, {"a": "2"}, {"b": "1"}, {"a": "1", "b": "1"}}
	for _, old := range append([]labels.Set{nil}, sorts...) {
		for _, now := range sorts {
			requests = append(requests, request{old, now})
		}
	}

	add := func(m *eirinix.ExtensionManager, steps []asker) {
		GinkgoHelper()
		for i, s := range steps {
			Expect(m.AddExtension(s.step(i))).To(Succeed())
		}
	}
	configMap := func(name string, l labels.Set) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: l}}
	}

	for _, name := range slices.Sorted(maps.Keys(sets)) {
		steps := sets[name]

		It("are called for exactly the requests that one of them asks for, in a Harness: "+name, func() {
			m := eirinix.NewManager(eirinix.ManagerOptions{Namespace: "cf"})
			add(m, steps)
			h := eirinixtest.NewHarness(GinkgoT(), m)
			for _, r := range requests {
				var result *eirinixtest.Result
				if r.old == nil {
					result = h.Create(configMap("new", r.new), eirinixtest.InNamespace("cf"))
				} else {
					result = h.Update(configMap("new", r.old), configMap("new", r.new), eirinixtest.InNamespace("cf"))
				}
				Expect(len(result.Calls) > 0).To(Equal(slices.ContainsFunc(steps, func(a asker) bool { return a.asks(r) })), r.String())
				ran := map[string]bool{}
				for _, s := range result.Steps {
					ran[s.Step] = true
				}
				for i, s := range steps {
					Expect(ran[fmt.Sprint("step-", i)]).To(Equal(s.asks(r)), "step-%d: %s", i, r)
				}
			}
		})
	}
})
