package certsecret

// This file retries an operation that lost a race or failed temporarily. Each attempt starts with a fresh read.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	maxAttempts = 20
	firstDelay  = 10 * time.Millisecond
	maxDelay    = time.Second
)

// retry runs attempt until it succeeds, fails with a permanent error, or has failed maxAttempts times. Delays double up
// to a second and are fully jittered, so that replicas which collided once do not collide again.
func (s *Store) retry(ctx context.Context, attempt func() error) error {
	delay := firstDelay
	for n := 1; ; n++ {
		err := attempt()
		switch {
		case err == nil:
			return nil
		case lostRace(err):
			s.Log.V(1).Info("another writer was faster; reading the certificate Secret again", "secret", s.String(), "attempt", n)
		case !passing(err):
			return s.wrap(err)
		}
		if n == maxAttempts {
			return s.wrap(fmt.Errorf("gave up after %d attempts: %w", n, err))
		}
		timer := time.NewTimer(rand.N(delay) + time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			return s.wrap(fmt.Errorf("%w; the last attempt: %w", context.Cause(ctx), err))
		case <-timer.C:
		}
		delay = min(2*delay, maxDelay)
	}
}
