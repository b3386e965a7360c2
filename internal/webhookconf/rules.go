package webhookconf

// This file determines which requests a webhook is called for: by its rules, and by its selectors of namespaces and
// objects.

import (
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/resources"
)

// operationOrder is the order of the operations in a union.
var operationOrder = []admissionregistrationv1.OperationType{
	admissionregistrationv1.Create, admissionregistrationv1.Update,
	admissionregistrationv1.Delete, admissionregistrationv1.Connect,
}

// resourcesOf returns each "group version resource" that the rules name, once and sorted.
func resourcesOf(rules []admissionregistrationv1.RuleWithOperations) []string {
	return sorted(list.Of(resources.Named(rules), func(r schema.GroupVersionResource) string {
		return r.Group + " " + r.Version + " " + r.Resource
	}))
}

// ownRules returns a copy of the rules, with the scope set to the API server's default if it is empty.
func ownRules(rules []admissionregistrationv1.RuleWithOperations) []admissionregistrationv1.RuleWithOperations {
	return list.Of(rules, func(r admissionregistrationv1.RuleWithOperations) admissionregistrationv1.RuleWithOperations {
		r = *r.DeepCopy()
		r.Scope = new(scopeOf(r))
		return r
	})
}

// union returns rules that match the same requests as all the rules together. Rules that differ only in their
// operations become one. The result depends neither on the order of the rules nor on that of the values within a rule.
func union(rules []admissionregistrationv1.RuleWithOperations) []admissionregistrationv1.RuleWithOperations {
	merged := map[string]*admissionregistrationv1.RuleWithOperations{}
	for _, r := range ownRules(rules) {
		r.APIGroups, r.APIVersions, r.Resources = sorted(r.APIGroups), sorted(r.APIVersions), sorted(r.Resources)
		key := ruleKey(r)
		if m := merged[key]; m != nil {
			m.Operations = append(m.Operations, r.Operations...)
		} else {
			merged[key] = &r
		}
	}
	return list.Of(slices.Sorted(maps.Keys(merged)), func(key string) admissionregistrationv1.RuleWithOperations {
		m := merged[key]
		m.Operations = sortedOperations(m.Operations)
		return *m
	})
}

// sameRules reports whether both have the same union.
func sameRules(a, b []admissionregistrationv1.RuleWithOperations) bool {
	return equality.Semantic.DeepEqual(union(a), union(b))
}

// ruleKey returns all fields of a rule except its operations.
func ruleKey(r admissionregistrationv1.RuleWithOperations) string {
	return strings.Join([]string{
		strings.Join(r.APIGroups, ","), strings.Join(r.APIVersions, ","), strings.Join(r.Resources, ","), string(scopeOf(r)),
	}, " ")
}

func scopeOf(r admissionregistrationv1.RuleWithOperations) admissionregistrationv1.ScopeType {
	return ptr.Deref(r.Scope, admissionregistrationv1.AllScopes)
}

func sorted(values []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(values)))
}

// sortedOperations returns each operation once. If "*" is among them, it is the only result.
func sortedOperations(operations []admissionregistrationv1.OperationType) []admissionregistrationv1.OperationType {
	if slices.Contains(operations, admissionregistrationv1.OperationAll) {
		return []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}
	}
	return slices.DeleteFunc(slices.Clone(operationOrder), func(o admissionregistrationv1.OperationType) bool { return !slices.Contains(operations, o) })
}

// mayYieldPods reports whether the rules can match pods themselves, not only their subresources.
func mayYieldPods(rules []admissionregistrationv1.RuleWithOperations) bool {
	pods := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, Resources: []string{"pods"}},
	}
	return slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return resources.Names(r.APIVersions, "v1") && resources.Overlap([]admissionregistrationv1.RuleWithOperations{r}, []admissionregistrationv1.RuleWithOperations{pods})
	})
}

// mayConnect reports whether the rules can match the options of a CONNECT. These have no labels, and an object without
// labels matches only the empty objectSelector.
func mayConnect(rules []admissionregistrationv1.RuleWithOperations) bool {
	return slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return resources.Names(r.Operations, admissionregistrationv1.Connect) &&
			slices.ContainsFunc(r.Resources, func(s string) bool { return strings.Contains(s, "/") })
	})
}

// FingerprintLabel marks the pods of a webhook's own program with its fingerprint. The webhook is never called for its
// own program's pods, because a program that is down could not be started again. See objects for where the label is used.
const FingerprintLabel = "eirinix.cloudfoundry.org/fingerprint"

// systemNamespaces hold the objects that a cluster needs to recover. A failing webhook must not block them.
var systemNamespaces = []string{metav1.NamespaceSystem, corev1.NamespaceNodeLease, metav1.NamespacePublic}

// canonicalSelector returns the same requirements for equivalent selectors: sorted, nil for an empty selector, and with
// In for a matchLabel.
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

func isEmpty(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
}

func orEmpty(s *metav1.LabelSelector) *metav1.LabelSelector {
	if isEmpty(s) {
		return &metav1.LabelSelector{}
	}
	return s.DeepCopy()
}

// namespaces returns the namespaceSelector of an entry. It selects by the name label that the API server itself sets on
// every namespace, so we never label one. The API server matches Namespaces themselves by their own labels. A step
// about them is therefore not limited to Options.Namespace, and also receives excluded Namespaces that it names.
func (o Options) namespaces(e Entry) *metav1.LabelSelector {
	ofNamespaces, others := aboutNamespaces(e.Rules)
	if isEmpty(e.Namespaces) && o.Namespace != "" && (others || !ofNamespaces) {
		return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: o.Namespace}}
	}
	s := orEmpty(e.Namespaces)
	if excluded := o.excluded(e.Settings); len(excluded) > 0 {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: excluded,
		})
	}
	return s
}

// excluded returns the namespaces whose objects are never sent.
func (o Options) excluded(s Settings) []string {
	if s.AllowClusterCritical {
		return nil
	}
	excluded := slices.Clone(systemNamespaces)
	if o.Target.Service != "" && !slices.Contains(excluded, o.Target.Namespace) {
		excluded = append(excluded, o.Target.Namespace)
	}
	if ofNamespaces, others := aboutNamespaces(s.Rules); ofNamespaces && !others {
		excluded = slices.DeleteFunc(excluded, func(name string) bool { return slices.Contains(namesIn(orEmpty(s.Namespaces)), name) })
	}
	return excluded
}

// aboutNamespaces reports whether the rules name Namespaces, and whether they name any other resource.
func aboutNamespaces(rules []admissionregistrationv1.RuleWithOperations) (namespaces, others bool) {
	for _, named := range resourcesOf(rules) {
		if named == " v1 namespaces" || strings.HasPrefix(named, " v1 namespaces/") {
			namespaces = true
		} else {
			others = true
		}
	}
	return namespaces, others
}

// namesIn returns the namespaces that a selector selects by name.
func namesIn(s *metav1.LabelSelector) (names []string) {
	if name := s.MatchLabels[corev1.LabelMetadataName]; name != "" {
		names = append(names, name)
	}
	for _, e := range s.MatchExpressions {
		if e.Key == corev1.LabelMetadataName && e.Operator == metav1.LabelSelectorOpIn {
			names = append(names, e.Values...)
		}
	}
	return names
}

// objects returns the objectSelector of an entry. In Service mode it excludes the program's own pods if they live in
// the one selected namespace. Elsewhere the label would be a way to bypass the webhook.
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
