// Package certsource is where a serving certificate comes from when the library does not make it itself:
// files that something mounts or writes (Files), a Secret that an issuer keeps (Secret), or a signer behind
// the certificates.k8s.io API (CSR).
//
// Each is a Source: it follows what it reads for as long as it runs, and delivers a certificate together with
// the CA certificates that verify it, never one that a client with this bundle would refuse. What is broken,
// half written or late is reported with a remedy, and the last good certificate stays in use. Private keys
// stand in no log and in no error.
package certsource

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"

	"code.cloudfoundry.org/eirinix/internal/cluster"
)

// The names under which a certificate, its key and its CA are looked for, in files and in Secrets. They are
// those of a kubernetes.io/tls Secret, with the CA where cert-manager puts it.
const (
	DefaultCert = "tls.crt"
	DefaultKey  = "tls.key"
	DefaultCA   = "ca.crt"
)

// DefaultPoll is how often a source looks at what it has when nothing tells it of a change: time changes certificates.
const DefaultPoll = 5 * time.Second

// A Source delivers material.
//
// Run blocks until ctx ends and returns nil then; it returns an error, at once, only when a field of the source
// is wrong. It is called once at a time. Both callbacks are called from Run's goroutine, so they should be
// quick, and none is called after Run has returned.
//
// deliver is called for every new material that Verify accepts, and once more with the last one when a
// reason to wait has gone away. waiting is called with the reason while there is no material yet or the
// newest one is unusable: when the reason appears or changes, and again every minute. What was
// delivered last is then to stay in use, expired or not. A CSR that waits for a renewal says so too.
type Source interface {
	Run(ctx context.Context, deliver func(Material), waiting func(error)) error

	// Bundle reads once, now, what must be trusted for the certificates of this source, in PEM, without asking for one
	// or reading a key: for a program that registers, and leaves serving to another one. What cannot be read is an
	// error with its remedy.
	Bundle(ctx context.Context) ([]byte, error)

	// Validate says what is wrong with the fields.
	Validate() error

	String() string // for logs: what it reads
}

// Each kind of source is one.
var (
	_ Source = (*Files)(nil)
	_ Source = (*Secret)(nil)
	_ Source = (*CSR)(nil)
)

// remindEvery is how often a reason to wait that lasts is told again.
const remindEvery = time.Minute

// feed is what sources tell their caller: every material once, every reason to wait once a minute.
type feed struct {
	hosts   []string
	now     func() time.Time
	deliver func(Material)
	waiting func(error)

	last   Material  // as delivered; its Certificate is nil before
	reason string    // to wait, as told last; empty when there is none
	told   time.Time // when

	texts  texts // of parsed and bad
	parsed Material
	bad    error
}

// offer delivers material if it is good and new, or else says what is wrong with it.
func (f *feed) offer(m Material) error {
	if err := m.Verify(f.hosts, f.now()); err != nil {
		return err
	}
	if f.reason != "" || !f.last.equal(m) {
		f.reason, f.last = "", m
		f.deliver(m)
	}
	return nil
}

// refresh delivers material that is good and new without a word on anything else.
func (f *feed) refresh(m Material) {
	if !f.last.equal(m) && m.Verify(f.hosts, f.now()) == nil {
		f.last = m
		f.deliver(m)
	}
}

// offerTexts is offer for what was read somewhere. The same texts are taken apart only once: checking a
// large RSA key is work.
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

// wait tells a reason to wait.
func (f *feed) wait(why error) {
	now := f.now()
	if why.Error() == f.reason && now.Sub(f.told).Abs() < remindEvery {
		return
	}
	f.reason, f.told = why.Error(), now
	f.waiting(why)
}

// follow keeps the copies up to date, and calls look with every change, and every poll even without one. It returns when
// look returns true or ctx ends.
func follow(ctx context.Context, objects *cluster.Objects, poll time.Duration, look func() (done bool)) {
	changed := make(chan struct{}, 1)
	objects.Notify(func() {
		select {
		case changed <- struct{}{}:
		default: // the look that is due sees this change too
		}
	})
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { objects.Run(ctx) })
	defer following.Wait()
	defer cancel()
	every := time.NewTicker(poll)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-changed:
		case <-every.C:
		}
		if ctx.Err() != nil || look() {
			return
		}
	}
}

// equal tells whether both would be served and trusted alike. The key is told by its certificate.
func (m Material) equal(other Material) bool {
	return sameChain(m.Certificate, other.Certificate) && string(m.Bundle) == string(other.Bundle)
}

func sameChain(a, b *tls.Certificate) bool {
	if a == nil || b == nil {
		return a == b
	}
	if len(a.Certificate) != len(b.Certificate) {
		return false
	}
	for i := range a.Certificate {
		if string(a.Certificate[i]) != string(b.Certificate[i]) {
			return false
		}
	}
	return true
}

func clock(now func() time.Time) func() time.Time {
	if now == nil {
		return time.Now
	}
	return now
}

// checkPoll is for the Validate of every source.
func checkPoll(poll time.Duration) error {
	if poll < 0 {
		return errors.New("the Poll of a certificate source must not be negative; leave it out for " + DefaultPoll.String())
	}
	return nil
}
