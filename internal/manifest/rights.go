package manifest

// This file derives the RBAC rights of the program.

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Half is the part of a deployment that the rights are for.
type Half int

// The halves of a deployment.
const (
	Whole       Half = iota // registers and serves
	Serving                 // serves the entries that another process has registered
	Registering             // registers once and exits
	Auditing                // audits the objects that exist, and exits
)

// Rights holds everything that determines which rights a program needs.
type Rights struct {
	Secret         string          // the certificate Secret; empty for a program without steps, or with another source of certificates
	Versions       string          // the Lease that holds the live versions; empty for a program without steps
	Source         SourceRights    // of certificates that the program does not issue itself
	MakesSecret    bool            // false if another process makes the Secret
	Configurations []Configuration // the webhook configurations that hold steps
	CRDs           []string        // the CustomResourceDefinitions whose objects are converted
	Modes          string          // the ConfigMap with the modes of steps; empty for none
	Unregisters    bool            // deletes the configurations when it stops
	Watches        bool            // watches pods in WatchNamespace, or in all namespaces if that is empty
	WatchNamespace string
	Reads          []Read               // the objects that steps look at
	Reviews        bool                 // creates TokenReviews and SubjectAccessReviews for readers of the metrics
	ClientCA       types.NamespacedName // the ConfigMap with the CAs of clients; zero for none

	// Lists holds the resources that an audit lists, by namespace and group. An empty namespace means all.
	Lists   map[string]map[string][]string
	Reports map[string][]string // the resources of the reports that it writes, by group
}

// Read holds objects that steps look at. An empty namespace means all, and an empty name all names.
type Read struct{ Group, Resource, Namespace, Name string }

// SourceRights describes a source of certificates that the program does not issue itself.
type SourceRights struct {
	SecretNamespace, Secret string // the Secret that an issuer maintains
	Requests                bool   // creates CertificateSigningRequests
}

// Configuration is a webhook configuration: its resource name, as RBAC uses it, and its name.
type Configuration struct{ Resource, Name string }

// Grant holds the rules for one namespace, or for the cluster if Namespace is empty.
type Grant struct {
	Namespace string
	Rules     []rbacv1.PolicyRule
}

// grants holds each namespace once.
type grants []Grant

func (all *grants) add(namespace string, rules ...rbacv1.PolicyRule) {
	i := slices.IndexFunc(*all, func(g Grant) bool { return g.Namespace == namespace })
	if i < 0 {
		*all = append(*all, Grant{Namespace: namespace, Rules: rules})
		return
	}
	(*all)[i].Rules = append((*all)[i].Rules, rules...)
}

// Grants returns exactly the rights that a half needs. Each namespace appears once, the Secret's first and the cluster
// last.
func (r Rights) Grants(half Half, secretNamespace string) []Grant {
	if half == Auditing {
		return r.audits(secretNamespace)
	}
	own := r.own(half)
	if half == Whole && len(r.Configurations) > 0 {
		// The program creates a ConfigMap in a dry run to find out whether the API server calls it.
		own = append(own, rule("", "configmaps", nil, "create"))
	}
	all := grants{{Namespace: secretNamespace, Rules: own}}
	add := all.add
	pods := rule("", "pods", nil, "list", "watch")
	if r.Source.Secret != "" {
		verbs := []string{"get"} // it reads the Secret once
		if half != Registering {
			verbs = []string{"list", "watch"}
		}
		add(r.Source.SecretNamespace, rule("", "secrets", []string{r.Source.Secret}, verbs...))
	}
	if half != Registering {
		if r.ClientCA.Name != "" {
			add(r.ClientCA.Namespace, rule("", "configmaps", []string{r.ClientCA.Name}, "get", "list", "watch"))
		}
		if r.Watches && r.WatchNamespace != "" {
			add(r.WatchNamespace, pods)
		}
		r.reads(add)
	}
	if half != Serving && len(r.Configurations)+len(r.CRDs) > 0 {
		// The namespace owns the configurations, so that they are deleted with it.
		add("", rule("", "namespaces", []string{secretNamespace}, "get"))
	}
	if half != Registering && r.Modes != "" {
		// An entry can select namespaces by their labels.
		add("", rule("", "namespaces", nil, "get", "list", "watch"))
	}
	add("", r.configurations(half)...)
	if half != Registering && r.Watches && r.WatchNamespace == "" {
		add("", pods)
	}
	if half != Registering && r.Source.Requests {
		// Their names are generated when they are needed.
		add("", rule("certificates.k8s.io", "certificatesigningrequests", nil, "create", "list", "watch"))
	}
	if half != Registering && r.Reviews {
		add("", rule("authentication.k8s.io", "tokenreviews", nil, "create"), rule("authorization.k8s.io", "subjectaccessreviews", nil, "create"))
	}
	return slices.DeleteFunc(all, func(g Grant) bool { return len(g.Rules) == 0 })
}

// reads adds the rights on the objects that steps look at, those in all namespaces last.
func (r Rights) reads(add func(namespace string, rules ...rbacv1.PolicyRule)) {
	for _, everywhere := range []bool{false, true} {
		for i, read := range r.Reads {
			same := func(other Read) bool {
				return other.Namespace == read.Namespace && other.Group == read.Group && other.Resource == read.Resource
			}
			if (read.Namespace == "") != everywhere || slices.ContainsFunc(r.Reads[:i], same) {
				continue
			}
			var names []string
			for _, other := range r.Reads[i:] {
				if same(other) {
					names = append(names, other.Name)
				}
			}
			if slices.Sort(names); names[0] == "" { // with all of them, names add nothing
				names = nil
			}
			add(read.Namespace, rule(read.Group, read.Resource, slices.Compact(names), "get", "list", "watch"))
		}
	}
}

// audits returns the rights of an audit. The cluster's are last.
func (r Rights) audits(secretNamespace string) (all grants) {
	for namespace, lists := range r.Lists {
		for _, group := range slices.Sorted(maps.Keys(lists)) {
			all.add(namespace, rule(group, strings.Join(lists[group], ","), nil, "list"))
		}
	}
	r.reads(all.add)
	if r.Modes != "" {
		all.add(secretNamespace, rule("", "configmaps", []string{r.Modes}, "get"))
	}
	// Selectors of namespaces are about their labels. An audit of one namespace gets that alone.
	all.add("", rule("", "namespaces", nil, "get", "list"))
	for _, group := range slices.Sorted(maps.Keys(r.Reports)) {
		all.add("", rule(group, strings.Join(r.Reports[group], ","), nil, "list", "create", "patch", "delete"))
	}
	slices.SortFunc(all, func(a, b Grant) int {
		if a.Namespace == "" || b.Namespace == "" {
			return strings.Compare(b.Namespace, a.Namespace)
		}
		return strings.Compare(a.Namespace, b.Namespace)
	})
	return all
}

// own returns the rights in the program's own namespace: on the Secret, on the Lease, and to write Events.
func (r Rights) own(half Half) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	if r.Secret != "" {
		rules = append(rules, shared(half, "", "secrets", r.Secret, r.MakesSecret)...)
	}
	if r.Versions != "" {
		rules = append(rules, shared(half, "coordination.k8s.io", "leases", r.Versions, true)...)
	}
	if r.Modes != "" {
		rules = append(rules, rule("", "configmaps", []string{r.Modes}, follow(half)...))
	}
	if half != Serving && len(rules) > 0 {
		// A recurring Event is patched.
		rules = append(rules, rule("events.k8s.io", "events", nil, "create", "patch"))
	}
	return rules
}

// shared returns the rights on one object that replicas share. The serving half never writes it.
func shared(half Half, group, resource, name string, makes bool) []rbacv1.PolicyRule {
	if half == Serving {
		return []rbacv1.PolicyRule{rule(group, resource, []string{name}, follow(half)...)}
	}
	var rules []rbacv1.PolicyRule
	if makes {
		rules = append(rules, rule(group, resource, nil, "create")) // RBAC cannot restrict create to a name
	}
	return append(rules, rule(group, resource, []string{name}, follow(half, "update")...))
}

func (r Rights) configurations(half Half) []rbacv1.PolicyRule {
	if half == Serving {
		return nil
	}
	var rules []rbacv1.PolicyRule
	for _, c := range r.Configurations {
		verbs := follow(half, "update")
		if r.Unregisters && half == Whole {
			verbs = append(verbs, "delete")
		}
		rules = append(rules,
			rule("admissionregistration.k8s.io", c.Resource, nil, "create"),
			rule("admissionregistration.k8s.io", c.Resource, []string{c.Name}, verbs...))
	}
	if len(r.CRDs) > 0 {
		rules = append(rules, rule(webhookconf.CRD.Group, webhookconf.CRD.Resource, r.CRDs, follow(half, "patch")...))
	}
	return rules
}

// follow returns the verbs for an existing object, and those that write it. A process that keeps running watches the object.
func follow(half Half, writes ...string) []string {
	if half == Registering {
		return append([]string{"get"}, writes...)
	}
	return append([]string{"get", "list", "watch"}, writes...)
}

// rule returns a rule for one resource, or for several that are separated by commas.
func rule(group, resource string, names []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: strings.Split(resource, ","), ResourceNames: names, Verbs: verbs}
}

// rights returns the component's account, roles and bindings.
func (c component) rights() []client.Object {
	p := c.program
	account := &corev1.ServiceAccount{
		ObjectMeta: c.meta(c.account, p.Namespace),
		// Pods that need a token request it in their spec.
		AutomountServiceAccountToken: new(false),
	}
	if p.Reconciles && c.half != Registering {
		account.ObjectMeta = describe(account.ObjectMeta, "The program's reconcilers need rights of their own: bind them to this ServiceAccount.")
	}
	objects, subject := []client.Object{account}, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: c.account, Namespace: p.Namespace}
	for _, g := range p.Rights.Grants(c.half, p.Namespace) {
		objects = append(objects, Bind(c.meta(c.role, g.Namespace), subject, g.Rules)...)
	}
	return objects
}

// Bind returns a role with the rules and its binding to the subject. Both have the metadata. In a namespace the role is
// a Role, otherwise a ClusterRole.
func Bind(meta metav1.ObjectMeta, subject rbacv1.Subject, rules []rbacv1.PolicyRule) []client.Object {
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}
	subjects, again := []rbacv1.Subject{subject}, *meta.DeepCopy()
	if meta.Namespace == "" {
		role.Kind = "ClusterRole"
		return []client.Object{
			&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules},
			&rbacv1.ClusterRoleBinding{ObjectMeta: again, Subjects: subjects, RoleRef: role},
		}
	}
	return []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{ObjectMeta: again, Subjects: subjects, RoleRef: role},
	}
}
