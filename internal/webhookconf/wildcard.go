package webhookconf

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// This file bounds what "every resource" means for steps that are not ClusterCritical, whatever their failurePolicy:
// with Ignore, each of these requests would still wait for a webhook that is down.
//
//	What lies in no namespace   Nodes, ClusterRoles, PriorityClasses, APIServices, CustomResourceDefinitions,
//	                            CertificateSigningRequests, TokenReviews and what else the API server or a node needs to
//	                            start and to be let in; no namespaceSelector protects them. Namespaces too: they carry
//	                            the labels by which objects get past a webhook. The rule is given the scope
//	                            Namespaced, which every API server understands.
//	What a cluster heals by     Leases, access reviews, tokens of ServiceAccounts, and the Service of the API servers
//	                            themselves, which lie in namespaces that are not excluded. A matchCondition leaves
//	                            them out.
//
// A rule gets the resources that it names: the rule "leases" gets Leases, and "*" of a group that is not Kubernetes' own gets all
// of that group.

const (
	// wildcardCondition is the name of our matchCondition.
	wildcardCondition = "eirinix.cloudfoundry.org/wildcard"

	// everyResource stands for any resource in a rule.
	everyResource = "*"
)

// spared lists the resources that no wildcard takes in although they lie in a namespace. Where resources is empty, it is all of the group.
var spared = []struct {
	group     string
	resources []string
	when      string // further conditions, in CEL
}{
	{group: "authorization.k8s.io"},
	{group: "coordination.k8s.io"},
	{group: "", resources: []string{"serviceaccounts"}, when: "has(request.subResource) && request.subResource == 'token'"},
	{group: "", resources: []string{"endpoints", "services"}, when: ofAPIServers},
	{group: "discovery.k8s.io", resources: []string{"endpointslices"}, when: ofAPIServers},
}

const ofAPIServers = "has(request.namespace) && request.namespace == 'default' && has(request.name) && request.name == 'kubernetes'"

// rulesFor are the rules of a webhook: those of the entry, with wildcards bounded.
func rulesFor(e Entry) []admissionregistrationv1.RuleWithOperations {
	own := ownRules(e.Rules)
	if e.ClusterCritical {
		return own
	}
	bounded := make([]admissionregistrationv1.RuleWithOperations, 0, len(own))
	for _, r := range own {
		wild, named := cutResources(r)
		if !unbounded(r) || scopeOf(r) == admissionregistrationv1.NamespacedScope {
			bounded = append(bounded, r)
			continue
		}
		if len(named) > 0 && len(checkResources(r.Resources, nil)) == 0 {
			rest := *r.DeepCopy()
			r.Resources, rest.Resources = wild, named
			bounded = append(bounded, rest)
		}
		r.Scope = new(admissionregistrationv1.NamespacedScope)
		bounded = append(bounded, r)
	}
	return bounded
}

// conditionsFor are the matchConditions of a webhook: those of the entry, and ours behind them.
func conditionsFor(rules []admissionregistrationv1.RuleWithOperations, conditions []admissionregistrationv1.MatchCondition, critical bool) []admissionregistrationv1.MatchCondition {
	conditions = slices.Clone(conditions)
	if critical {
		return conditions
	}
	if expression := sparing(rules); expression != "" {
		conditions = append(conditions, admissionregistrationv1.MatchCondition{Name: wildcardCondition, Expression: expression})
	}
	return conditions
}

// sparing returns a CEL expression that is false for resources that the wildcards of the rules must not take in, and true
// for those that the rules name; it is empty where there is nothing to spare.
func sparing(rules []admissionregistrationv1.RuleWithOperations) string {
	var named, not []string
	for _, s := range spared {
		if !slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
			return unbounded(r) && containsAny(r.APIGroups, s.group, "*")
		}) {
			continue
		}
		term := []string{fmt.Sprintf("request.resource.group == '%s'", s.group)}
		if len(s.resources) > 0 {
			term = append(term, fmt.Sprintf("request.resource.resource in ['%s']", strings.Join(s.resources, "', '")))
		}
		if s.when != "" {
			term = append(term, s.when)
		}
		not = append(not, strings.Join(term, " && "))
		for _, r := range rules {
			_, resources := cutResources(r)
			for _, resource := range resources {
				resource, _, _ = strings.Cut(resource, "/")
				if containsAny(r.APIGroups, s.group, "*") && (len(s.resources) == 0 || slices.Contains(s.resources, resource)) {
					named = append(named, fmt.Sprintf("request.resource.group == '%s' && request.resource.resource == '%s'", s.group, resource))
				}
			}
		}
	}
	if len(not) == 0 {
		return ""
	}
	return strings.Join(append(sorted(named), "!("+strings.Join(not, " || ")+")"), " || ")
}

// unbounded reports whether the rule takes in every resource of a group of Kubernetes itself, or of all groups.
func unbounded(r admissionregistrationv1.RuleWithOperations) bool {
	wild, _ := cutResources(r)
	return len(wild) > 0 && slices.ContainsFunc(r.APIGroups, func(group string) bool {
		return group == "*" || !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
	})
}

// cutResources separates wildcards from names; "pods/*" is a name.
func cutResources(r admissionregistrationv1.RuleWithOperations) (wild, named []string) {
	for _, resource := range r.Resources {
		if name, _, _ := strings.Cut(resource, "/"); name == everyResource {
			wild = append(wild, resource)
		} else {
			named = append(named, resource)
		}
	}
	return wild, named
}

// wildcards refuses rules of which nothing would be left.
func (c *checker) wildcards(r admissionregistrationv1.RuleWithOperations, path *field.Path) {
	if unbounded(r) && scopeOf(r) == admissionregistrationv1.ClusterScope {
		c.report("name the resources in Settings.Rules, or set Settings.ClusterCritical if you know what you do",
			field.Forbidden(path.Child("scope"), "what lies in no namespace is what a cluster starts and heals by, and a wildcard would take in all of it"))
	}
}
