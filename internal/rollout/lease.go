package rollout

// This file stores the records in the Lease.

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

// tries is the number of attempts that Change makes when its writes conflict with others.
const tries = 5

// Leases is the subset of client-go's Lease client that this package uses.
type Leases interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// Lease is the Lease object that holds the records.
type Lease struct {
	Client          Leases
	Namespace, Name string
	Saw             func(*coordinationv1.Lease) // is called with each version that was written, or that StillFirst has read
}

// String returns the namespace and the name.
func (l *Lease) String() string { return l.Namespace + "/" + l.Name }

// Empty returns the object before it is created, for a cache to fill in.
func (l *Lease) Empty() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name}}
}

// Write replaces the object with one that holds the next records. It does not change read, and fails if read is no
// longer the current version.
func (l *Lease) Write(ctx context.Context, read *coordinationv1.Lease, next Versions) (err error) {
	written := read.DeepCopy()
	written.Annotations = next.Write(written.Annotations)
	if written.ResourceVersion == "" {
		written, err = l.Client.Create(ctx, written, metav1.CreateOptions{})
	} else {
		written, err = l.Client.Update(ctx, written, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("the Lease %s, in which versions of this program know each other (needs get, list, watch, create and update on leases.coordination.k8s.io): %w", l, err)
	}
	l.Saw(written)
	return nil
}

// Change reads the object and replaces its records with the result of change. It tries again if another replica writes
// first. If change returns nil, the records stay as they are.
func (l *Lease) Change(ctx context.Context, change func(Versions) Versions) error {
	for n := 1; ; n++ {
		read, err := l.Client.Get(ctx, l.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			read, err = l.Empty(), nil
		}
		if err != nil {
			return err
		}
		next := change(Read(read.Annotations))
		if next == nil || maps.Equal(next.Write(read.Annotations), read.Annotations) {
			return nil
		}
		err = l.Write(ctx, read, next)
		if err == nil || n == tries || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if err := wait.Sleep(ctx, rand.N(100*time.Millisecond)); err != nil {
			return err
		}
	}
}

// StillFirst reads the object from the API server and returns a conflict if the registration of another version takes
// precedence.
func (l *Lease) StillFirst(ctx context.Context, version string) error {
	lease, err := l.Client.Get(ctx, l.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil // it was deleted and will be created again
	}
	if err != nil {
		return err
	}
	l.Saw(lease)
	if first := Read(lease.Annotations).First(); first != "" && first != version {
		return apierrors.NewConflict(coordinationv1.Resource("leases"), l.Name, fmt.Errorf("the registration of version %s stands", first))
	}
	return nil
}

// RoutesIn returns the paths of all versions in the Lease, for a process that does not serve yet.
func RoutesIn(ctx context.Context, cache cluster.Cache, namespace, name string) map[string]Route {
	lease := (&Lease{Namespace: namespace, Name: name}).Empty()
	if cache.Get(ctx, lease) != nil {
		return nil
	}
	return Read(lease.Annotations).Routes("")
}
