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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

// tries is the number of attempts that Change makes when its writes conflict with others.
const tries = 5

// Resource is the resource of Leases.
var Resource = coordinationv1.SchemeGroupVersion.WithResource("leases")

// Lease is the Lease object that holds the records. It is untyped, so that what our Go types do not know survives.
type Lease struct {
	Client          dynamic.ResourceInterface
	Namespace, Name string
}

func (l *Lease) String() string { return l.Namespace + "/" + l.Name }

// Empty returns the object before it is created, for a cache to fill in.
func (l *Lease) Empty() *unstructured.Unstructured {
	lease := &unstructured.Unstructured{}
	lease.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	lease.SetNamespace(l.Namespace)
	lease.SetName(l.Name)
	return lease
}

// Write replaces the object with one that holds the next records. It does not change read, and fails if read is no
// longer the current version.
func (l *Lease) Write(ctx context.Context, read *unstructured.Unstructured, next Versions) (err error) {
	written := read.DeepCopy()
	written.SetAnnotations(next.Write(written.GetAnnotations()))
	if written.GetResourceVersion() == "" {
		_, err = l.Client.Create(ctx, written, metav1.CreateOptions{})
	} else {
		_, err = l.Client.Update(ctx, written, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("the Lease %s, in which versions of this program know each other (needs get, list, watch, create and update on leases.coordination.k8s.io): %w", l, err)
	}
	return nil
}

// read returns the object from the API server. A missing one is Empty.
func (l *Lease) read(ctx context.Context) (*unstructured.Unstructured, error) {
	read, err := l.Client.Get(ctx, l.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return l.Empty(), nil
	}
	return read, err
}

// Change reads the object and replaces its records with the result of change. It tries again if another replica writes
// first. If change returns nil, the records stay as they are.
func (l *Lease) Change(ctx context.Context, change func(Versions) Versions) error {
	for n := 1; ; n++ {
		read, err := l.read(ctx)
		if err != nil {
			return err
		}
		next := change(Read(read.GetAnnotations()))
		if next == nil || maps.Equal(next.Write(read.GetAnnotations()), read.GetAnnotations()) {
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
// precedence. standing is the version that stands.
func (l *Lease) StillFirst(ctx context.Context, version, standing string) error {
	lease, err := l.read(ctx)
	if err != nil {
		return err
	}
	if first := Read(lease.GetAnnotations()).First(standing); first != "" && first != version {
		return apierrors.NewConflict(Resource.GroupResource(), l.Name, fmt.Errorf("the registration of version %s stands", first))
	}
	return nil
}

// RoutesIn returns the paths of all versions in the Lease, for a process that does not serve yet.
func RoutesIn(ctx context.Context, cache cluster.Cache, namespace, name string) map[string]Route {
	lease := (&Lease{Namespace: namespace, Name: name}).Empty()
	if cache.Get(ctx, lease) != nil {
		return nil
	}
	routes, _ := Read(lease.GetAnnotations()).Routes("", nil, time.Time{})
	return routes
}
