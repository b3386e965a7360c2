package webhookconf

// This file marks configurations as ours, and keeps the hands off those of others.

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "eirinix"

	// OwnerAnnotation names the certificate Secret, "namespace/name", of the deployment that a
	// configuration belongs to. Two deployments with one fingerprint would overwrite each other.
	OwnerAnnotation = "eirinix.cloudfoundry.org/certificate-secret"
)

// OwnedElsewhereError says that the configuration belongs to another deployment.
type OwnedElsewhereError struct{ Kind, Configuration, Owner, Us string }

func (e *OwnedElsewhereError) Error() string {
	return fmt.Sprintf("%s %q belongs to the deployment whose certificate Secret is %s, not to ours (%s); "+
		"set ManagerOptions.OperatorFingerprint to another name, or delete that configuration if its deployment is gone",
		e.Kind, e.Configuration, e.Owner, e.Us)
}

// OwnedByNamespace is a reference to a Namespace. It does not hold up the Namespace's deletion.
func OwnedByNamespace(ns *corev1.Namespace) *metav1.OwnerReference {
	return &metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: ns.Name, UID: ns.UID}
}

// owned is nil when the configuration is ours, or nobody's yet.
func (c *configurationOf[C, W]) owned(found C) error {
	if other := found.GetAnnotations()[OwnerAnnotation]; other != "" && other != c.owner {
		return &OwnedElsewhereError{Kind: c.kind.Name, Configuration: found.GetName(), Owner: other, Us: c.owner}
	}
	return nil
}

// desired is the configuration with these webhooks, and marked as ours; the rest of it is as it was. existing is nil
// when there is none.
func (c *configurationOf[C, W]) desired(existing C, ownedBy *metav1.OwnerReference, webhooks []W) C {
	var none C
	desired := c.kind.make(metav1.ObjectMeta{Name: c.name})
	if existing != none {
		desired = existing.DeepCopy()
	}
	desired.SetLabels(with(desired.GetLabels(), managedByLabel, managedBy))
	desired.SetAnnotations(with(desired.GetAnnotations(), OwnerAnnotation, c.owner))
	desired.SetOwnerReferences(withOwner(desired.GetOwnerReferences(), ownedBy))
	*c.kind.webhooks(desired) = webhooks
	return desired
}

func with(m map[string]string, key, value string) map[string]string {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// withOwner adds an owner, or puts it in the place of one that had the name before.
func withOwner(all []metav1.OwnerReference, owner *metav1.OwnerReference) []metav1.OwnerReference {
	if owner == nil {
		return all
	}
	all = slices.DeleteFunc(slices.Clone(all), func(r metav1.OwnerReference) bool {
		return r.APIVersion == owner.APIVersion && r.Kind == owner.Kind && r.Name == owner.Name && r.UID != owner.UID
	})
	if slices.ContainsFunc(all, func(r metav1.OwnerReference) bool { return r.UID == owner.UID }) {
		return all
	}
	return append(all, *owner)
}
