package world

// This file is which boxes the steps about them select: by their namespaces, by labels that they must not have, and of kinds without a
// namespace. Some programs have a Namespace for all steps that name none.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	teamLabel, teamOfBank = "team", "red" // of namespaces
	node                  = "Node"        // is in no namespace
	system                = "kube-system"
	unfit                 = "spoils" // an order to make a change that cannot be written, or a patch that does not apply
)

// only reports whether the program has a Namespace, which is the shop.
func (p Plan) only() bool { return p.Seed%8 == 5 && !p.audits() }

// labelsOf are the labels of a namespace, by which API servers select.
func labelsOf(namespace string) labels.Set {
	of := labels.Set{corev1.LabelMetadataName: namespace}
	if namespace == bank {
		of[teamLabel] = teamOfBank
	}
	return of
}

// bankNamespace is the namespace of some boxes.
func bankNamespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: bank, Labels: labelsOf(bank)}}
}

// widen has some of the steps select by namespaces, or be about nodes.
func (w *World) widen(rng *rand.Rand) {
	for i := range w.boxes {
		s := &w.boxes[i]
		s.only = w.plan.only()
		if s.kind.Kind == "Namespace" && rng.IntN(2) == 0 {
			s.kind.Kind = node
		}
		names := func(operator metav1.LabelSelectorOperator, key string, values ...string) *metav1.LabelSelector {
			return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
		}
		if s.judges && !s.rule && rng.IntN(2) == 0 && !slices.Contains(s.Operations, admissionregistrationv1.Delete) {
			s.Operations = append(slices.Clone(s.Operations), admissionregistrationv1.Delete)
		}
		s.AllowClusterCritical = rng.IntN(5) == 0
		which := rng.IntN(10)
		if s.kind.Kind == node {
			which /= 5 // its namespaces say nothing of it
		}
		switch which {
		case 0:
			s.Namespaces = names(metav1.LabelSelectorOpIn, corev1.LabelMetadataName, "shop", attic)
		case 4:
			if s.AllowClusterCritical {
				s.Namespaces = names(metav1.LabelSelectorOpIn, corev1.LabelMetadataName, "shop", system)
			}
		case 1:
			s.Namespaces = names(metav1.LabelSelectorOpNotIn, corev1.LabelMetadataName, "shop")
		case 2:
			s.Namespaces = &metav1.LabelSelector{MatchLabels: map[string]string{teamLabel: teamOfBank}}
		case 3:
			s.Namespaces = names(metav1.LabelSelectorOpNotIn, teamLabel, teamOfBank)
		}
		if rng.IntN(6) == 0 {
			s.Objects.MatchExpressions = append(s.Objects.MatchExpressions, names(metav1.LabelSelectorOpNotIn, ownerLabel, "bob").MatchExpressions...)
		}
		s.both = s.rule && slices.Contains(s.Operations, admissionregistrationv1.Create) && rng.IntN(2) == 0
	}
}

// likens has all steps of a kind that judge, and all that change it, select the same, half the time: many of them share a call.
func (w *World) likens(rng *rand.Rand) {
	if rng.IntN(2) == 0 {
		return
	}
	trees, models := rng.IntN(2) == 0, map[string]boxStep{} // all change boxes as trees
	for i := range w.boxes {
		s := &w.boxes[i]
		of := fmt.Sprint(s.kind.Kind, s.judges)
		model, found := models[of]
		if !found {
			s.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
			model, models[of] = *s, *s
		}
		if trees && !s.judges {
			s.form = treeForm
		}
		s.Objects, s.Namespaces, s.Conditions, s.AllowClusterCritical = model.Objects, model.Namespaces, model.Conditions, model.AllowClusterCritical
		s.Operations, s.Reinvoke, s.EveryUpdate = model.Operations, model.Reinvoke, model.EveryUpdate
	}
}

// leavesOut reports whether no webhook may be called for a request because of the step: by its Conditions or its namespaces.
func (s boxStep) leavesOut(a ask) bool {
	if len(s.Conditions) > 0 && a.object != nil && a.object.GetLabels()[quietLabel] != "" {
		return true
	}
	in := a.namespace()
	switch {
	case a.kind.Kind == node:
		return false
	case a.kind.Kind == "Namespace":
		return !selected(s.Namespaces, a.subject().GetLabels())
	case s.Namespaces == nil && s.only:
		return in != "shop"
	}
	return !selected(s.Namespaces, labelsOf(in)) || in == system && !s.AllowClusterCritical
}

// isUnfit reports whether a box has the step make a change that cannot be written.
func (s boxStep) isUnfit(o metav1.Object) bool {
	return s.isTo(o, unfit) != "" && !s.judges && s.form != silentForm && (s.form == treeForm || s.kind.Kind == "Pod")
}

// spoils makes a change that JSON cannot hold.
func spoils(o any) {
	switch o := o.(type) {
	case *corev1.Pod:
		o.Spec.Containers[1].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.IntOrString{Type: 7}}}}
	case *unstructured.Unstructured:
		o.Object["spec"].(map[string]any)["later"] = math.NaN()
	}
}

// managed are managedFields as an API server writes them.
func managed(second int64) []any {
	at := []string{"2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z"}[second%2]
	return []any{map[string]any{
		"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "time": at, "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:metadata": map[string]any{"f:labels": map[string]any{}}},
	}}
}
