// Package webhookconf knows what a webhook configuration of ours looks like and writes it to the cluster.
//
// Build is pure: the same input gives the same entries, with every field filled in as the API server would,
// so that what is read back compares equal and identical state writes nothing. Apply writes in place and
// never deletes in order to create: between the two, objects would slip past every extension.
package webhookconf

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FingerprintLabel marks the pods of a webhook's own program with its fingerprint. Pods that carry it are
// never sent to that webhook: one that is down could not be started again.
const FingerprintLabel = "eirinix.cloudfoundry.org/fingerprint"

// systemNamespaces hold what a cluster needs to heal itself; a webhook that fails must not stand in its way.
var systemNamespaces = []string{metav1.NamespaceSystem, corev1.NamespaceNodeLease, metav1.NamespacePublic}

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

// Entry is one webhook of the configuration, for pods.
type Entry struct {
	Name string // a DNS label
	Path string // of lowercase DNS segments
}

// Options is everything that decides what a configuration holds.
type Options struct {
	Fingerprint   string
	Target        Target
	CABundle      []byte // PEM
	FailurePolicy admissionregistrationv1.FailurePolicyType
	Timeout       time.Duration     // whole seconds, 1 to 30
	Namespace     string            // the only namespace whose pods are sent; empty means all but the excluded
	ObjectLabels  map[string]string // labels that a pod must have; nil means any
	Entries       []Entry
}

// Build makes the webhooks of a MutatingWebhookConfiguration.
func Build(o Options) []admissionregistrationv1.MutatingWebhook {
	webhooks := make([]admissionregistrationv1.MutatingWebhook, 0, len(o.Entries))
	for _, e := range o.Entries {
		webhooks = append(webhooks, admissionregistrationv1.MutatingWebhook{
			Name:                    WebhookName(e.Name, o.Fingerprint),
			ClientConfig:            o.clientConfig(e.Path),
			Rules:                   podRules(),
			FailurePolicy:           new(o.FailurePolicy),
			MatchPolicy:             new(admissionregistrationv1.Equivalent),
			NamespaceSelector:       o.namespaceSelector(),
			ObjectSelector:          o.objectSelector(),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          new(int32(o.Timeout / time.Second)),
			AdmissionReviewVersions: []string{"v1", "v1beta1"},
			ReinvocationPolicy:      new(admissionregistrationv1.NeverReinvocationPolicy),
		})
	}
	return webhooks
}

// WebhookName is the name of an entry within its configuration. The API server wants at least three
// segments, and one name only once.
func WebhookName(entry, fingerprint string) string {
	return entry + "." + fingerprint + ".eirinix.cloudfoundry.org"
}

// podRules selects the creation of pods. Not their update: changing an immutable field there makes the API
// server refuse the user's own edit.
func podRules() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule: admissionregistrationv1.Rule{
			APIGroups:   []string{""},
			APIVersions: []string{"v1"},
			Resources:   []string{"pods"},
			Scope:       new(admissionregistrationv1.NamespacedScope),
		},
	}}
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

// namespaceSelector selects by the name that the API server itself puts on every namespace, so none is ever
// labelled by us.
func (o Options) namespaceSelector() *metav1.LabelSelector {
	if o.Namespace != "" {
		return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: o.Namespace}}
	}
	excluded := slices.Clone(systemNamespaces)
	if o.Target.Service != "" && !slices.Contains(excluded, o.Target.Namespace) {
		excluded = append(excluded, o.Target.Namespace)
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: excluded,
	}}}
}

// objectSelector selects by ObjectLabels, and in Service mode leaves out the program's own pods where they
// live in the namespace that is selected.
func (o Options) objectSelector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: maps.Clone(o.ObjectLabels)}
	if o.Target.Service != "" && o.Namespace == o.Target.Namespace {
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{
			Key: FingerprintLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{o.Fingerprint},
		}}
	}
	return s
}
