package webhookconf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "eirinix"

	// fieldManager is who we are in the managed fields of a configuration, whatever the program is called.
	fieldManager = "eirinix"

	// OwnerAnnotation names the certificate Secret, "namespace/name", of the deployment that a
	// configuration belongs to. Two deployments with one fingerprint would overwrite each other.
	OwnerAnnotation = "eirinix.cloudfoundry.org/certificate-secret"
)

// Outcome tells what a write did.
type Outcome string

// What Apply, Delete and Register did.
const (
	Created   Outcome = "created"
	Updated   Outcome = "updated"
	Unchanged Outcome = "unchanged"
	Deleted   Outcome = "deleted"
	Absent    Outcome = "absent"
	Yielded   Outcome = "yielded" // the steps of a process that started later stay
	Deferred  Outcome = "put off" // somebody undoes it again and again
)

// OwnedElsewhereError says that the configuration belongs to another deployment.
type OwnedElsewhereError struct{ Kind, Configuration, Owner, Us string }

func (e *OwnedElsewhereError) Error() string {
	return fmt.Sprintf("%s %q belongs to the deployment whose certificate Secret is %s, not to ours (%s); "+
		"set ManagerOptions.OperatorFingerprint to another name, or delete that configuration if its deployment is gone",
		e.Kind, e.Configuration, e.Owner, e.Us)
}

// Apply makes the webhooks of the configuration called name equal to webhooks, in place. Everything else in
// the object is kept; equal state writes nothing. owner is the certificate Secret, "namespace/name". Without
// webhooks an existing configuration is emptied, and none is created: the outcome is Absent then.
// It returns the configuration as the API server has it now.
func (k Kind[C, W]) Apply(ctx context.Context, client ClientOf[C], name, owner string, webhooks []W) (C, Outcome, error) {
	return k.apply(ctx, client, name, owner, nil, func(C) ([]W, error) { return webhooks, nil })
}

// apply is Apply with webhooks that are made when the configuration has been read: what they depend on must not be
// older than what they replace. existing is nil when there is none.
func (k Kind[C, W]) apply(ctx context.Context, client ClientOf[C], name, owner string, ownedBy *metav1.OwnerReference, build func(existing C) ([]W, error)) (C, Outcome, error) {
	var none C
	return k.write(ctx, client, name, owner, func(existing C) (C, Outcome, error) {
		webhooks, err := build(existing)
		if err != nil || existing == none && len(webhooks) == 0 {
			return none, Absent, err
		}
		return k.desired(existing, name, owner, ownedBy, webhooks), "", nil
	})
}

// desired is the configuration with these webhooks, and marked as ours; the rest of it is as it was. existing is nil
// when there is none.
func (k Kind[C, W]) desired(existing C, name, owner string, ownedBy *metav1.OwnerReference, webhooks []W) C {
	var none C
	desired := k.make(metav1.ObjectMeta{Name: name})
	if existing != none {
		desired = existing.DeepCopy()
	}
	desired.SetLabels(with(desired.GetLabels(), managedByLabel, managedBy))
	desired.SetAnnotations(with(desired.GetAnnotations(), OwnerAnnotation, owner))
	desired.SetOwnerReferences(withOwner(desired.GetOwnerReferences(), ownedBy))
	*k.webhooks(desired) = webhooks
	return desired
}

// write makes the configuration what plan says, in place; equal state writes nothing. plan is given what is there, nil
// when there is nothing, and again after a race. Where it returns nil, nothing is written, and the outcome is the one
// that it returns; else that is only the outcome when nothing changes, Unchanged if it is empty.
func (k Kind[C, W]) write(ctx context.Context, client ClientOf[C], name, owner string, plan func(existing C) (desired C, idle Outcome, err error)) (C, Outcome, error) {
	var (
		none, result C
		outcome      Outcome
	)
	// Losing a race against another replica is normal: read again and compare again.
	err := retry.OnError(retry.DefaultBackoff, isRace, func() error {
		existing, err := client.Get(ctx, name, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return err
		}
		if missing {
			existing = none
		} else if err := k.owned(existing, owner); err != nil {
			return err
		}
		desired, idle, err := plan(existing)
		switch {
		case err != nil:
			return err
		case desired == none:
			result, outcome = existing, idle
			return nil
		case missing:
			outcome = Created
			result, err = client.Create(ctx, desired, metav1.CreateOptions{FieldManager: fieldManager})
			return err
		case equality.Semantic.DeepEqual(existing, desired):
			result, outcome = existing, cmp.Or(idle, Unchanged)
			return nil
		}
		outcome = Updated
		result, err = client.Update(ctx, desired, metav1.UpdateOptions{FieldManager: fieldManager})
		return err
	})
	if err != nil {
		return none, "", k.explain(name, "get, create and update", err)
	}
	return result, outcome, nil
}

// Delete removes the configuration if it is ours.
func (k Kind[C, W]) Delete(ctx context.Context, client ClientOf[C], name, owner string) (Outcome, error) {
	err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		existing, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := k.owned(existing, owner); err != nil {
			return err
		}
		// The precondition makes sure that what was looked at is what goes.
		return client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
			UID: new(existing.GetUID()), ResourceVersion: new(existing.GetResourceVersion()),
		}})
	})
	switch {
	case apierrors.IsNotFound(err):
		return Absent, nil
	case err != nil:
		return "", k.explain(name, "get and delete", err)
	}
	return Deleted, nil
}

// Read gets the configuration; a missing one is nil without error.
func (k Kind[C, W]) Read(ctx context.Context, client ClientOf[C], name string) (C, error) {
	var none C
	c, err := client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	if err != nil {
		return none, k.explain(name, "get", err)
	}
	return c, nil
}

// owned is nil when the configuration is ours, or nobody's yet.
func (k Kind[C, W]) owned(c C, us string) error {
	if other := c.GetAnnotations()[OwnerAnnotation]; other != "" && other != us {
		return &OwnedElsewhereError{Kind: k.Name, Configuration: c.GetName(), Owner: other, Us: us}
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

// explain names the object and, where rights are missing, the rule that grants them.
func (k Kind[C, W]) explain(name, verbs string, err error) error {
	if _, ok := errors.AsType[*OwnedElsewhereError](err); ok {
		return err
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%s %q (needs %s on %s.admissionregistration.k8s.io in a ClusterRole): %w", k.Name, name, verbs, k.Resource, err)
	}
	return fmt.Errorf("%s %q: %w", k.Name, name, err)
}
