// Package wait waits and retries, and decides whether waiting helps against an error.
package wait

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
)

// jitter is the maximum random part of a delay, in proportion to the delay.
const jitter = 0.2

// Backoff returns a function that returns the delay before each retry. Delays double from first to last, and have
// jitter.
func Backoff(first, last time.Duration) func() time.Duration {
	return wait.Backoff{Duration: first, Factor: 2, Jitter: jitter, Steps: math.MaxInt32, Cap: last}.DelayFunc()
}

// Jittered returns d plus a random part of up to a fifth of it.
func Jittered(d time.Duration) time.Duration { return wait.Jitter(d, jitter) }

// Signal puts an element into a channel that holds one, unless there is one already.
func Signal(into chan<- struct{}) {
	select {
	case into <- struct{}{}:
	default:
	}
}

// Sleep waits for d or until ctx ends, and then returns the cause of its end.
func Sleep(ctx context.Context, d time.Duration) error { return SleepUnless(ctx, d, nil) }

// SleepUnless is a Sleep that wake ends early.
func SleepUnless(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-wake:
	case <-timer.C:
	}
	return nil
}

// Retry runs f until it succeeds, ctx ends, or it fails for a reason that waiting does not resolve. It logs each
// failure before a retry, together with the name of the awaited thing.
func Retry(ctx context.Context, log logr.Logger, awaited string, f func(context.Context) error) error {
	delays := Backoff(500*time.Millisecond, 15*time.Second)
	for {
		err := f(ctx)
		if err == nil || ctx.Err() != nil || !Transient(err) {
			return err
		}
		delay := delays()
		log.Info("the API server does not answer yet; trying again. Check that it runs, and the address in the kubeconfig",
			"waitsFor", awaited, "again", delay.Round(time.Millisecond).String(), "reason", err.Error())
		if Sleep(ctx, delay) != nil {
			return err
		}
	}
}

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
		(isURL || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsTimeout(err) ||
			utilnet.IsProbableEOF(err) || errors.Is(err, context.DeadlineExceeded))
}

// Vanished reports whether an object was deleted between two requests, or does not exist yet. The next pass finds it or
// creates it again. A missing namespace is another matter.
func Vanished(err error) bool { return apierrors.IsNotFound(err) && !NamespaceMissing(err) }

// NamespaceMissing reports whether a namespace does not exist, so that nothing can be created in it.
func NamespaceMissing(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && (details.Kind == "namespaces" || details.Kind == "namespace")
}

// RefusedError is an error that waiting does not resolve.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }
func (e *RefusedError) Unwrap() error { return e.Err }
