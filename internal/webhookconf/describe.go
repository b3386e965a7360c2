package webhookconf

// This file says in words and in answers what an entry is called for.

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Describe returns the keys and values with which a log line tells what the API server calls an entry for.
func (o Options) Describe(e Entry) []any {
	namespaces := "all but the cluster's own"
	switch {
	case e.Namespaces != nil && len(e.Namespaces.MatchLabels)+len(e.Namespaces.MatchExpressions) > 0:
		namespaces = metav1.FormatLabelSelector(e.Namespaces)
	case o.Namespace != "":
		namespaces = o.Namespace
	}
	return []any{
		"rules", describeRules(e.Rules), "namespaces", namespaces, "objects", metav1.FormatLabelSelector(e.Objects),
		"failurePolicy", e.FailurePolicy,
	}
}

func describeRules(rules []admissionregistrationv1.RuleWithOperations) string {
	var all []string
	for _, r := range rules {
		operations := make([]string, 0, len(r.Operations))
		for _, o := range r.Operations {
			operations = append(operations, string(o))
		}
		all = append(all, strings.Join(operations, ",")+" of "+strings.Join(r.Resources, ","))
	}
	return strings.Join(all, "; ")
}

// AsksAboutNewPods reports whether a step refuses, when its program is down, new pods with these labels in a namespace.
// Only the API server can say what conditions select, so a step with conditions does not; neither does one whose user has
// said with ClusterCritical that it may.
func AsksAboutNewPods(s Step, o Options, namespace string, set map[string]string) bool {
	creates := slices.DeleteFunc(slices.Clone(s.Rules), func(r admissionregistrationv1.RuleWithOperations) bool {
		return !slices.Contains(r.Operations, admissionregistrationv1.Create) && !slices.Contains(r.Operations, admissionregistrationv1.OperationAll)
	})
	if s.ClusterCritical || len(s.Conditions) > 0 || s.ignores() || !MayYieldPods(creates) {
		return false
	}
	for _, e := range Group([]Step{s}) {
		w := o.webhook(e)
		if selects(w.NamespaceSelector, map[string]string{corev1.LabelMetadataName: namespace}) && selects(w.ObjectSelector, set) {
			return true
		}
	}
	return false
}

func selects(s *metav1.LabelSelector, set map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(set))
}
