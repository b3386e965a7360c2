package certsecret

// This file retries an operation that lost a race or failed temporarily. Each attempt starts with a fresh read.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"code.cloudfoundry.org/eirinix/internal/wait"
)

// patience is how long an operation is retried. A caller that can wait for longer logs why it does.
const patience = 10 * time.Second

// retry runs attempt until it succeeds, fails with a permanent error, or fails once patience is over. Delays double up
// to a second and are fully jittered, so that replicas which collided once do not collide again.
func (s *Store) retry(ctx context.Context, attempt func() error) error {
	ends, delays := time.Now().Add(patience), wait.Backoff(10*time.Millisecond, time.Second)
	for n := 1; ; n++ {
		err := attempt()
		switch {
		case err == nil:
			return nil
		case !wait.Transient(err) && !wait.Vanished(err):
			return s.wrap(err)
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
			s.Log.V(1).Info("another writer was faster; reading the certificate Secret again", "secret", s.String(), "attempt", n)
		}
		if !time.Now().Before(ends) {
			return s.wrap(fmt.Errorf("gave up after %d attempts: %w", n, err))
		}
		if cause := wait.Sleep(ctx, rand.N(delays())); cause != nil {
			return s.wrap(fmt.Errorf("%w; the last attempt: %w", cause, err))
		}
	}
}
