package webhookconf

// This file limits the meaning of "every resource" for steps without AllowClusterCritical, whatever their
// failurePolicy. Even with Ignore, each of these requests would wait for a webhook that is down.
//
//	No namespace   Nodes, ClusterRoles, PriorityClasses, APIServices, CustomResourceDefinitions,
//	               CertificateSigningRequests, TokenReviews and other objects that the API server or a node needs to start
//	               and to get access. No namespaceSelector protects them. Namespaces are among them, because they carry
//	               the labels by which objects bypass a webhook. The rule gets the scope Namespaced, which every API
//	               server understands.
//	Recovery       Leases, access reviews, tokens of ServiceAccounts, and the Service of the API servers themselves, which
//	               are in namespaces that are not excluded. A matchCondition leaves them out.
//
// A rule matches the resources that it names: the rule "leases" matches Leases, and "*" of a group that is not
// Kubernetes' own matches all of that group.

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"code.cloudfoundry.org/eirinix/internal/resources"
)

// spared lists the namespaced resources that no wildcard matches. An empty resources means all of the group.
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

// rulesFor returns the rules of a webhook: those of the entry, with limited wildcards.
func rulesFor(e Entry) []admissionregistrationv1.RuleWithOperations {
	own := ownRules(e.Rules)
	if e.AllowClusterCritical {
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

// sparing returns a CEL expression that is false for resources that the wildcards of the rules must not match, and true
// for those that the rules name. It is empty if no resource needs to be spared.
func sparing(rules []admissionregistrationv1.RuleWithOperations) string {
	var named, not []string
	for _, s := range spared {
		if !slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
			return unbounded(r) && resources.Names(r.APIGroups, s.group)
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
			_, own := cutResources(r)
			for _, resource := range own {
				resource, _, _ = strings.Cut(resource, "/")
				if resources.Names(r.APIGroups, s.group) && (len(s.resources) == 0 || slices.Contains(s.resources, resource)) {
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

// unbounded reports whether the rule matches every resource of one of Kubernetes' own groups, or of all groups.
func unbounded(r admissionregistrationv1.RuleWithOperations) bool {
	wild, _ := cutResources(r)
	return len(wild) > 0 && slices.ContainsFunc(r.APIGroups, func(group string) bool {
		return group == "*" || !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
	})
}

// cutResources separates wildcards from names. "pods/*" is a name.
func cutResources(r admissionregistrationv1.RuleWithOperations) (wild, named []string) {
	for _, resource := range r.Resources {
		if name, _, _ := strings.Cut(resource, "/"); name == "*" {
			wild = append(wild, resource)
		} else {
			named = append(named, resource)
		}
	}
	return wild, named
}
