package diagnose

// This file converts rights to RBAC rules and back, and builds the objects that grant them.

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/manifest"
)

// reviewed returns the right in the form that an authorizer receives.
func reviewed(r diagnosis.Right) diagnosis.Right {
	if !byName(r) {
		r.Name = ""
	}
	return r
}

// byName reports whether RBAC can grant the right for a single object. The authorizer does not know the name of an
// object that is being created, and a collection has none.
func byName(r diagnosis.Right) bool {
	return r.Name != "" && r.Verb != "create" && r.Verb != "deletecollection"
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

// RightsOf returns the rights that rules grant in a namespace, or in the cluster if namespace is empty. It is the
// inverse of Rules. It ignores rules for paths.
func RightsOf(namespace string, rules []rbacv1.PolicyRule) []diagnosis.Right {
	var rights []diagnosis.Right
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						rights = append(rights, diagnosis.Right{
							Group: group, Resource: resource, Verb: verb, Namespace: namespace, Name: name,
						})
					}
				}
			}
		}
	}
	return rights
}

// Objects returns the roles that grant the rights, and their bindings to the subject. It returns a Role for each
// namespace, and a ClusterRole for rights without a namespace. All have the same name.
func Objects(name string, subject rbacv1.Subject, rights []diagnosis.Right) (objects []client.Object) {
	byNamespace := map[string][]diagnosis.Right{}
	var namespaces []string
	for _, r := range rights {
		byNamespace[r.Namespace] = append(byNamespace[r.Namespace], r)
		namespaces = append(namespaces, r.Namespace)
	}
	backwards := func(a, b string) int { return strings.Compare(b, a) } // the ClusterRole comes last
	for _, namespace := range ordered(namespaces, backwards) {
		meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
		objects = append(objects, manifest.Bind(meta, subject, Rules(byNamespace[namespace]))...)
	}
	return objects
}

// Manifest returns Objects as YAML for kubectl apply. It is empty if there are no rights.
func Manifest(name string, subject rbacv1.Subject, rights []diagnosis.Right) (string, error) {
	var text strings.Builder
	err := manifest.Write(&text, nil, Objects(name, subject, rights)...)
	return text.String(), err
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
