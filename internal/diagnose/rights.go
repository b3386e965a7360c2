package diagnose

// This file holds the forms of a right: as an authorizer receives it, as RBAC writes it, and of the one who has it.

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/manifest"
)

// reviewed returns the right in the form that an authorizer receives. It does not know the name of an object that is
// being created, and a collection has none.
func reviewed(r diagnosis.Right) diagnosis.Right {
	if r.Verb == "create" || r.Verb == "deletecollection" {
		r.Name = ""
	}
	return r
}

func sentence(rights []diagnosis.Right) string {
	texts := make([]string, 0, len(rights))
	for _, r := range rights {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, ", ")
}

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
func Rules(rights []diagnosis.Right) []rbacv1.PolicyRule {
	type object struct{ group, resource, name string }
	granted := map[object][]string{}
	for _, r := range rights {
		o := object{r.Group, r.Resource, reviewed(r).Name}
		granted[o] = append(granted[o], r.Verb)
	}
	var rules []rbacv1.PolicyRule
	for o, vs := range granted {
		rule := rbacv1.PolicyRule{APIGroups: []string{o.group}, Resources: []string{o.resource}}
		if o.name != "" {
			everywhere := granted[object{group: o.group, resource: o.resource}]
			vs = slices.DeleteFunc(vs, func(v string) bool { return slices.Contains(everywhere, v) })
			rule.ResourceNames = []string{o.name}
		}
		if rule.Verbs = ordered(vs, compareVerbs); len(vs) > 0 {
			rules = append(rules, rule)
		}
	}
	slices.SortFunc(rules, func(a, b rbacv1.PolicyRule) int {
		return cmp.Or(slices.Compare(a.APIGroups, b.APIGroups), slices.Compare(a.Resources, b.Resources),
			slices.Compare(a.ResourceNames, b.ResourceNames), slices.CompareFunc(a.Verbs, b.Verbs, compareVerbs))
	})
	names := func(r *rbacv1.PolicyRule) *[]string { return &r.ResourceNames }
	rules = join(rules, names, func(a, b rbacv1.PolicyRule) bool {
		return len(a.ResourceNames) > 0 && len(b.ResourceNames) > 0 && slices.Equal(a.Resources, b.Resources)
	})
	resources := func(r *rbacv1.PolicyRule) *[]string { return &r.Resources }
	return join(rules, resources, func(a, b rbacv1.PolicyRule) bool {
		return slices.Equal(a.ResourceNames, b.ResourceNames)
	})
}

// join merges rules of the same group and verbs that differ in only one list. That list becomes the union.
func join(
	rules []rbacv1.PolicyRule, list func(*rbacv1.PolicyRule) *[]string, alike func(a, b rbacv1.PolicyRule) bool,
) []rbacv1.PolicyRule {
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

// ordered sorts the list and removes duplicates.
func ordered(list []string, compare func(a, b string) int) []string {
	slices.SortFunc(list, compare)
	return slices.Compact(list)
}

// RightsOf returns the rights of a grant.
func RightsOf(g manifest.Grant) (rights []diagnosis.Right) {
	for _, rule := range g.Rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						rights = append(rights, diagnosis.Right{
							Group: group, Resource: resource, Verb: verb, Namespace: g.Namespace, Name: name,
						})
					}
				}
			}
		}
	}
	return rights
}

// SubjectOf returns the subject of a binding for a user name.
func SubjectOf(user string) rbacv1.Subject {
	if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		if namespace, name, ok := strings.Cut(account, ":"); ok {
			return ServiceAccount(namespace, name)
		}
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}
}

// ServiceAccount returns the subject of a ServiceAccount.
func ServiceAccount(namespace, name string) rbacv1.Subject {
	namespace = cmp.Or(namespace, corev1.NamespaceDefault)
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}
