package webhookconf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "eirinix"

	// OwnerAnnotation names the certificate Secret, "namespace/name", of the deployment that a
	// configuration belongs to. Two deployments with one fingerprint would overwrite each other.
	OwnerAnnotation = "eirinix.cloudfoundry.org/certificate-secret"
)

// Client is what is needed of client-go's MutatingWebhookConfigurationInterface.
type Client interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*admissionregistrationv1.MutatingWebhookConfiguration, error)
	Create(ctx context.Context, c *admissionregistrationv1.MutatingWebhookConfiguration, opts metav1.CreateOptions) (*admissionregistrationv1.MutatingWebhookConfiguration, error)
	Update(ctx context.Context, c *admissionregistrationv1.MutatingWebhookConfiguration, opts metav1.UpdateOptions) (*admissionregistrationv1.MutatingWebhookConfiguration, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// Outcome tells what a write did.
type Outcome string

// What Apply and Delete did.
const (
	Created   Outcome = "created"
	Updated   Outcome = "updated"
	Unchanged Outcome = "unchanged"
	Deleted   Outcome = "deleted"
	Absent    Outcome = "absent"
)

// OwnedElsewhereError says that the configuration belongs to another deployment.
type OwnedElsewhereError struct{ Configuration, Owner, Us string }

func (e *OwnedElsewhereError) Error() string {
	return fmt.Sprintf("MutatingWebhookConfiguration %q belongs to the deployment whose certificate Secret is %s, not to ours (%s); "+
		"set ManagerOptions.OperatorFingerprint to another name, or delete that configuration if its deployment is gone",
		e.Configuration, e.Owner, e.Us)
}

// Apply makes the webhooks of the configuration called name equal to webhooks, in place. Everything else in
// the object is kept; equal state writes nothing. owner is the certificate Secret, "namespace/name".
// It returns the configuration as the API server has it now.
func Apply(ctx context.Context, client Client, name, owner string, webhooks []admissionregistrationv1.MutatingWebhook) (*admissionregistrationv1.MutatingWebhookConfiguration, Outcome, error) {
	var (
		result  *admissionregistrationv1.MutatingWebhookConfiguration
		outcome Outcome
	)
	// Losing a race against another replica is normal: read again and compare again.
	err := retry.OnError(retry.DefaultBackoff, isRace, func() error {
		existing, err := client.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			outcome = Created
			result, err = client.Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{
					Name:        name,
					Labels:      map[string]string{managedByLabel: managedBy},
					Annotations: map[string]string{OwnerAnnotation: owner},
				},
				Webhooks: webhooks,
			}, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		if other := existing.Annotations[OwnerAnnotation]; other != "" && other != owner {
			return &OwnedElsewhereError{Configuration: name, Owner: other, Us: owner}
		}
		desired := existing.DeepCopy()
		desired.Labels = with(desired.Labels, managedByLabel, managedBy)
		desired.Annotations = with(desired.Annotations, OwnerAnnotation, owner)
		desired.Webhooks = webhooks
		if equality.Semantic.DeepEqual(existing, desired) {
			result, outcome = existing, Unchanged
			return nil
		}
		outcome = Updated
		result, err = client.Update(ctx, desired, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return nil, "", explain(name, "get, create and update", err)
	}
	return result, outcome, nil
}

// Delete removes the configuration if it is ours.
func Delete(ctx context.Context, client Client, name, owner string) (Outcome, error) {
	err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		existing, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if other := existing.Annotations[OwnerAnnotation]; other != "" && other != owner {
			return &OwnedElsewhereError{Configuration: name, Owner: other, Us: owner}
		}
		// The precondition makes sure that what was looked at is what goes.
		return client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
			UID: new(existing.UID), ResourceVersion: new(existing.ResourceVersion),
		}})
	})
	switch {
	case apierrors.IsNotFound(err):
		return Absent, nil
	case err != nil:
		return "", explain(name, "get and delete", err)
	}
	return Deleted, nil
}

// Read gets the configuration; a missing one is nil without error.
func Read(ctx context.Context, client Client, name string) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	c, err := client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, explain(name, "get", err)
	}
	return c, nil
}

// Missing tells which of the entries the configuration does not hold, by name.
func Missing(c *admissionregistrationv1.MutatingWebhookConfiguration, fingerprint string, entries []Entry) []string {
	var missing []string
	for _, e := range entries {
		if find(c, WebhookName(e.Name, fingerprint)) == nil {
			missing = append(missing, e.Name)
		}
	}
	return missing
}

// Bundles gives the different caBundles that the entries of the configuration hold.
func Bundles(c *admissionregistrationv1.MutatingWebhookConfiguration, fingerprint string, entries []Entry) [][]byte {
	var bundles [][]byte
	for _, e := range entries {
		w := find(c, WebhookName(e.Name, fingerprint))
		if w == nil {
			continue
		}
		bundle := w.ClientConfig.CABundle
		if !slices.ContainsFunc(bundles, func(b []byte) bool { return bytes.Equal(b, bundle) }) {
			bundles = append(bundles, bundle)
		}
	}
	return bundles
}

func find(c *admissionregistrationv1.MutatingWebhookConfiguration, name string) *admissionregistrationv1.MutatingWebhook {
	for i := range c.Webhooks {
		if c.Webhooks[i].Name == name {
			return &c.Webhooks[i]
		}
	}
	return nil
}

func isRace(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

func with(m map[string]string, key, value string) map[string]string {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// explain names the object and, where rights are missing, the rule that grants them.
func explain(name, verbs string, err error) error {
	if _, ok := errors.AsType[*OwnedElsewhereError](err); ok {
		return err
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("MutatingWebhookConfiguration %q (needs %s on mutatingwebhookconfigurations.admissionregistration.k8s.io in a ClusterRole): %w", name, strings.TrimSpace(verbs), err)
	}
	return fmt.Errorf("MutatingWebhookConfiguration %q: %w", name, err)
}
