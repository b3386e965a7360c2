package webhookconf

// This file holds the matchConditions of the library's own, which follow those of a step's Settings.

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"code.cloudfoundry.org/eirinix/internal/settled"
)

// The names of the library's matchConditions.
const (
	wildcardCondition = "eirinix.cloudfoundry.org/wildcard"
	dyingCondition    = "eirinix.cloudfoundry.org/dying"
)

// conditionsFor returns the matchConditions of a webhook: those of the settings, followed by ours.
func conditionsFor(s Settings) []admissionregistrationv1.MatchCondition {
	conditions := slices.Clone(s.Conditions)
	if !s.EveryUpdate && slices.ContainsFunc(s.Rules, ofDying) {
		conditions = append(conditions, admissionregistrationv1.MatchCondition{Name: dyingCondition, Expression: settled.Condition})
	}
	if expression := sparing(s.Rules); expression != "" && !s.AllowClusterCritical {
		conditions = append(conditions, admissionregistrationv1.MatchCondition{Name: wildcardCondition, Expression: expression})
	}
	return conditions
}

// HoldsDying reports whether a webhook is called for whatever is done to a dying object.
func HoldsDying(w admissionregistrationv1.MutatingWebhook) bool {
	return slices.ContainsFunc(w.Rules, ofDying) && len(WithoutDying(w.MatchConditions)) == len(w.MatchConditions)
}

// WithoutDying returns matchConditions without the one that lets dying objects go.
func WithoutDying(all []admissionregistrationv1.MatchCondition) []admissionregistrationv1.MatchCondition {
	return slices.DeleteFunc(slices.Clone(all), func(c admissionregistrationv1.MatchCondition) bool { return c.Name == dyingCondition })
}

// ofDying reports whether the rule can match an UPDATE or a DELETE of an object itself.
func ofDying(r admissionregistrationv1.RuleWithOperations) bool {
	return slices.ContainsFunc(r.Operations, func(o admissionregistrationv1.OperationType) bool {
		return o != admissionregistrationv1.Create && o != admissionregistrationv1.Connect
	}) && slices.ContainsFunc(r.Resources, func(resource string) bool {
		_, sub, _ := strings.Cut(resource, "/")
		return sub == "" || sub == "*"
	})
}
