package cluster

// This file waits and retries, and decides how often the reason is logged.

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Transient reports whether waiting can help. That is so if the API server is unavailable, overloaded or starting, or
// if another client was faster. Its other responses (forbidden, invalid, unauthorized) are final, and so is a response
// that cannot be trusted.
func Transient(err error) bool {
	var status apierrors.APIStatus // not an error type itself, so AsType does not accept it
	if errors.As(err, &status) {
		code, message := status.Status().Code, status.Status().Message
		if strings.Contains(message, "request is too large") || strings.Contains(message, "message larger than max") {
			return false // etcd's limit, reported as a server error
		}
		return code >= 500 || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout || code == http.StatusConflict
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return false
	}
	_, isURL := errors.AsType[*url.Error](err)
	return !errors.Is(err, context.Canceled) &&
		(isURL || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsTimeout(err) || utilnet.IsProbableEOF(err) || errors.Is(err, context.DeadlineExceeded))
}

// RefusedError is an error that waiting does not resolve.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }
func (e *RefusedError) Unwrap() error { return e.Err }

// Vanished reports whether an object was deleted between two requests, or does not exist yet. The next pass finds it or
// creates it again. It does not report a missing namespace.
func Vanished(err error) bool {
	var status apierrors.APIStatus // not an error type itself, so AsType does not accept it
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Kind != "namespaces" && details.Kind != "namespace"
}

// Retry runs f until it succeeds, ctx ends, or it fails for a reason that waiting does not resolve. It logs each
// failure before a retry, together with the awaited thing.
func Retry(ctx context.Context, log logr.Logger, what string, f func(context.Context) error) error {
	delays := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 15 * time.Second}
	for {
		err := f(ctx)
		if err == nil || ctx.Err() != nil || !Transient(err) {
			return err
		}
		delay := delays.Step()
		log.Info("the API server does not answer yet; trying again. Check that it runs, and the address in the kubeconfig", "waitsFor", what, "again", delay.Round(time.Millisecond).String(), "reason", err.Error())
		if Sleep(ctx, delay) != nil {
			return err
		}
	}
}

// Sleep waits for d or until ctx ends, and then returns the cause of its end.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
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
