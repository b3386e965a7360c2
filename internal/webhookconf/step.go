package webhookconf

import (
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Step is what is registered for one step, an extension or one of its kind. Every default is resolved: only
// the selectors and the conditions may be left out.
type Step struct {
	Name       string // a DNS label, unique among the mutating and among the validating steps
	Validating bool   // else mutating
	Rules      []admissionregistrationv1.RuleWithOperations

	// Kind is the kind of the objects that the rules yield. It is zero where they yield several, or any, as
	// with wildcards: such a step is never grouped.
	Kind schema.GroupVersionKind

	// Namespaces is what the user selects; nil and empty leave it to Options.Namespace. The namespaces that
	// are always excluded are not in it: building adds them.
	Namespaces *metav1.LabelSelector

	Objects         *metav1.LabelSelector // nil and empty mean all
	Conditions      []admissionregistrationv1.MatchCondition
	FailurePolicy   admissionregistrationv1.FailurePolicyType
	MatchPolicy     admissionregistrationv1.MatchPolicyType
	Timeout         time.Duration                                  // whole seconds, 1 to 30
	Reinvoke        admissionregistrationv1.ReinvocationPolicyType // for mutating steps
	SideEffects     admissionregistrationv1.SideEffectClass
	Isolated        bool // has an entry of its own
	ClusterCritical bool // may match the namespaces and resources that are excluded else, and everything with Fail
}

// Entry is one webhook of a configuration: one call of the API server, for one step or more. Group makes it.
type Entry struct {
	Name       string // a DNS label
	Path       string // of lowercase DNS segments
	Validating bool
	Steps      []int // indices into the steps that were given to Group, ascending

	// What stands in the webhook, before the safe exclusions: a step's own, or what its steps have in common
	// and the union of the rest.
	Rules           []admissionregistrationv1.RuleWithOperations
	Namespaces      *metav1.LabelSelector
	Objects         *metav1.LabelSelector
	Conditions      []admissionregistrationv1.MatchCondition
	FailurePolicy   admissionregistrationv1.FailurePolicyType
	MatchPolicy     admissionregistrationv1.MatchPolicyType
	Timeout         time.Duration
	Reinvoke        admissionregistrationv1.ReinvocationPolicyType
	SideEffects     admissionregistrationv1.SideEffectClass
	ClusterCritical bool
}

// groupable tells whether the step may share an entry at all.
func (s Step) groupable() bool {
	return !s.Isolated && !s.Kind.Empty() && len(resourcesOf(s.Rules)) > 0 && !slices.ContainsFunc(s.Rules, hasWildcard)
}

func (s Step) ignores() bool { return s.FailurePolicy == admissionregistrationv1.Ignore }

// hasWildcard tells whether the rule may yield more than one kind. A wildcard among the operations does not.
func hasWildcard(r admissionregistrationv1.RuleWithOperations) bool {
	wild := func(s string) bool { return strings.Contains(s, "*") }
	return slices.ContainsFunc(r.APIGroups, wild) || slices.ContainsFunc(r.APIVersions, wild) || slices.ContainsFunc(r.Resources, wild)
}
