// Package certsource provides serving certificates that the library does not create itself. They come from mounted or
// otherwise written files (Files), a Secret that an issuer maintains (Secret), or a signer behind the
// certificates.k8s.io API (CSR).
//
// Each of these is a Source. It follows its input for as long as it runs, and delivers a certificate together with the
// CA certificates that verify it. It never delivers one that a client with this bundle would refuse. If the input is
// broken, half written or late, the source reports it with a remedy, and the last good certificate stays in use.
// Private keys never appear in a log or an error.
package certsource

import (
	"context"
	"fmt"
	"sync"
	"time"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/lograte"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

// The default names of the certificate, its key and its CA, in files and in Secrets. They are those of a
// kubernetes.io/tls Secret, with the CA under the key that cert-manager uses.
const (
	defaultCert = "tls.crt"
	defaultKey  = "tls.key"
	defaultCA   = "ca.crt"
)

// DefaultPoll is the interval at which a source checks its input without a notification of a change, because
// certificates change with time.
const DefaultPoll = 5 * time.Second

// A Source delivers material.
//
// Run blocks until ctx ends and then returns nil. It returns an error, at once, only if the connection cannot be used. It
// needs valid fields. It must not be called concurrently. Both callbacks are called from Run's goroutine, so they should
// be quick. Neither is called after Run has returned.
//
// The deliver callback receives every new material that Verify accepts. When a reason to wait is gone, it receives the
// last one again. The waiting callback receives the reason while there is no material yet or the newest one is
// unusable. It is called when the reason appears or changes, and again every minute. In the meantime the last delivered
// material must stay in use, expired or not. A CSR also calls waiting while a renewal is pending.
type Source interface {
	Run(ctx context.Context, deliver func(Material), waiting func(error)) error

	// Bundle reads, once and now, the CAs that must be trusted for the certificates of this source, in PEM. It neither
	// requests a certificate nor reads a key. It is for a program that registers webhooks and leaves serving to another
	// one. It needs valid fields. The error describes the remedy.
	Bundle(ctx context.Context) ([]byte, error)

	// Validate returns an error that describes an invalid field.
	Validate() error

	String() string // names the input in logs
}

// newFeed returns the callbacks of a Run, for a source with these hosts and this clock.
func newFeed(hosts []string, now func() time.Time, deliver func(Material), waiting func(error)) *feed {
	return &feed{hosts: hosts, now: now, deliver: deliver, waiting: waiting, reports: lograte.Limiter{Now: now}}
}

// feed calls the callbacks of Run: deliver once for every material, waiting at most once a minute for the same reason.
type feed struct {
	hosts   []string
	now     func() time.Time
	deliver func(Material)
	waiting func(error)

	last    Material // as delivered; its Certificate is nil before the first delivery
	waits   bool     // a reason to wait was reported after the last delivery
	reports lograte.Limiter

	texts  texts // the input of parsed and bad
	parsed Material
	bad    error
}

// offer delivers material if it is good and new. It returns an error if it is not good.
func (f *feed) offer(m Material) error {
	if err := m.Verify(f.hosts, f.now()); err != nil {
		return err
	}
	if f.waits || !m.equal(f.last) {
		f.waits, f.last = false, m
		f.reports.Forget("")
		f.deliver(m)
	}
	return nil
}

// refresh delivers material if it is good and new, and does nothing otherwise.
func (f *feed) refresh(m Material) {
	if !m.equal(f.last) && m.Verify(f.hosts, f.now()) == nil {
		f.last = m
		f.deliver(m)
	}
}

// offerTexts parses texts and offers the result. It parses the same texts only once, because checking a large RSA key
// is expensive.
func (f *feed) offerTexts(t texts) error {
	if unread := f.bad == nil && f.parsed.Certificate == nil; unread || !f.texts.equal(t) {
		f.texts = t
		f.parsed, f.bad = t.parse()
	}
	if f.bad != nil {
		return f.bad
	}
	return f.offer(f.parsed)
}

// wait reports a reason to wait, unless the same one was reported less than a minute ago.
func (f *feed) wait(why error) {
	if _, ok := f.reports.Allow("", why.Error()); ok {
		f.waits = true
		f.waiting(why)
	}
}

// follow keeps the copies of objects up to date. It calls look after every change, and every poll even without one. It
// returns when look returns true or ctx ends.
func follow(ctx context.Context, objects *cluster.Objects, poll time.Duration, look func() (done bool)) {
	changed := make(chan struct{}, 1)
	objects.Notify(func() { wait.Signal(changed) }) // a pending look observes this change too
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { objects.Run(ctx) })
	defer following.Wait()
	defer cancel()
	for wait.SleepUnless(ctx, poll, changed) == nil && ctx.Err() == nil && !look() {
	}
}

// bundleOf completes Bundle of a source: it parses the CA certificates, unless reading them has failed.
func bundleOf(s Source, t text, err error) (bundle []byte, _ error) {
	if err == nil {
		bundle, err = t.bundle()
	}
	return bundle, about(s, err)
}

// about names the source in an error.
func about(s Source, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", s, err)
}
