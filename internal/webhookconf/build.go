// Package webhookconf knows what our webhook configurations look like and writes them to the cluster.
//
// Group decides which steps share a call of the API server, Check tells what the API server would refuse, and
// building gives the webhooks. All three are pure. What is built has every field filled in as the API server
// would, so that what is read back compares equal and identical state writes nothing. Writing is in place and
// never deletes in order to create: between the two, objects would slip past every extension.
//
// Others write the same configurations, and a Registrar knows how to get along with them: replicas, which never
// write what is there; another version, to which one of the two yields (stance.go); people who edit, and tools
// that apply their own copy again and again (contest.go).
//
// A webhook must not take its own cluster down. Unless a step is ClusterCritical, it is not called for the
// system's namespaces and the program's own (selector.go), its wildcards take in neither what lies in no
// namespace nor what a cluster heals by (wildcard.go), and failing for everything is refused (check.go).
package webhookconf

import (
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Options is everything beside the steps that decides what the configurations hold.
type Options struct {
	Fingerprint string
	Target      Target
	CABundle    []byte // PEM

	// Namespace is the only namespace whose objects are sent to steps that select none themselves; empty
	// means all but the excluded.
	Namespace string

	// OwnedBy is what the configurations go away with: the Namespace that the program lives in. nil leaves
	// what is there.
	OwnedBy *metav1.OwnerReference
}

// WebhookName is the name of an entry within its configuration. The API server wants at least three
// segments, and one name only once.
func WebhookName(entry, fingerprint string) string {
	return entry + "." + fingerprint + ".eirinix.cloudfoundry.org"
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

// webhook is what both kinds have in common: everything but the reinvocationPolicy. It shares nothing with e.
func (o Options) webhook(e Entry) admissionregistrationv1.MutatingWebhook {
	return admissionregistrationv1.MutatingWebhook{
		Name:                    WebhookName(e.Name, o.Fingerprint),
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
