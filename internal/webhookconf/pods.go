package webhookconf

import (
	"context"
	"maps"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Build makes the webhooks of a MutatingWebhookConfiguration out of o.Entries, for the creation of pods.
func Build(o Options) []admissionregistrationv1.MutatingWebhook {
	entries := make([]Entry, 0, len(o.Entries))
	for _, e := range o.Entries {
		entries = append(entries, Entry{
			Name: e.Name, Path: e.Path, Rules: podRules(),
			Objects:       &metav1.LabelSelector{MatchLabels: maps.Clone(o.ObjectLabels)},
			FailurePolicy: o.FailurePolicy, MatchPolicy: admissionregistrationv1.Equivalent, Timeout: o.Timeout,
			Reinvoke: admissionregistrationv1.NeverReinvocationPolicy, SideEffects: admissionregistrationv1.SideEffectClassNone,
		})
	}
	return o.Mutating(entries)
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

// Client is the client of the mutating kind.
type Client = ClientOf[*admissionregistrationv1.MutatingWebhookConfiguration]

// Apply is Mutating.Apply.
func Apply(ctx context.Context, client Client, name, owner string, webhooks []admissionregistrationv1.MutatingWebhook) (*admissionregistrationv1.MutatingWebhookConfiguration, Outcome, error) {
	return Mutating.Apply(ctx, client, name, owner, webhooks)
}

// Delete is Mutating.Delete.
func Delete(ctx context.Context, client Client, name, owner string) (Outcome, error) {
	return Mutating.Delete(ctx, client, name, owner)
}

// Read is Mutating.Read.
func Read(ctx context.Context, client Client, name string) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return Mutating.Read(ctx, client, name)
}

// Missing is Mutating.Missing.
func Missing(c *admissionregistrationv1.MutatingWebhookConfiguration, fingerprint string, entries []Entry) []string {
	return Mutating.Missing(c, fingerprint, entries)
}

// Bundles is Mutating.Bundles.
func Bundles(c *admissionregistrationv1.MutatingWebhookConfiguration, fingerprint string, entries []Entry) [][]byte {
	return Mutating.Bundles(c, fingerprint, entries)
}
