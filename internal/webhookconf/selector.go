package webhookconf

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FingerprintLabel marks the pods of a webhook's own program with its fingerprint. Pods that carry it are
// never sent to that webhook: one that is down could not be started again.
const FingerprintLabel = "eirinix.cloudfoundry.org/fingerprint"

// systemNamespaces hold what a cluster needs to heal itself; a webhook that fails must not stand in its way.
var systemNamespaces = []string{metav1.NamespaceSystem, corev1.NamespaceNodeLease, metav1.NamespacePublic}

// canonicalSelector gives the same for selectors that say the same in other words: an order, nil for empty,
// matchLabels for In with one value.
func canonicalSelector(s *metav1.LabelSelector) []string {
	if s == nil {
		return nil
	}
	requirements := make([]string, 0, len(s.MatchLabels)+len(s.MatchExpressions))
	for key, value := range s.MatchLabels {
		requirements = append(requirements, requirement(key, metav1.LabelSelectorOpIn, value))
	}
	for _, e := range s.MatchExpressions {
		requirements = append(requirements, requirement(e.Key, e.Operator, sorted(e.Values)...))
	}
	return sorted(requirements)
}

func requirement(key string, operator metav1.LabelSelectorOperator, values ...string) string {
	return strings.TrimSpace(key + " " + string(operator) + " " + strings.Join(values, ","))
}

func sameSelector(a, b *metav1.LabelSelector) bool {
	return slices.Equal(canonicalSelector(a), canonicalSelector(b))
}

func isEmpty(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
}

func orEmpty(s *metav1.LabelSelector) *metav1.LabelSelector {
	if isEmpty(s) {
		return &metav1.LabelSelector{}
	}
	return s.DeepCopy()
}

// namespaces is the namespaceSelector of an entry. It selects by the name that the API server itself puts on
// every namespace, so none is ever labelled by us.
func (o Options) namespaces(e Entry) *metav1.LabelSelector {
	if isEmpty(e.Namespaces) && o.Namespace != "" {
		return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: o.Namespace}}
	}
	s := orEmpty(e.Namespaces)
	if e.ClusterCritical {
		return s
	}
	excluded := slices.Clone(systemNamespaces)
	if o.Target.Service != "" && !slices.Contains(excluded, o.Target.Namespace) {
		excluded = append(excluded, o.Target.Namespace)
	}
	s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: excluded,
	})
	return s
}

// objects is the objectSelector of an entry. In Service mode it leaves out the program's own pods where they
// live in the one namespace that is selected; elsewhere the label would be a way past the webhook.
func (o Options) objects(e Entry) *metav1.LabelSelector {
	s := orEmpty(e.Objects)
	ownSelected := o.Target.Service != "" && o.Namespace == o.Target.Namespace && isEmpty(e.Namespaces)
	if ownSelected && mayYieldPods(e.Rules) && !mayConnect(e.Rules) {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: FingerprintLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{o.Fingerprint},
		})
	}
	return s
}
