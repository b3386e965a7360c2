// Package rights derives the RBAC rights of a program, and the rules that grant them.
package rights

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/list"
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

// String returns the name of a half's program. It is part of selectors, so it does not depend on the program's steps.
func (h Half) String() string { return [...]string{"webhook", "webhook", "register", "audit"}[h] }

// RoleName returns the name of a half's Roles, ClusterRoles and their bindings.
func RoleName(fingerprint string, half Half) string {
	name := "eirinix:" + fingerprint
	if half == Registering || half == Auditing {
		name += ":" + half.String()
	}
	return name
}

// Rights holds everything that determines which rights a program needs.
type Rights struct {
	Secret         string          // the certificate Secret; empty for a program without steps, or with another source of certificates
	Keys           string          // the Secret with the keys of conversions; empty for none
	Versions       string          // the Lease that holds the live versions; empty for a program without steps
	Source         SourceRights    // of certificates that the program does not issue itself
	MakesSecret    bool            // false if another process makes the Secret
	Configurations []Configuration // the webhook configurations that hold steps, now or before
	CRDs           []string        // the CustomResourceDefinitions whose objects are converted
	Modes          string          // the ConfigMap with the modes of steps; empty for none
	Unregisters    bool            // deletes the configurations when it stops
	Watches        bool            // watches pods in WatchNamespace, or in all namespaces if that is empty
	WatchNamespace string
	Reads          []Read               // the objects that steps look at
	Reviews        bool                 // creates TokenReviews and SubjectAccessReviews for readers of the metrics
	ClientCA       types.NamespacedName // the ConfigMap with the CAs of clients; zero for none
}

// Read holds objects that steps look at. An empty namespace means all, and an empty name all names.
type Read struct{ Group, Resource, Namespace, Name string }

// SourceRights describes a source of certificates that the program does not issue itself.
type SourceRights struct {
	SecretNamespace, Secret string // the Secret that an issuer maintains
	Requests                bool   // creates CertificateSigningRequests
}

// Configuration is a webhook configuration: its resource name, as RBAC uses it, and its name. One that was left holds no step
// of this version, but may hold those of an earlier one, which are kept working and then removed.
type Configuration struct {
	Resource, Name string
	Left           bool
}

// Grant holds the rights in one namespace, or in the cluster if Namespace is empty, and the rules that grant them.
type Grant struct {
	Namespace string
	Rights    []diagnosis.Right
	Rules     []rbacv1.PolicyRule
}

// Set holds each right once.
type Set map[diagnosis.Right]bool

// Add adds the rights on one resource, or on several that are separated by commas. Without names they are on all objects.
func (all Set) Add(namespace, group, resources string, names []string, verbs ...string) {
	if len(names) == 0 {
		names = []string{""}
	}
	for resource := range strings.SplitSeq(resources, ",") {
		for _, name := range names {
			for _, verb := range verbs {
				all[diagnosis.Right{Group: group, Resource: resource, Verb: verb, Namespace: namespace, Name: name}] = true
			}
		}
	}
}

// List returns each namespace once, the given one first and the cluster last. The rules and their order depend on the
// rights alone. A rule about namespaces comes first, because docs/gitops.md names its place.
func (all Set) List(first string) (list []Grant) {
	order := func(r diagnosis.Right) []string {
		yes := strconv.FormatBool
		return []string{yes(r.Namespace != first), yes(r.Namespace == ""), r.Namespace, yes(r.Resource != "namespaces"), r.Group, r.Resource, r.Name, r.Verb}
	}
	for _, r := range slices.SortedFunc(maps.Keys(all), func(a, b diagnosis.Right) int { return slices.Compare(order(a), order(b)) }) {
		every, rule := r, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: []string{r.Verb}}
		if every.Name = ""; r.Name != "" {
			if all[every] {
				continue
			}
			rule.ResourceNames = []string{r.Name}
		}
		if n := len(list); n == 0 || list[n-1].Namespace != r.Namespace {
			list = append(list, Grant{Namespace: r.Namespace})
		}
		g := &list[len(list)-1]
		g.Rights, g.Rules = append(g.Rights, r), append(g.Rules, rule)
	}
	for i, g := range list {
		rules := joined(g.Rules, func(r *rbacv1.PolicyRule) *[]string { return &r.Verbs })
		rules = joined(rules, func(r *rbacv1.PolicyRule) *[]string { return &r.ResourceNames })
		list[i].Rules = joined(rules, func(r *rbacv1.PolicyRule) *[]string { return &r.Resources })
	}
	return list
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

// Grants returns exactly the rights that a half needs, except those of an audit, which package manifests adds. Each namespace appears once, the program's own first and the
// cluster last.
func (r Rights) Grants(half Half, own string) []Grant {
	all, follow := Set{}, []string{"get", "list", "watch"}
	if half == Registering {
		follow = follow[:1:1] // it reads once
	}
	share := func(group, resource, name string, makes bool) { // what replicas share, which the serving half never writes
		if name == "" {
			return
		}
		all.Add(own, group, resource, []string{name}, follow...)
		if half != Serving {
			all.Add(own, group, resource, []string{name}, "update")
		}
		if half != Serving && makes {
			all.Add(own, group, resource, nil, "create") // RBAC cannot restrict create to a name
		}
	}
	share("", "secrets", r.Secret, r.MakesSecret)
	share("coordination.k8s.io", "leases", r.Versions, true)
	if r.Keys != "" {
		all.Add(own, "", "secrets", []string{r.Keys}, "get")
	}
	if r.Keys != "" && half != Serving {
		all.Add(own, "", "secrets", nil, "create")
	}
	if r.Modes != "" {
		all.Add(own, "", "configmaps", []string{r.Modes}, follow...)
	}
	if half != Serving {
		r.registers(all, half, own, follow)
	}
	if half == Registering {
		if r.Source.Secret != "" {
			all.Add(r.Source.SecretNamespace, "", "secrets", []string{r.Source.Secret}, "get")
		}
		return all.List(own)
	}
	if r.Source.Secret != "" {
		all.Add(r.Source.SecretNamespace, "", "secrets", []string{r.Source.Secret}, "list", "watch")
	}
	if r.ClientCA.Name != "" {
		all.Add(r.ClientCA.Namespace, "", "configmaps", []string{r.ClientCA.Name}, follow...)
	}
	if r.Watches {
		all.Add(r.WatchNamespace, "", "pods", nil, "list", "watch")
	}
	r.AddReads(all)
	if r.Modes != "" {
		all.Add("", "", "namespaces", nil, follow...) // an entry can select namespaces by their labels
	}
	if r.Source.Requests {
		all.Add("", "certificates.k8s.io", "certificatesigningrequests", nil, "create", "list", "watch") // under generated names
	}
	if r.Reviews {
		all.Add("", "authentication.k8s.io", "tokenreviews", nil, "create")
		all.Add("", "authorization.k8s.io", "subjectaccessreviews", nil, "create")
	}
	return all.List(own)
}

// registers adds the rights of a half that registers, to those on what it shares.
func (r Rights) registers(all Set, half Half, own string, follow []string) {
	if len(all) > 0 {
		all.Add(own, "events.k8s.io", "events", nil, "create", "patch") // a recurring Event is patched
	}
	for _, c := range r.Configurations {
		if !c.Left {
			all.Add("", "admissionregistration.k8s.io", c.Resource, nil, "create")
		}
		all.Add("", "admissionregistration.k8s.io", c.Resource, []string{c.Name}, append(follow, "update")...)
		if half == Whole && !c.Left {
			// The program creates a ConfigMap in a dry run to find out whether the API server calls it.
			all.Add(own, "", "configmaps", nil, "create")
		}
		if half == Whole && r.Unregisters {
			all.Add("", "admissionregistration.k8s.io", c.Resource, []string{c.Name}, "delete")
		}
	}
	if len(r.CRDs) > 0 {
		all.Add("", webhookconf.CRD.Group, webhookconf.CRD.Resource, r.CRDs, append(follow, "patch")...)
	}
	if len(r.Configurations)+len(r.CRDs) > 0 {
		// The namespace owns the configurations, so that they are deleted with it.
		all.Add("", "", "namespaces", []string{own}, "get")
	}
}

// AddReads adds the rights on the objects that steps look at.
func (r Rights) AddReads(all Set) {
	for _, read := range r.Reads {
		all.Add(read.Namespace, read.Group, read.Resource, []string{read.Name}, "get", "list", "watch")
	}
}

// Bind returns a role with the rules and its binding to the subject. Both have the metadata. In a namespace the role is
// a Role, otherwise a ClusterRole.
func Bind(meta metav1.ObjectMeta, subject rbacv1.Subject, rules []rbacv1.PolicyRule) []client.Object {
	of := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}
	subjects, again := []rbacv1.Subject{subject}, *meta.DeepCopy()
	if meta.Namespace == "" {
		role.Kind = "ClusterRole"
		return []client.Object{
			&rbacv1.ClusterRole{TypeMeta: of(role.Kind), ObjectMeta: meta, Rules: rules},
			&rbacv1.ClusterRoleBinding{TypeMeta: of("ClusterRoleBinding"), ObjectMeta: again, Subjects: subjects, RoleRef: role},
		}
	}
	return []client.Object{
		&rbacv1.Role{TypeMeta: of(role.Kind), ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{TypeMeta: of("RoleBinding"), ObjectMeta: again, Subjects: subjects, RoleRef: role},
	}
}

// YAML returns what Bind returns as a YAML stream.
func YAML(objects []client.Object) string {
	return strings.Join(list.Of(objects, func(object client.Object) string {
		text, _ := yaml.Marshal(object) // every role and binding can be written
		return string(text)
	}), "---\n")
}
