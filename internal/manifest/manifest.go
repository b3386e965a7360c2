// Package manifest builds the objects with which a program runs in a cluster: its rights, its Service and its workload.
// It is pure: equal programs result in equal objects, in the same order.
package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// The labels that every object has in addition to the user's. LabelComponent distinguishes serving pods from
// registering and auditing ones.
const (
	LabelName      = "app.kubernetes.io/name"
	LabelComponent = "app.kubernetes.io/component"
)

// description is the Kubernetes annotation for a human-readable description of an object.
const description = "kubernetes.io/description"

// Program is the program to deploy. All of its defaults are resolved.
type Program struct {
	Options

	Namespace   string // of all namespaced objects, and of the certificate Secret
	Fingerprint string // part of the names of cluster-scoped objects
	GracePeriod int64  // seconds from SIGTERM to SIGKILL

	Service     string // the name of the Service; empty for none
	ServicePort int32
	Ports       Ports
	Rights      Rights

	// Split selects a deployment in two halves: the Deployment only serves, and a Job registers.
	Split bool
	// Reconciles means that the program has reconcilers, which use the API on their own.
	Reconciles bool
}

// Ports are the ports that the program listens on, 0 for none.
type Ports struct{ Webhook, Health, Metrics int32 }

// component is one of the programs of a deployment: the serving, the registering or the auditing one.
type component struct {
	program *Program
	half    Half
	name    string // the name of objects that belong to this component alone
	account string
	role    string // the name of Roles, ClusterRoles and their bindings
}

func (p *Program) serving() component {
	if p.Split {
		return p.component(Serving)
	}
	return p.component(Whole)
}

func (p *Program) component(half Half) component {
	c := component{program: p, half: half, name: p.Name, account: p.ServiceAccountName, role: RoleName(p.Fingerprint, half)}
	if half == Registering || half == Auditing {
		suffix := "-" + c.label()
		c.name, c.account = Shorten(p.Name, suffix, maxCronJobName), Shorten(p.ServiceAccountName, suffix, maxAccountName)
	}
	return c
}

// RoleName returns the name of a half's Roles, ClusterRoles and their bindings.
func RoleName(fingerprint string, half Half) string {
	name := "eirinix:" + fingerprint
	if half == Registering || half == Auditing {
		name += ":" + component{half: half}.label()
	}
	return name
}

// label returns the value of LabelComponent. It is part of selectors, so it does not depend on the program's steps.
func (c component) label() string {
	switch c.half {
	case Registering:
		return "register"
	case Auditing:
		return "audit"
	}
	return "webhook"
}

// meta returns the metadata of an object of the component.
func (c component) meta(name, namespace string) metav1.ObjectMeta {
	labels := map[string]string{}
	maps.Copy(labels, c.program.Labels)
	labels[LabelName], labels[LabelComponent] = c.program.Name, c.label()
	return metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels, Annotations: maps.Clone(c.program.Annotations)}
}

// PodLabels returns the labels of the serving pods.
func (p *Program) PodLabels() map[string]string { return p.serving().podMeta().Labels }

// podMeta returns the metadata of the pod template. The fingerprint label keeps the program's own pods from being sent
// to it.
func (c component) podMeta() metav1.ObjectMeta {
	m := c.meta("", "")
	m.Labels[webhookconf.FingerprintLabel] = c.program.Fingerprint
	return m
}

// selector returns the selector of the component's pods. It never changes, because a Deployment's selector is
// immutable.
func (c component) selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{
		webhookconf.FingerprintLabel: c.program.Fingerprint,
		LabelComponent:               c.label(),
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

// Objects returns all objects in the order in which they must be applied: rights before the objects that use them. The
// objects share no memory with each other or with p.
func Objects(p Program) []client.Object {
	shared := p.objects()
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

func (p *Program) objects() []client.Object {
	serving := p.serving()
	objects := serving.rights()
	if p.Split {
		objects = append(objects, p.component(Registering).rights()...)
	}
	if p.AuditSchedule != "" {
		objects = append(objects, p.component(Auditing).rights()...)
	}
	objects = append(objects, serving.readers()...)
	if p.Service != "" {
		objects = append(objects, serving.service())
	}
	objects = append(objects, serving.networkPolicy())
	if p.Replicas > 1 { // with a single pod, the budget would never allow a node to be drained
		objects = append(objects, serving.disruptionBudget())
	}
	if p.Split {
		register := p.component(Registering)
		objects = append(objects, register.job(), register.cronJob())
	}
	if p.AuditSchedule != "" {
		objects = append(objects, p.component(Auditing).auditJob())
	}
	objects = append(objects, serving.deployment())
	if p.PodMonitor {
		objects = append(objects, serving.podMonitor())
	}
	return objects
}

const (
	maxJobName     = 63  // it becomes the value of a label of the Job's pods
	maxCronJobName = 52  // the controller appends eleven characters to form a Job's name
	maxAccountName = 253 // a DNS subdomain

	hashLength = 8

	registerInfix = "-register-" // of the Job that registers, before its hash
)

// Shorten returns name with suffix appended. If that is longer than most, the end of name is replaced with a hash of
// name.
func Shorten(name, suffix string, most int) string {
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
