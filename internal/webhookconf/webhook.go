// Package webhookconf builds our webhook configurations, reads them and writes them.
//
// Group decides which steps share a call of the API server, Check finds what the API server would refuse, and
// building gives the webhooks. All three are pure. What is built has every field filled in as the API server
// would, so that a configuration that is read back compares equal and identical state writes nothing. Writing is in place and
// never deletes in order to create: between the two, objects would slip past every extension.
//
// A Configuration holds no state and decides nothing: its caller gets it, decides which Change is due, puts that,
// and gets it again when another writer was faster. Digest tells versions of a program apart.
//
// A webhook must not take its own cluster down. Unless a step is ClusterCritical, it is not called for the
// system's namespaces and the program's own (rules.go), its wildcards take in neither objects without a
// namespace nor those by which a cluster heals (wildcard.go), and failing for everything is refused (check.go).
package webhookconf

// This file builds the webhooks of a configuration out of entries and options.

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
)

// Options is everything beside the steps that decides the content of the configurations.
type Options struct {
	Fingerprint string
	Domain      string // empty for DefaultDomain
	Target      Target
	CABundle    []byte // PEM

	// Namespace is the only namespace whose objects are sent to steps that select none themselves; empty
	// means all but the excluded.
	Namespace string

	// OwnedBy is the Namespace that the program lives in: the configurations go away with it. nil leaves the owners
	// as they are.
	OwnedBy *metav1.OwnerReference
}

// DefaultDomain is the end of webhook names where Options leaves it out.
const DefaultDomain = "eirinix.cloudfoundry.org"

// WebhookName is the name of an entry within its configuration. The API server wants at least three
// segments, and one name only once.
func (o Options) WebhookName(entry string) string {
	return entry + "." + o.Fingerprint + "." + cmp.Or(o.Domain, DefaultDomain)
}

// Mutating makes the webhooks of a MutatingWebhookConfiguration out of the entries that are mutating.
func (o Options) Mutating(entries []Entry) []admissionregistrationv1.MutatingWebhook {
	webhooks := make([]admissionregistrationv1.MutatingWebhook, 0, len(entries))
	for _, e := range entries {
		if e.Validating {
			continue
		}
		w := o.webhook(e)
		w.ReinvocationPolicy = new(e.Reinvoke)
		webhooks = append(webhooks, w)
	}
	return webhooks
}

// Validating makes the webhooks of a ValidatingWebhookConfiguration out of the entries that are validating.
func (o Options) Validating(entries []Entry) []admissionregistrationv1.ValidatingWebhook {
	webhooks := make([]admissionregistrationv1.ValidatingWebhook, 0, len(entries))
	for _, e := range entries {
		if !e.Validating {
			continue
		}
		w := o.webhook(e)
		webhooks = append(webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy,
			MatchPolicy: w.MatchPolicy, NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector,
			SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds,
			AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
		})
	}
	return webhooks
}

// webhook returns the fields that both kinds have in common: all but the reinvocationPolicy. It shares nothing with e.
func (o Options) webhook(e Entry) admissionregistrationv1.MutatingWebhook {
	return admissionregistrationv1.MutatingWebhook{
		Name:                    o.WebhookName(e.Name),
		ClientConfig:            o.clientConfig(e.Path),
		Rules:                   rulesFor(e),
		FailurePolicy:           new(e.FailurePolicy),
		MatchPolicy:             new(e.MatchPolicy),
		NamespaceSelector:       o.namespaces(e),
		ObjectSelector:          o.objects(e),
		SideEffects:             new(e.SideEffects),
		TimeoutSeconds:          new(int32(e.Timeout / time.Second)),
		AdmissionReviewVersions: []string{"v1", "v1beta1"},
		MatchConditions:         conditionsFor(e.Rules, e.Conditions, e.ClusterCritical),
	}
}

// Target is where the API server calls: a Service where Service is set, else Host as a URL.
type Target struct {
	Service, Namespace string // Service mode
	Host               string // URL mode: a name or an IP address without brackets
	Port               int32
}

// String is the target as a user would write it.
func (t Target) String() string {
	if t.Service != "" {
		return fmt.Sprintf("Service %s/%s, port %d", t.Namespace, t.Service, t.Port)
	}
	return "https://" + net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port)))
}

// Program tells programs apart: replicas of one program are called at one address.
func (t Target) Program() string {
	if t.Service != "" {
		return "Service " + t.Namespace + "/" + t.Service
	}
	return t.String()
}

func (o Options) clientConfig(path string) admissionregistrationv1.WebhookClientConfig {
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
