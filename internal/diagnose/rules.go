package diagnose

// This file converts rights to RBAC rules, and back.

import (
	"cmp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// verbs is the conventional order of verbs.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

func compareVerbs(a, b string) int {
	place := func(v string) int {
		if i := slices.Index(verbs, v); i >= 0 {
			return i
		}
		return len(verbs)
	}
	return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a, b))
}

// Rules returns the fewest readable RBAC rules for the rights, whatever their namespaces. No rule grants more than the
// rights together, except that RBAC cannot restrict creation by name.
func Rules(rights []Right) []rbacv1.PolicyRule {
	type object struct{ group, resource, name string }
	granted := map[object][]string{}
	for _, r := range rights {
		o := object{group: r.Group, resource: r.resource()}
		if r.byName() {
			o.name = r.Name
		}
		granted[o] = append(granted[o], r.Verb)
	}
	var rules []rbacv1.PolicyRule
	for o, vs := range granted {
		if o.name != "" {
			everywhere := granted[object{group: o.group, resource: o.resource}]
			vs = slices.DeleteFunc(vs, func(v string) bool { return slices.Contains(everywhere, v) })
		}
		if len(vs) == 0 {
			continue
		}
		rule := rbacv1.PolicyRule{APIGroups: []string{o.group}, Resources: []string{o.resource}, Verbs: ordered(vs, compareVerbs)}
		if o.name != "" {
			rule.ResourceNames = []string{o.name}
		}
		rules = append(rules, rule)
	}
	slices.SortFunc(rules, compareRules)
	rules = join(rules, func(r *rbacv1.PolicyRule) *[]string { return &r.ResourceNames }, func(a, b rbacv1.PolicyRule) bool {
		return len(a.ResourceNames) > 0 && len(b.ResourceNames) > 0 && slices.Equal(a.Resources, b.Resources)
	})
	return join(rules, func(r *rbacv1.PolicyRule) *[]string { return &r.Resources }, func(a, b rbacv1.PolicyRule) bool {
		return slices.Equal(a.ResourceNames, b.ResourceNames)
	})
}

// RightsOf returns the rights that rules grant in a namespace, or in the cluster if namespace is empty. It is the
// inverse of Rules. It ignores rules for paths.
func RightsOf(namespace string, rules []rbacv1.PolicyRule) []Right {
	var rights []Right
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				resource, subresource, _ := strings.Cut(resource, "/")
				for _, name := range names {
					for _, verb := range rule.Verbs {
						rights = append(rights, Right{Group: group, Resource: resource, Subresource: subresource, Verb: verb, Namespace: namespace, Name: name})
					}
				}
			}
		}
	}
	return rights
}

// join merges rules of the same group and verbs that differ in only one list. That list becomes the union.
func join(rules []rbacv1.PolicyRule, list func(*rbacv1.PolicyRule) *[]string, alike func(a, b rbacv1.PolicyRule) bool) []rbacv1.PolicyRule {
	var joined []rbacv1.PolicyRule
	for _, r := range rules {
		at := slices.IndexFunc(joined, func(j rbacv1.PolicyRule) bool {
			return slices.Equal(j.APIGroups, r.APIGroups) && slices.Equal(j.Verbs, r.Verbs) && alike(j, r)
		})
		if at < 0 {
			joined = append(joined, r)
			continue
		}
		into := list(&joined[at])
		*into = ordered(append(*into, *list(&r)...), strings.Compare)
	}
	return joined
}

func compareRules(a, b rbacv1.PolicyRule) int {
	return cmp.Or(slices.Compare(a.APIGroups, b.APIGroups), slices.Compare(a.Resources, b.Resources),
		slices.Compare(a.ResourceNames, b.ResourceNames), slices.CompareFunc(a.Verbs, b.Verbs, compareVerbs))
}

// ordered sorts the list and removes duplicates.
func ordered(list []string, compare func(a, b string) int) []string {
	slices.SortFunc(list, compare)
	return slices.Compact(list)
}
