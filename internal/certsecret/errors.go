package certsecret

// This file turns what the API server answers into sentences that name the remedy.

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

var (
	// ErrNotReady is wrapped by Load and RecordRegistered when the Secret holds no usable CA (yet).
	ErrNotReady = errors.New("no usable CA")

	// ErrNewerFormat is wrapped when a newer version of this library wrote the Secret and it would have
	// to be changed.
	ErrNewerFormat = errors.New("written by a newer version of this library")

	// ErrImmutable is wrapped when the Secret would have to be changed and says immutable: true.
	ErrImmutable = errors.New("the Secret is immutable")
)

// wrap names the Secret and what to do about an API error.
func (s *Store) wrap(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return fmt.Errorf("certificate Secret %s: namespace %q is being deleted; use another one or wait until it is gone and create it again: %w", s, s.Namespace, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("certificate Secret %s (needs get, create, update on secrets): %w", s, err)
	case namespaceMissing(err):
		return fmt.Errorf("certificate Secret %s: namespace %q does not exist; create it first: %w", s, s.Namespace, err)
	default:
		return fmt.Errorf("certificate Secret %s: %w", s, err)
	}
}

// namespaceMissing tells a missing namespace, in which nothing can be created, from a missing Secret.
func namespaceMissing(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && (details.Kind == "namespaces" || details.Kind == "namespace")
}

// lostRace tells whether someone else was faster, so that reading again shows what they wrote.
func lostRace(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) ||
		(apierrors.IsNotFound(err) && !namespaceMissing(err))
}

// passing tells whether the API server may answer better in a moment.
func passing(err error) bool {
	return utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
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
