package diagnose

// This file converts rights to RBAC rules and back, and builds the objects that grant them.

import (
	"cmp"
	"context"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix/diagnosis"
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
		o := object{group: r.Group, resource: r.Resource}
		if byName(r) {
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
						rights = append(rights, diagnosis.Right{Group: group, Resource: resource, Verb: verb, Namespace: namespace, Name: name})
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

// serviceAccountPrefix begins the user name of every ServiceAccount. The namespace and the name follow.
const serviceAccountPrefix = "system:serviceaccount:"

// WhoAmI asks the API server for the caller's identity, and returns it as the subject of a binding. If the API server
// does not answer, it returns the fallback instead of an error.
func WhoAmI(ctx context.Context, reviews authenticationv1client.SelfSubjectReviewInterface, fallback rbacv1.Subject) rbacv1.Subject {
	review, err := reviews.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username == "" {
		return fallback
	}
	return SubjectOf(review.Status.UserInfo.Username)
}

// SubjectOf returns the subject of a binding for a user name.
func SubjectOf(user string) rbacv1.Subject {
	if account, ok := strings.CutPrefix(user, serviceAccountPrefix); ok {
		if namespace, name, ok := strings.Cut(account, ":"); ok {
			return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
		}
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}
}

// Objects returns the roles that grant the rights, and their bindings to the subject. It returns a Role for each
// namespace, and a ClusterRole for rights without a namespace. All have the same name.
func Objects(name string, subject rbacv1.Subject, rights []diagnosis.Right) []runtime.Object {
	byNamespace := map[string][]diagnosis.Right{}
	var namespaces []string
	for _, r := range rights {
		if _, seen := byNamespace[r.Namespace]; !seen {
			namespaces = append(namespaces, r.Namespace)
		}
		byNamespace[r.Namespace] = append(byNamespace[r.Namespace], r)
	}
	slices.Sort(namespaces)
	slices.Reverse(namespaces) // the ClusterRole last
	var objects []runtime.Object
	for _, namespace := range namespaces {
		rules := Rules(byNamespace[namespace])
		meta, subjects := metav1.ObjectMeta{Namespace: namespace, Name: name}, []rbacv1.Subject{subject}
		if namespace == "" {
			objects = append(objects,
				&rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: meta, Rules: rules},
				&rbacv1.ClusterRoleBinding{TypeMeta: kind("ClusterRoleBinding"), ObjectMeta: meta, Subjects: subjects, RoleRef: reference("ClusterRole", name)})
			continue
		}
		objects = append(objects,
			&rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: meta, Rules: rules},
			&rbacv1.RoleBinding{TypeMeta: kind("RoleBinding"), ObjectMeta: meta, Subjects: subjects, RoleRef: reference("Role", name)})
	}
	return objects
}

// Manifest returns Objects as YAML for kubectl apply. It is empty if there are no rights.
func Manifest(name string, subject rbacv1.Subject, rights []diagnosis.Right) (string, error) {
	var documents []string
	for _, o := range Objects(name, subject, rights) {
		text, err := yaml.Marshal(o)
		if err != nil {
			return "", err
		}
		documents = append(documents, string(text))
	}
	return strings.Join(documents, "---\n"), nil
}

func kind(name string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: name}
}

func reference(kind, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}

// ServiceAccount returns the subject of a ServiceAccount.
func ServiceAccount(namespace, name string) rbacv1.Subject {
	if namespace == "" {
		namespace = corev1.NamespaceDefault
	}
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}
