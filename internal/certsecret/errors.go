package certsecret

// This file turns errors of the API server into messages that name the remedy.

import (
	"errors"
	"fmt"

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
