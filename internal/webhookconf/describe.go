package webhookconf

// This file describes, for logs and diagnoses, which requests an entry is called for.

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"code.cloudfoundry.org/eirinix/internal/list"
)

// Describe returns the keys and values of a log line about the requests that the API server calls an entry for.
func (o Options) Describe(e Entry) []any {
	namespaces, objects := "all but the cluster's own", "all"
	if !isEmpty(e.Objects) {
		objects = metav1.FormatLabelSelector(e.Objects)
	}
	ofNamespaces, others := aboutNamespaces(e.Rules)
	switch {
	case !isEmpty(e.Namespaces):
		namespaces = metav1.FormatLabelSelector(e.Namespaces)
	case o.Namespace != "" && (others || !ofNamespaces):
		namespaces = o.Namespace
	}
	line := []any{
		"rules", describeRules(e.Rules), "namespaces", namespaces, "objects", objects,
		"failurePolicy", e.FailurePolicy,
	}
	if !e.Validating {
		alone := slices.Compact(list.Of(e.Steps, func(s Step) string { return leavesAlone[s.Owned] }))
		line = append(line, "leavesAlone", strings.Join(alone, "; "))
	}
	return line
}

var leavesAlone = map[OwnedPolicy]string{
	OwnedAuto: "what a controller of Kubernetes or a kubelet keeps as it is",
	OwnedSkip: "whatever has a controller among its ownerReferences",
	OwnedSee:  "nothing",
}

func describeRules(rules []admissionregistrationv1.RuleWithOperations) string {
	return strings.Join(list.Of(rules, func(r admissionregistrationv1.RuleWithOperations) string {
		operations := list.Of(r.Operations, func(o admissionregistrationv1.OperationType) string { return string(o) })
		return strings.Join(operations, ",") + " of " + strings.Join(r.Resources, ",")
	}), "; ")
}

// Sharing describes which steps share a call of the API server and, for steps of the same kind that do not, which of
// their settings differ.
func Sharing(entries []Entry) (all []string) {
	first := map[string]Entry{} // by kind
	for _, e := range entries {
		if e.Converts != "" {
			continue
		}
		names, step := strings.Join(e.StepNames(), ", "), e.Steps[0]
		if len(e.Steps) > 1 {
			all = append(all, fmt.Sprintf("%s share one call, that of webhook %s", names, e.Name))
		}
		if step.Kind.Empty() {
			continue
		}
		kind := fmt.Sprint(e.Validating, step.Kind)
		other, seen := first[kind]
		if !seen {
			first[kind] = e
			continue
		}
		all = append(all, fmt.Sprintf("%s is called apart from webhook %s, because of %s", names, other.Name, apart(step, other.Steps[0])))
	}
	return all
}

// apart names the settings that prevent two steps of a kind from sharing a call.
func apart(a, b Step) string {
	if !a.groupable() || !b.groupable() {
		return "Isolated, or wildcards in its Rules"
	}
	var differ []string
	compare := func(setting string, same bool) {
		if !same {
			differ = append(differ, setting)
		}
	}
	ka, kb := a.groupKey(), b.groupKey()
	compare("the resources in Rules", slices.Equal(ka.Resources, kb.Resources))
	compare("Namespaces", slices.Equal(ka.Namespaces, kb.Namespaces))
	compare("Objects", slices.Equal(ka.Objects, kb.Objects))
	compare("Conditions", slices.Equal(ka.Conditions, kb.Conditions))
	compare("MatchPolicy", ka.MatchPolicy == kb.MatchPolicy)
	compare("SideEffects", ka.SideEffects == kb.SideEffects)
	compare("Reinvoke", ka.Reinvoke == kb.Reinvoke)
	compare("EveryUpdate", ka.EveryUpdate == kb.EveryUpdate)
	compare("AllowClusterCritical", ka.AllowClusterCritical == kb.AllowClusterCritical)
	switch {
	case len(differ) > 0:
	case a.ignores() != b.ignores():
		differ = []string{"FailurePolicy, as their Rules differ too"}
	default:
		differ = []string{"Timeout: together they need more than 30 s"}
	}
	return strings.Join(differ, ", ")
}

// Selects reports whether a selector of a webhook selects labels. The API server defaults a missing one to the empty
// selector, which selects everything.
func Selects(s *metav1.LabelSelector, set labels.Set) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return s == nil || err == nil && selector.Matches(set)
}
