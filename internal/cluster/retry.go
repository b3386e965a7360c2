package cluster

// This file names what has moved to the wait and lograte packages, until its callers have moved too.

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"code.cloudfoundry.org/eirinix/internal/wait"
)

type RefusedError = wait.RefusedError

func Transient(err error) bool                         { return wait.Transient(err) }
func Vanished(err error) bool                          { return wait.Vanished(err) }
func Sleep(ctx context.Context, d time.Duration) error { return wait.Sleep(ctx, d) }
func Jittered(d time.Duration) time.Duration           { return wait.Jittered(d) }
func Retry(ctx context.Context, log logr.Logger, what string, f func(context.Context) error) error {
	return wait.Retry(ctx, log, what, f)
}

// Limit decides when a message is logged: when it changes, and again after remindEvery. It is safe for concurrent use.
type Limit struct {
	mu   sync.Mutex
	last string
	at   time.Time
}

const remindEvery = 30 * time.Second

// Due reports whether the message must be logged now.
func (l *Limit) Due(message string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if message == l.last && now.Sub(l.at) < remindEvery {
		return false
	}
	l.last, l.at = message, now
	return true
}
