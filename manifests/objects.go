package manifests

// This file puts the objects together, and builds the accounts with their rights. Equal programs result in equal objects, in
// the same order.

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"code.cloudfoundry.org/eirinix/internal/rights"
	"code.cloudfoundry.org/eirinix/internal/seam"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// The labels that every object has in addition to the user's. labelComponent distinguishes serving pods from
// registering and auditing ones.
const (
	labelName      = "app.kubernetes.io/name"
	labelComponent = "app.kubernetes.io/component"
)

// description is the Kubernetes annotation for a human-readable description of an object.
const description = "kubernetes.io/description"

// program is the program to deploy. All of its defaults are resolved.
type program struct {
	Options
	seam.Deployment

	fingerprint string // part of the names of cluster-scoped objects
	ports       ports

	auditLists map[string]map[string][]string // the resources that an audit lists, by namespace and group; an empty namespace means all
	reports    []schema.GroupVersionResource  // that an audit writes
}

// ports are the ports that the program listens on, 0 for none.
type ports struct{ webhook, health, metrics int32 }

// split reports whether it is a deployment in two halves: the Deployment only serves, and a Job registers.
func (p *program) split() bool { return p.Serves && !p.Registers }

// component is one of the programs of a deployment: the serving, the registering or the auditing one.
type component struct {
	program *program
	half    rights.Half
	name    string // the name of objects that belong to this component alone
	account string
	role    string // the name of Roles, ClusterRoles and their bindings
}

func (p *program) serving() component {
	if p.split() {
		return p.component(rights.Serving)
	}
	return p.component(rights.Whole)
}

func (p *program) component(half rights.Half) component {
	c := component{program: p, half: half, name: p.Name, account: p.ServiceAccountName, role: rights.RoleName(p.fingerprint, half)}
	if half == rights.Registering || half == rights.Auditing {
		suffix := "-" + c.half.String()
		c.name, c.account = shorten(p.Name, suffix, maxCronJobName), shorten(p.ServiceAccountName, suffix, maxAccountName)
	}
	return c
}

// meta returns the metadata of an object of the component.
func (c component) meta(name, namespace string) metav1.ObjectMeta {
	labels := map[string]string{}
	maps.Copy(labels, c.program.Labels)
	labels[labelName], labels[labelComponent] = c.program.Name, c.half.String()
	return metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels, Annotations: maps.Clone(c.program.Annotations)}
}

// podLabels returns the labels of the serving pods.
func (p *program) podLabels() map[string]string { return p.serving().podMeta().Labels }

// podMeta returns the metadata of the pod template. The fingerprint label keeps the program's own pods from being sent
// to it.
func (c component) podMeta() metav1.ObjectMeta {
	m := c.meta("", "")
	m.Labels[webhookconf.FingerprintLabel] = c.program.fingerprint
	return m
}

// selector returns the selector of the component's pods. It never changes, because a Deployment's selector is
// immutable.
func (c component) selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{
		webhookconf.FingerprintLabel: c.program.fingerprint,
		labelComponent:               c.half.String(),
	}}
}

// annotate adds an annotation of the library to the user's annotations.
func annotate(m metav1.ObjectMeta, key, value string) metav1.ObjectMeta {
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[key] = value
	return m
}

func describe(m metav1.ObjectMeta, sentence string) metav1.ObjectMeta {
	return annotate(m, description, sentence)
}

// objects returns all objects in the order in which they must be applied: rights before the objects that use them. They
// share no memory with each other or with p.
func (p *program) objects() []client.Object {
	shared := p.shared()
	objects := make([]client.Object, 0, len(shared))
	for _, o := range shared {
		if own, ok := o.DeepCopyObject().(client.Object); ok {
			kind, _ := apiutil.GVKForObject(own, scheme.Scheme) // all of them have one
			own.GetObjectKind().SetGroupVersionKind(kind)
			objects = append(objects, own)
		}
	}
	return objects
}

// shared returns the objects without their kinds.
func (p *program) shared() []client.Object {
	serving := p.serving()
	objects := serving.rights()
	if p.split() {
		objects = append(objects, p.component(rights.Registering).rights()...)
	}
	if p.AuditSchedule != "" {
		objects = append(objects, p.component(rights.Auditing).rights()...)
	}
	objects = append(objects, serving.readers()...)
	if p.Service != "" {
		objects = append(objects, serving.service())
	}
	objects = append(objects, serving.networkPolicy())
	if p.Replicas > 1 { // with a single pod, the budget would never allow a node to be drained
		objects = append(objects, serving.disruptionBudget())
	}
	if p.split() {
		register := p.component(rights.Registering)
		objects = append(objects, register.job(), register.cronJob())
	}
	if p.AuditSchedule != "" {
		objects = append(objects, p.component(rights.Auditing).auditJob())
	}
	objects = append(objects, serving.deployment())
	if p.PodMonitor {
		objects = append(objects, serving.podMonitor())
	}
	return objects
}

// rights returns the component's account, roles and bindings.
func (c component) rights() []client.Object {
	p := c.program
	account := &corev1.ServiceAccount{
		ObjectMeta: c.meta(c.account, p.Namespace),
		// Pods that need a token request it in their spec.
		AutomountServiceAccountToken: new(false),
	}
	if p.Reconciles && c.half != rights.Registering {
		account.ObjectMeta = describe(account.ObjectMeta, "The program's reconcilers need rights of their own: bind them to this ServiceAccount.")
	}
	objects, subject := []client.Object{account}, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: c.account, Namespace: p.Namespace}
	grants := p.Rights.Grants(c.half, p.Namespace)
	if c.half == rights.Auditing {
		grants = p.auditGrants()
	}
	for _, g := range grants {
		objects = append(objects, rights.Bind(c.meta(c.role, g.Namespace), subject, g.Rules)...)
	}
	return objects
}

// auditGrants returns exactly the rights that an audit needs.
func (p *program) auditGrants() []rights.Grant {
	all := rights.Set{}
	for namespace, lists := range p.auditLists {
		for group, resources := range lists {
			all.Add(namespace, group, strings.Join(resources, ","), nil, "list")
		}
	}
	p.Rights.AddReads(all)
	if p.Rights.Modes != "" {
		all.Add(p.Namespace, "", "configmaps", []string{p.Rights.Modes}, "get")
	}
	if len(p.Rights.CRDs) > 0 {
		all.Add("", webhookconf.CRD.Group, webhookconf.CRD.Resource, p.Rights.CRDs, "get")
	}
	// Selectors of namespaces are about their labels. An audit of one namespace gets that alone.
	all.Add("", "", "namespaces", nil, "get", "list")
	for _, reports := range p.reports {
		all.Add("", reports.Group, reports.Resource, nil, "list", "create", "patch", "delete")
	}
	return all.List(p.Namespace)
}

const (
	maxJobName     = 63  // it becomes the value of a label of the Job's pods
	maxCronJobName = 52  // the controller appends eleven characters to form a Job's name
	maxAccountName = 253 // a DNS subdomain

	hashLength = 8

	registerInfix = "-register-" // of the Job that registers, before its hash
)

// shorten returns name with suffix appended. If that is longer than most, the end of name is replaced with a hash of
// name.
func shorten(name, suffix string, most int) string {
	if len(name)+len(suffix) <= most {
		return name + suffix
	}
	kept := strings.TrimRight(name[:most-len(suffix)-hashLength-1], "-.")
	return kept + "-" + hash(name) + suffix
}

func hash(of string) string {
	sum := sha256.Sum256([]byte(of))
	return hex.EncodeToString(sum[:])[:hashLength]
}
