// Package manifest builds the objects with which a program runs in a cluster: its rights, its Service, and its
// workload. It is pure: equal programs give equal objects, in the same order.
package manifest

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// The labels that objects carry beside the user's. LabelComponent separates the pods that serve from those that register.
const (
	LabelName      = "app.kubernetes.io/name"
	LabelComponent = "app.kubernetes.io/component"
)

// description is Kubernetes' own annotation for a sentence about an object.
const description = "kubernetes.io/description"

// Program is the program to deploy. Every default is resolved.
type Program struct {
	Options

	Namespace   string // of everything that has one, and of the certificate Secret
	Fingerprint string // in the names of cluster-scoped objects
	GracePeriod int64  // seconds from SIGTERM to SIGKILL

	Service     string // empty: there is none
	ServicePort int32
	Ports       Ports
	Rights      Rights

	// Split is a deployment in two halves: this one serves, and a Job registers.
	Split bool
	// Reconciles means that the program uses the API for purposes of its own.
	Reconciles bool
}

// Ports are those that the program listens on, 0 for none.
type Ports struct{ Webhook, Health, Metrics int32 }

// component is which of a deployment's two programs an object belongs to.
type component struct {
	program *Program
	half    Half
	name    string // of objects that belong to it alone
	account string
	role    string // of Roles, ClusterRoles and their bindings
}

func (p *Program) serving() component {
	half := Whole
	if p.Split {
		half = Serving
	}
	return component{program: p, half: half, name: p.Name, account: p.ServiceAccountName, role: RoleName(p.Fingerprint, half)}
}

func (p *Program) registering() component {
	return component{
		program: p, half: Registering,
		name:    Shorten(p.Name, "-register", maxCronJobName),
		account: Shorten(p.ServiceAccountName, "-register", maxAccountName),
		role:    RoleName(p.Fingerprint, Registering),
	}
}

// RoleName is the name of a half's Roles, ClusterRoles and their bindings.
func RoleName(fingerprint string, half Half) string {
	if half == Registering {
		return "eirinix:" + fingerprint + ":register"
	}
	return "eirinix:" + fingerprint
}

// label is the component's name. It is part of selectors, so it does not depend on the program's steps.
func (c component) label() string {
	if c.half == Registering {
		return "register"
	}
	return "webhook"
}

// meta is the metadata of an object of the component.
func (c component) meta(name, namespace string) metav1.ObjectMeta {
	labels := maps.Clone(c.program.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelName], labels[LabelComponent] = c.program.Name, c.label()
	return metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels, Annotations: maps.Clone(c.program.Annotations)}
}

// PodLabels are those of the pods that serve.
func (p *Program) PodLabels() map[string]string { return p.serving().podMeta().Labels }

// podMeta is that of a pod template: the fingerprint keeps the program's own pods from being sent to it.
func (c component) podMeta() metav1.ObjectMeta {
	m := c.meta("", "")
	m.Labels[webhookconf.FingerprintLabel] = c.program.Fingerprint
	return m
}

// selector selects the component's pods. It never changes, because a Deployment's cannot.
func (c component) selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{
		webhookconf.FingerprintLabel: c.program.Fingerprint,
		LabelComponent:               c.label(),
	}}
}

// annotate adds an annotation of ours to the user's.
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

// Objects gives everything, in the order in which it is to be applied: rights before their users. They share
// nothing, with each other or with p.
func Objects(p Program) []client.Object {
	shared := p.objects()
	objects := make([]client.Object, 0, len(shared))
	for _, o := range shared {
		if own, ok := o.DeepCopyObject().(client.Object); ok {
			objects = append(objects, own)
		}
	}
	return objects
}

func (p *Program) objects() []client.Object {
	serving := p.serving()
	objects := serving.rights()
	if p.Split {
		objects = append(objects, p.registering().rights()...)
	}
	objects = append(objects, serving.readers()...)
	if p.Service != "" {
		objects = append(objects, serving.service())
	}
	objects = append(objects, serving.networkPolicy())
	if p.Replicas > 1 { // of a single pod it would never allow a node to be drained
		objects = append(objects, serving.disruptionBudget())
	}
	if p.Split {
		register := p.registering()
		objects = append(objects, register.job(), register.cronJob())
	}
	objects = append(objects, serving.deployment())
	if p.PodMonitor {
		objects = append(objects, serving.podMonitor())
	}
	return objects
}
