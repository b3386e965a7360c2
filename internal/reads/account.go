package reads

// This file keeps account of how old the objects of a source can be, and says why steps wait for them.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

// unlisted returns the reason why the source has never been listed, or nil if it has.
func (s *source) unlisted() error {
	if s.listed.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return Unlisted(s.String(), s.why)
}

// broken returns for how long changes may be missing, and the reason. It is 0 while the watch is alive.
func (s *source) broken() (time.Duration, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return 0, ""
	}
	why := "the watch has ended"
	if s.why != nil {
		why = s.why.Error()
	}
	return max(time.Since(s.since), 1), why
}

// awaitAlive makes an interrupted source try again, and returns when that attempt or ctx ends. All calls share one
// attempt. It returns at once where waiting gains nothing: after a refusal, after an attempt that got no answer in the
// time of a call or has just failed, and during one that is already late. After a refusal, the source tries again
// nevertheless, because another replica may have registered the step since.
func (s *source) awaitAlive(ctx context.Context) {
	s.mu.Lock()
	ended := s.ended
	late := !s.began.IsZero() && time.Since(s.began) > soonest
	useless := s.since.IsZero() || late || s.slowly || s.began.IsZero() && time.Since(s.tried) < soonest
	hopeless := refused(s.why)
	s.mu.Unlock()
	if useless {
		return
	}
	wait.Signal(s.wake)
	if hopeless {
		return
	}
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// refused reports whether the API server has refused the objects, so that only a change in the cluster helps.
func refused(err error) bool {
	_, undiscovered := errors.AsType[*apiutil.ErrResourceDiscoveryFailed](err)
	return err != nil && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsBadRequest(err) || meta.IsNoMatchError(err) || undiscovered || errors.Is(err, errScope))
}

// errSilent is the reason while a request has no answer.
var errSilent = errors.New("the API server has not answered in full for a second; it is being waited for")

// errUnanswered is the reason after a request that got none.
var errUnanswered = fmt.Errorf("the API server has not answered within %s", answerTimeout)

// attempted records the end of an attempt. The caller holds mu.
func (s *source) attempted() {
	s.slowly, s.began, s.tried = !s.began.IsZero() && time.Since(s.began) > soonest, time.Time{}, time.Now()
	close(s.ended)
	s.ended = make(chan struct{})
}

// failed records the end of an attempt or a watch. It logs why steps wait, and that objects are refused which were not. It
// returns the longest pause before the next attempt.
func (s *source) failed(alive time.Time, err error) time.Duration {
	if errors.Is(err, context.Canceled) {
		err = errUnanswered
	}
	s.mu.Lock()
	s.sign = alive
	s.attempted()
	s.mu.Unlock()
	s.broke(err)
	if s.listed.Load() {
		return cluster.LastPause
	}
	return unlistedPause
}

// broke records that the source is not up to date.
func (s *source) broke(err error) {
	silent := errors.Is(err, errSilent)
	s.mu.Lock()
	if silent && s.began.IsZero() { // the answer came at that moment
		s.mu.Unlock()
		return
	}
	if s.since.IsZero() {
		if s.since = time.Now().Add(-cluster.Unnoticed); s.since.Before(s.sign) {
			s.since = s.sign
		}
	}
	if err != nil {
		s.why = err
	}
	reason := fmt.Sprintf("%s %t", apierrors.ReasonForError(err), silent)
	say := err != nil && (!s.listed.Load() || refused(err)) && s.says(reason)
	s.mu.Unlock()
	if err != nil && !silent {
		s.settle.Do(func() { close(s.settled) })
	}
	if say && !s.listed.Load() {
		s.set.log.Info("objects that steps read cannot be listed; the steps wait for them", "objects", s.String(), "reason", err.Error())
	} else if say {
		s.set.log.Info("objects that steps read are refused; the steps fail once the objects are too old", "objects", s.String(), "reason", err.Error())
	}
	s.set.metrics.interrupted(s)
}

// says reports whether the log does not yet have a reason of that kind in this interruption. The caller holds mu.
func (s *source) says(kind string) bool {
	if slices.Contains(s.said, kind) {
		return false
	}
	s.said = append(s.said, kind)
	return true
}

// succeeded records that the watch is alive, and stores the list before it.
func (s *source) succeeded() {
	if s.pending != nil {
		s.store()
	}
	s.mu.Lock()
	said, broken, regained := s.said, s.since, refused(s.why)
	s.since, s.sign, s.why, s.said = time.Time{}, time.Now(), nil, nil
	s.attempted()
	s.mu.Unlock()
	if len(said) > 0 {
		s.set.log.Info("objects that steps read are up to date again", "objects", s.String(), "after", time.Since(broken).Round(time.Millisecond).String())
	}
	s.set.metrics.interrupted(s)
	if regained && s.set.Regained != nil {
		s.set.Regained()
	}
}

// sayStale logs once in each interruption that steps fail for it.
func (s *source) sayStale(step string, err error) {
	s.mu.Lock()
	say := !s.since.IsZero() && s.says("stale")
	s.mu.Unlock()
	if say {
		s.set.log.Info("objects that steps read are too old; the steps fail, and failurePolicy decides", "objects", s.String(), "step", step, "reason", err.Error())
	}
}
