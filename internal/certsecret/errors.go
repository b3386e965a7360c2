package certsecret

// This file handles errors of the API server: it retries an operation that lost a race or failed temporarily, and turns
// other errors into messages that name the remedy.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"code.cloudfoundry.org/eirinix/internal/wait"
)

var (
	// ErrNotReady is wrapped by methods that do not create a CA, such as Load and RecordRegistered, when the Secret
	// holds no usable CA (yet).
	ErrNotReady = errors.New("no usable CA")

	// ErrNewerFormat is wrapped when a newer version of this library wrote the Secret and a write is needed.
	ErrNewerFormat = errors.New("written by a newer version of this library")

	// ErrImmutable is wrapped when the Secret is marked immutable: true and a write is needed.
	ErrImmutable = errors.New("the Secret is immutable")
)

// wrap adds the Secret's name and the remedy to an API error.
func (s *Store) wrap(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return fmt.Errorf("certificate Secret %s: namespace %q is being deleted; use another one or wait until it is gone and create it again: %w", s, s.Namespace, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("certificate Secret %s (needs get, create, update on secrets): %w", s, err)
	case wait.NamespaceMissing(err):
		return fmt.Errorf("certificate Secret %s: namespace %q does not exist; create it first: %w", s, s.Namespace, err)
	default:
		return fmt.Errorf("certificate Secret %s: %w", s, err)
	}
}

func (s *Store) errImmutable(reason string) error {
	return fmt.Errorf("delete it (kubectl --namespace %s delete secret %s) and a new one is made: %w and %s",
		s.Namespace, s.Name, ErrImmutable, reason)
}

func errNewer(version int, reason string) error {
	return fmt.Errorf("upgrade this program: the Secret was %w (format %d, this one knows %d) and %s",
		ErrNewerFormat, version, FormatVersion, reason)
}

func errNotReady(reason string) error { return fmt.Errorf("%w: %s", ErrNotReady, reason) }

// maxAttempts limits the attempts of one operation. With their delays they take some ten seconds.
const maxAttempts = 20

// retry runs attempt until it succeeds, fails with a permanent error, or has failed maxAttempts times. One that ran into
// a deadline has taken long enough: the caller decides how long to wait, and logs why. Delays double up to a second and
// are fully jittered, so that replicas which collided once do not collide again.
func (s *Store) retry(ctx context.Context, attempt func() error) error {
	delays := wait.Backoff(10*time.Millisecond, time.Second)
	for n := 1; ; n++ {
		err := attempt()
		switch {
		case err == nil:
			return nil
		case !wait.Transient(err) && !wait.Vanished(err), errors.Is(err, context.DeadlineExceeded):
			return s.wrap(err)
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
			s.Log.V(1).Info("another writer was faster; reading the certificate Secret again", "secret", s.String(), "attempt", n)
		}
		if n == maxAttempts {
			return s.wrap(fmt.Errorf("gave up after %d attempts: %w", n, err))
		}
		if cause := wait.Sleep(ctx, rand.N(delays())); cause != nil {
			return s.wrap(fmt.Errorf("%w; the last attempt: %w", cause, err))
		}
	}
}
