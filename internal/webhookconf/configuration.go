package webhookconf

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"
)

// fieldManager is who we are in the managed fields of a configuration, whatever the program is called.
const fieldManager = "eirinix"

// clientOf is what is needed of client-go's interface for the configurations C.
type clientOf[C any] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (C, error)
	Create(ctx context.Context, c C, opts metav1.CreateOptions) (C, error)
	Update(ctx context.Context, c C, opts metav1.UpdateOptions) (C, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// configurationOf is one of the two webhook configurations of a deployment, as it stands in a cluster.
type configurationOf[C object[C], W any] struct {
	kind   Kind[C, W]
	client clientOf[C]
	name   string
	owner  string // the certificate Secret, "namespace/name"
}

func (c *configurationOf[C, W]) String() string { return c.kind.Name + " " + c.name }

func (c *configurationOf[C, W]) Holds(entries []Entry) bool {
	for _, e := range entries {
		if e.Validating == c.kind.validating {
			return true
		}
	}
	return false
}

func (c *configurationOf[C, W]) Watch(ctx context.Context) (watch.Interface, error) {
	w, err := c.client.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, c.name).String()})
	if err != nil {
		return nil, c.explain("watch", err)
	}
	return w, nil
}

func (c *configurationOf[C, W]) Delete(ctx context.Context) (Outcome, error) {
	err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		existing, err := c.client.Get(ctx, c.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := c.owned(existing); err != nil {
			return err
		}
		// The precondition makes sure that what was looked at is what goes.
		return c.client.Delete(ctx, c.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
			UID: new(existing.GetUID()), ResourceVersion: new(existing.GetResourceVersion()),
		}})
	})
	switch {
	case apierrors.IsNotFound(err):
		return Absent, nil
	case err != nil:
		return "", c.explain("get and delete", err)
	}
	return Deleted, nil
}

// read gives what is there; nil, without error, when there is nothing.
func (c *configurationOf[C, W]) read(ctx context.Context) (C, error) {
	var none C
	found, err := c.client.Get(ctx, c.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	if err != nil {
		return none, c.explain("get", err)
	}
	return found, nil
}

// write makes the configuration what plan says, in place; equal state writes nothing. plan is given what is there, nil
// when there is nothing, and again after a race. Where it returns nil, nothing is written, and the outcome is the one
// that it returns; else that is only the outcome when nothing changes, Unchanged if it is empty.
func (c *configurationOf[C, W]) write(ctx context.Context, plan func(existing C) (desired C, idle Outcome, err error)) (Outcome, error) {
	var (
		none    C
		outcome Outcome
	)
	// Losing a race against another replica is normal: read again and compare again.
	err := retry.OnError(retry.DefaultBackoff, isRace, func() error {
		existing, err := c.client.Get(ctx, c.name, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return err
		}
		if missing {
			existing = none
		} else if err := c.owned(existing); err != nil {
			return err
		}
		desired, idle, err := plan(existing)
		switch {
		case err != nil:
			return err
		case desired == none:
			outcome = idle
			return nil
		case missing:
			outcome = Created
			_, err = c.client.Create(ctx, desired, metav1.CreateOptions{FieldManager: fieldManager})
			return err
		case equality.Semantic.DeepEqual(existing, desired):
			outcome = cmp.Or(idle, Unchanged)
			return nil
		}
		outcome = Updated
		_, err = c.client.Update(ctx, desired, metav1.UpdateOptions{FieldManager: fieldManager})
		return err
	})
	if err != nil {
		return "", c.explain("get, create and update", err)
	}
	return outcome, nil
}

func isRace(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// explain names the object and, where rights are missing, the rule that grants them.
func (c *configurationOf[C, W]) explain(verbs string, err error) error {
	if _, ok := errors.AsType[*OwnedElsewhereError](err); ok {
		return err
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%s %q (needs %s on %s.admissionregistration.k8s.io in a ClusterRole): %w", c.kind.Name, c.name, verbs, c.kind.Resource, err)
	}
	return fmt.Errorf("%s %q: %w", c.kind.Name, c.name, err)
}
