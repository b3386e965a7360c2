package webhookconf

import (
	"cmp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// operationOrder is the order in which a union holds the operations.
var operationOrder = []admissionregistrationv1.OperationType{
	admissionregistrationv1.Create, admissionregistrationv1.Update,
	admissionregistrationv1.Delete, admissionregistrationv1.Connect,
}

// resourcesOf gives each "group version resource" that the rules name, once and sorted.
func resourcesOf(rules []admissionregistrationv1.RuleWithOperations) []string {
	var all []string
	for _, r := range rules {
		for _, g := range r.APIGroups {
			for _, v := range r.APIVersions {
				for _, resource := range r.Resources {
					all = append(all, g+" "+v+" "+resource)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ownRules is a copy of the rules as they are, with the scope spelt out as the API server would.
func ownRules(rules []admissionregistrationv1.RuleWithOperations) []admissionregistrationv1.RuleWithOperations {
	own := make([]admissionregistrationv1.RuleWithOperations, 0, len(rules))
	for _, r := range rules {
		r := *r.DeepCopy()
		r.Scope = new(scopeOf(r))
		own = append(own, r)
	}
	return own
}

// union says the same as all the rules together: rules that differ in nothing but their operations become one.
// It does not depend on the order of the rules, nor on that of the values within one.
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
	result := make([]admissionregistrationv1.RuleWithOperations, 0, len(merged))
	for _, m := range merged {
		m.Operations = sortedOperations(m.Operations)
		result = append(result, *m)
	}
	slices.SortFunc(result, func(a, b admissionregistrationv1.RuleWithOperations) int {
		return cmp.Compare(ruleKey(a), ruleKey(b))
	})
	return result
}

// sameRules tells whether both yield the same union.
func sameRules(a, b []admissionregistrationv1.RuleWithOperations) bool {
	return slices.EqualFunc(union(a), union(b), func(a, b admissionregistrationv1.RuleWithOperations) bool {
		return ruleKey(a) == ruleKey(b) && slices.Equal(a.Operations, b.Operations)
	})
}

// ruleKey is everything of a rule but its operations.
func ruleKey(r admissionregistrationv1.RuleWithOperations) string {
	return strings.Join([]string{
		strings.Join(r.APIGroups, ","), strings.Join(r.APIVersions, ","), strings.Join(r.Resources, ","), string(scopeOf(r)),
	}, " ")
}

func scopeOf(r admissionregistrationv1.RuleWithOperations) admissionregistrationv1.ScopeType {
	if r.Scope == nil {
		return admissionregistrationv1.AllScopes
	}
	return *r.Scope
}

func sorted(values []string) []string {
	values = slices.Clone(values)
	slices.Sort(values)
	return slices.Compact(values)
}

// sortedOperations gives each operation once; all of them is "*".
func sortedOperations(operations []admissionregistrationv1.OperationType) []admissionregistrationv1.OperationType {
	if slices.Contains(operations, admissionregistrationv1.OperationAll) {
		return []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}
	}
	slices.SortFunc(operations, func(a, b admissionregistrationv1.OperationType) int {
		return cmp.Compare(slices.Index(operationOrder, a), slices.Index(operationOrder, b))
	})
	return slices.Compact(operations)
}

// mayYieldPods tells whether the rules may send pods themselves, not only what is below them.
func mayYieldPods(rules []admissionregistrationv1.RuleWithOperations) bool {
	return slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return containsAny(r.APIGroups, "", "*") && containsAny(r.APIVersions, "v1", "*") &&
			containsAny(r.Resources, "pods", "pods/*", "*", "*/*")
	})
}

// mayConnect tells whether the rules may send the options of a CONNECT. They have no labels, and what has no
// labels matches no objectSelector but the empty one.
func mayConnect(rules []admissionregistrationv1.RuleWithOperations) bool {
	return slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return containsAny(r.Operations, admissionregistrationv1.Connect, admissionregistrationv1.OperationAll) &&
			slices.ContainsFunc(r.Resources, func(s string) bool { return strings.Contains(s, "/") })
	})
}

func containsAny[T comparable](values []T, wanted ...T) bool {
	return slices.ContainsFunc(values, func(v T) bool { return slices.Contains(wanted, v) })
}
