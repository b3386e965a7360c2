// Package webhookconf builds our webhook configurations, reads them and writes them.
//
// Group decides which steps share a call of the API server, Check finds the errors that the API server would report,
// and Options.Webhook returns a webhook. All are pure. Every field of a webhook is set to the
// value that the API server would default. A configuration that is read back therefore compares equal, and an unchanged
// state causes no write.
// Writes update in place and never delete in order to create: in between, objects would bypass every extension.
//
// A Configuration holds no state and decides nothing. Its caller gets it, decides which Change is due, puts the change,
// and gets it again if another writer was faster. Digest distinguishes the versions of a program.
//
// A webhook must not take its own cluster down. Unless a step has AllowClusterCritical, three rules hold. It is not called
// for the system's namespaces and the program's own (rules.go). Its wildcards cover neither objects without a namespace
// nor the objects that a cluster needs to recover (wildcard.go). Failing for everything is rejected (check.go).
package webhookconf

// This file builds the webhooks of a configuration from entries and options.

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Options holds everything except the steps that determines the content of the configurations.
type Options struct {
	Fingerprint string
	Domain      string // empty for DefaultDomain
	Target      Target
	CABundle    []byte // PEM

	// Namespace is the only namespace whose objects are sent to steps without a namespace selector of their own. Empty
	// means all namespaces except the excluded ones.
	Namespace string

	// OwnedBy is the Namespace that the program lives in: deleting it deletes the configurations. nil leaves the owners
	// unchanged.
	OwnedBy *metav1.OwnerReference
}

// DefaultDomain is the end of webhook names if Options.Domain is empty.
const DefaultDomain = "eirinix.cloudfoundry.org"

// WebhookName returns the name of an entry within its configuration. The API server requires at least three segments,
// and unique names.
func (o Options) WebhookName(entry string) string {
	return entry + "." + o.Fingerprint + "." + cmp.Or(o.Domain, DefaultDomain)
}

// Webhook returns the webhook of an entry. That of a validating entry has the form of a mutating one, without a
// reinvocationPolicy. It shares no memory with e.
func (o Options) Webhook(e Entry) admissionregistrationv1.MutatingWebhook {
	w := admissionregistrationv1.MutatingWebhook{
		Name:                    o.WebhookName(e.Name),
		ClientConfig:            o.ClientConfig(e.Path),
		Rules:                   rulesFor(e),
		FailurePolicy:           new(e.FailurePolicy),
		MatchPolicy:             new(e.MatchPolicy),
		NamespaceSelector:       o.namespaces(e),
		ObjectSelector:          o.objects(e),
		SideEffects:             new(e.SideEffects),
		TimeoutSeconds:          new(int32(e.Timeout / time.Second)),
		AdmissionReviewVersions: []string{"v1", "v1beta1"},
		MatchConditions:         conditionsFor(e.Settings),
	}
	if !e.Validating {
		w.ReinvocationPolicy = new(e.Reinvoke)
	}
	return w
}

// Target is the address that the API server calls: a Service if Service is set, otherwise Host as a URL.
type Target struct {
	Service, Namespace string // Service mode
	Host               string // URL mode: a name or an IP address without brackets
	Port               int32
}

// String returns the target in the form that a user would write.
func (t Target) String() string {
	if t.Service != "" {
		return fmt.Sprintf("Service %s/%s, port %d", t.Namespace, t.Service, t.Port)
	}
	return "https://" + net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port)))
}

// Program identifies the program: all replicas of one program are called at one address.
func (t Target) Program() string {
	if t.Service != "" {
		return "Service " + t.Namespace + "/" + t.Service
	}
	return t.String()
}

// ClientConfig returns the address of a path, and the CABundle, in the form that the API server takes.
func (o Options) ClientConfig(path string) admissionregistrationv1.WebhookClientConfig {
	c := admissionregistrationv1.WebhookClientConfig{CABundle: slices.Clone(o.CABundle)}
	if o.Target.Service != "" {
		c.Service = &admissionregistrationv1.ServiceReference{
			Name: o.Target.Service, Namespace: o.Target.Namespace,
			Path: new(path), Port: new(o.Target.Port),
		}
		return c
	}
	u := url.URL{Scheme: "https", Host: net.JoinHostPort(o.Target.Host, strconv.Itoa(int(o.Target.Port))), Path: path}
	c.URL = new(u.String())
	return c
}

// TargetOf returns the address that the API server calls, and the path.
func TargetOf(c admissionregistrationv1.WebhookClientConfig) (at Target, path string) {
	if s := c.Service; s != nil {
		return Target{Service: s.Name, Namespace: s.Namespace, Port: ptr.Deref(s.Port, httpsPort)}, ptr.Deref(s.Path, "")
	}
	text := ptr.Deref(c.URL, "")
	u, err := url.Parse(text)
	switch {
	case text == "":
		return at, ""
	case err != nil:
		return Target{Host: text}, ""
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		port = httpsPort
	}
	return Target{Host: u.Hostname(), Port: int32(port)}, u.RequestURI()
}

// httpsPort is the port that the API server calls where none is given.
const httpsPort = 443
