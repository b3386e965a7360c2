package manifest

// This file derives the RBAC rights of the program.

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
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

// grants holds rules by namespace.
type grants map[string][]rbacv1.PolicyRule

func (all grants) add(namespace string, rules ...rbacv1.PolicyRule) {
	all[namespace] = append(all[namespace], rules...)
}

// list returns each namespace once, the given one first and the cluster last.
func (all grants) list(first string) (list []Grant) {
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(namespace string) bool { return namespace == first || namespace == "" })
	for _, namespace := range slices.Concat([]string{first}, others, []string{""}) {
		if rules := minimal(all[namespace]); len(rules) > 0 {
			list = append(list, Grant{namespace, rules})
		}
	}
	return list
}

// minimal returns rules with the same rights, each of which they hold once. They and their order depend on the rights
// alone. A rule about namespaces comes first, because docs/gitops.md names its place.
func minimal(rules []rbacv1.PolicyRule) (all []rbacv1.PolicyRule) {
	type right [5]string // what sorts namespaces first, the group, the resource, the name or "" for all, and the verb
	rights := map[right]bool{}
	for _, r := range rules {
		names := r.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, resource := range r.Resources {
			for _, name := range names {
				for _, verb := range r.Verbs {
					rights[right{strconv.FormatBool(resource != "namespaces"), r.APIGroups[0], resource, name, verb}] = true
				}
			}
		}
	}
	for _, r := range slices.SortedFunc(maps.Keys(rights), func(a, b right) int { return slices.Compare(a[:], b[:]) }) {
		switch one := rule(r[1], r[2], nil, r[4]); {
		case r[3] == "":
			all = append(all, one)
		case !rights[right{r[0], r[1], r[2], "", r[4]}]: // the right on all of them holds for each
			one.ResourceNames = []string{r[3]}
			all = append(all, one)
		}
	}
	all = joined(all, func(r *rbacv1.PolicyRule) *[]string { return &r.Verbs })
	all = joined(all, func(r *rbacv1.PolicyRule) *[]string { return &r.ResourceNames })
	return joined(all, func(r *rbacv1.PolicyRule) *[]string { return &r.Resources })
}

// joined returns one rule for those that differ in a field alone.
func joined(rules []rbacv1.PolicyRule, field func(*rbacv1.PolicyRule) *[]string) (all []rbacv1.PolicyRule) {
	for _, r := range rules {
		i := slices.IndexFunc(all, func(other rbacv1.PolicyRule) bool {
			*field(&other) = *field(&r)
			return reflect.DeepEqual(other, r)
		})
		if i < 0 {
			all = append(all, r)
			continue
		}
		*field(&all[i]) = append(*field(&all[i]), *field(&r)...)
	}
	return all
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
	all := grants{secretNamespace: own}
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
	return all.list(secretNamespace)
}

// reads adds the rights on the objects that steps look at.
func (r Rights) reads(add func(namespace string, rules ...rbacv1.PolicyRule)) {
	for _, read := range r.Reads {
		one := rule(read.Group, read.Resource, nil, "get", "list", "watch")
		if read.Name != "" {
			one.ResourceNames = []string{read.Name}
		}
		add(read.Namespace, one)
	}
}

// audits returns the rights of an audit.
func (r Rights) audits(secretNamespace string) []Grant {
	all := grants{}
	for namespace, lists := range r.Lists {
		for group, resources := range lists {
			all.add(namespace, rule(group, strings.Join(resources, ","), nil, "list"))
		}
	}
	r.reads(all.add)
	if r.Modes != "" {
		all.add(secretNamespace, rule("", "configmaps", []string{r.Modes}, "get"))
	}
	// Selectors of namespaces are about their labels. An audit of one namespace gets that alone.
	all.add("", rule("", "namespaces", nil, "get", "list"))
	for group, resources := range r.Reports {
		all.add("", rule(group, strings.Join(resources, ","), nil, "list", "create", "patch", "delete"))
	}
	return all.list(secretNamespace)
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
