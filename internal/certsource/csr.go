package certsource

// This file is the Source that asks a signer of the certificates.k8s.io API: what is configured, and when to ask.

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/go-logr/logr"
	certificatesv1client "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/cluster"
)

const (
	// DefaultRetry is the delay before a request that follows one which came to nothing.
	DefaultRetry = 10 * time.Second

	// DefaultNamePrefix begins the names of requests.
	DefaultNamePrefix = "eirinix-serving"

	// maxRetries bounds the delay, which doubles every time, in units of the first one: an hour by default.
	maxRetries = 360

	// minLifetime is the API's own bound on expirationSeconds.
	minLifetime = 10 * time.Minute

	// rereadTrust is how often the trusted CAs are read again while they verify the certificate.
	rereadTrust = time.Minute

	// trustTimeout bounds one reading of them.
	trustTimeout = 30 * time.Second
)

// CSR is a Source that makes a key, asks a signer for a certificate with a CertificateSigningRequest, waits
// for somebody to approve it and for the signer to issue, and asks again, with another key, at two thirds of
// the certificate's life (give or take a tenth). Keys stay in memory, so that every process, and every start
// of it, asks for itself.
//
// It needs create and get on certificatesigningrequests. With list and watch it notices at once what becomes
// of a request, and within half a minute without. With delete it removes its requests when they are done;
// otherwise kube-controller-manager does, after an hour (a day for those nobody approves).
//
// A request that is denied, fails, is deleted or gives a certificate that cannot be used is followed by
// another one after a delay, which doubles from Retry to 360 times that. A certificate that only the trusted
// CAs do not verify is kept, and looked at again: they may come late. Its fields must not change while it runs.
type CSR struct {
	Config     *rest.Config // bounds the time of requests
	SignerName string       // such as example.org/webhook-serving
	Hosts      []string     // that the certificate must be for (see ca.ParseHosts)
	NamePrefix string       // of the requests' names; empty means DefaultNamePrefix

	// The CA certificates of the signer, in PEM. The API does not tell them: give them as text, or a function
	// that reads them, say from a ClusterTrustBundle or a ConfigMap. It is called every minute, and every
	// Poll while what it returned last does not verify the certificate. With both, both are trusted.
	TrustPEM []byte
	Trust    func(context.Context) ([]byte, error)

	Lifetime time.Duration // asked for, at least ten minutes; 0 leaves it to the signer, who may give another one
	Retry    time.Duration // before the next request after one that came to nothing; 0 means DefaultRetry
	Poll     time.Duration // between two looks without a change; 0 means DefaultPoll
	Log      logr.Logger   // the zero value is silent
	Now      func() time.Time
}

// Validate says what is wrong with the fields.
func (c *CSR) Validate() error {
	var errs []error
	if c.Config == nil {
		errs = append(errs, errors.New("it needs the Config of a connection"))
	}
	domain, path, found := strings.Cut(c.SignerName, "/")
	switch {
	case !found || domain == "" || path == "":
		errs = append(errs, fmt.Errorf("SignerName is %q; set it to a domain and a path, such as example.org/webhook-serving", c.SignerName))
	case domain == "kubernetes.io":
		errs = append(errs, fmt.Errorf("SignerName is %q; use a signer of your own: those of Kubernetes do not issue serving certificates for webhooks", c.SignerName))
	}
	if _, err := ca.ParseHosts(c.Hosts); err != nil {
		errs = append(errs, err)
	}
	if len(c.TrustPEM) == 0 && c.Trust == nil {
		errs = append(errs, errors.New("set TrustPEM or Trust to the signer's CA certificates: the API does not tell them"))
	}
	if len(c.TrustPEM) > 0 && len(ca.SplitBundle(c.TrustPEM)) == 0 {
		errs = append(errs, errors.New("TrustPEM holds no readable PEM certificate; set it to the signer's CA certificates"))
	}
	if c.Lifetime != 0 && (c.Lifetime < minLifetime || c.Lifetime > math.MaxInt32*time.Second) {
		errs = append(errs, fmt.Errorf("the Lifetime is %s; set it to at least %s, as the API demands, and less than 68 years, or leave it out", c.Lifetime, minLifetime))
	}
	if c.Retry < 0 {
		errs = append(errs, fmt.Errorf("the Retry must not be negative; leave it out for %s", DefaultRetry))
	}
	if err := errors.Join(append(errs, checkPoll(c.Poll))...); err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	return nil
}

// Bundle implements Source.
func (c *CSR) Bundle(ctx context.Context) ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	bundle, err := c.readTrust(ctx)
	if err == nil && bundle == nil {
		err = errors.New("there is no CA certificate of the signer yet; TrustPEM or Trust must give it")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c, err)
	}
	return bundle, nil
}

func (c *CSR) readTrust(ctx context.Context) ([]byte, error) {
	if c.Trust == nil {
		return ca.Bundle(c.TrustPEM), nil
	}
	ctx, cancel := context.WithTimeout(ctx, trustTimeout)
	defer cancel()
	text, err := c.Trust(ctx)
	if err != nil {
		return nil, fmt.Errorf("the CA certificates of the signer cannot be read: %w", err)
	}
	return ca.Bundle(c.TrustPEM, text), nil
}

// String names the signer.
func (c *CSR) String() string { return "signer " + c.SignerName }

// Run implements Source. When ctx ends, a request that is still open is deleted, which takes two seconds at
// most.
func (c *CSR) Run(ctx context.Context, deliver func(Material), waiting func(error)) error {
	if err := c.Validate(); err != nil {
		return err
	}
	client, err := certificatesv1client.NewForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	k := &keeping{
		CSR: c, requests: client.CertificateSigningRequests(),
		out: &feed{hosts: c.Hosts, now: clock(c.Now), deliver: deliver, waiting: waiting},
		now: clock(c.Now), poll: cmp.Or(c.Poll, DefaultPoll),
	}
	defer k.cleanUp(context.WithoutCancel(ctx))
	k.run(ctx)
	return nil
}

// keeping is one run of a CSR.
type keeping struct {
	*CSR
	requests certificatesv1client.CertificateSigningRequestInterface
	out      *feed
	now      func() time.Time
	poll     time.Duration

	issued  *tls.Certificate // the newest one; the key matches, and the hosts
	renewAt time.Time        // when to ask for the next one
	failed  int              // requests in a row that came to nothing

	open *request // not known to be deleted; may have come to nothing
	mute bool     // it was said that requests may not be deleted

	trusted   []byte    // as read last
	trustedAt time.Time // when that was; zero after it did not do
}

// run asks when a certificate is due, and judges the one in hand in between.
func (k *keeping) run(ctx context.Context) {
	for ctx.Err() == nil {
		if k.issued != nil && k.now().Before(k.renewAt) {
			k.until(ctx, k.renewAt, k.judge)
			continue
		}
		err := k.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			continue
		}
		next := k.delay(err)
		err = fmt.Errorf("%s: %w; the next request follows in about %s%s", k, err, next.Round(time.Second), k.inUse())
		k.until(ctx, k.now().Add(cluster.Jittered(next-next/6)), func(ctx context.Context) {
			k.out.wait(err)
			k.keepTrust(ctx)
		})
	}
}

// delay is how long to wait after a request that came to nothing.
func (k *keeping) delay(err error) time.Duration {
	if errors.Is(err, errUnsent) {
		return k.poll // repeating it makes no second request
	}
	retry := cmp.Or(k.Retry, DefaultRetry)
	k.failed++
	return min(retry<<min(k.failed-1, 9), maxRetries*retry) // 1<<9 is more than maxRetries; further shifts would overflow
}

// until calls each now and then until the time has come. It looks at the clock every poll: the one by which
// certificates end goes on while a machine is suspended, and timers stand still.
func (k *keeping) until(ctx context.Context, at time.Time, each func(context.Context)) {
	for ctx.Err() == nil {
		left := at.Sub(k.now())
		if left <= 0 {
			return
		}
		each(ctx)
		_ = cluster.Sleep(ctx, min(left, k.poll))
	}
}

// take keeps a new certificate, and decides when to ask for the next one.
func (k *keeping) take(certificate *tls.Certificate) {
	now, retry := k.now(), cmp.Or(k.Retry, DefaultRetry)
	k.issued, k.failed, k.trustedAt = certificate, 0, time.Time{}
	k.renewAt = ca.RenewAt(certificate.Leaf, rand.Float64()*2-1)
	if k.renewAt.Before(now.Add(retry)) {
		// Most of its life is over already: the signer backdates it, or its CA ends. Asking at once would only give
		// the same again.
		k.renewAt = now.Add(max(retry, certificate.Leaf.NotAfter.Sub(now)/3*2))
	}
}

// judge offers the certificate in hand.
func (k *keeping) judge(ctx context.Context) {
	bundle, err := k.bundle(ctx)
	if err == nil {
		err = k.out.offer(Material{Certificate: k.issued, Bundle: bundle})
		if err != nil {
			err = fmt.Errorf("the signer has issued, but: %w", err)
		}
	}
	if err != nil {
		k.trustedAt = time.Time{}
		if ctx.Err() == nil {
			k.out.wait(fmt.Errorf("%s: %w", k, err))
		}
	}
}

// keepTrust delivers what is in use with another bundle when that has changed, while something else waits.
func (k *keeping) keepTrust(ctx context.Context) {
	if k.issued == nil {
		return
	}
	if bundle, err := k.bundle(ctx); err == nil {
		k.out.refresh(Material{Certificate: k.issued, Bundle: bundle})
	}
}

// bundle returns the trusted CAs, read anew when they are a minute old or did not do.
func (k *keeping) bundle(ctx context.Context) ([]byte, error) {
	if k.Trust == nil {
		return ca.Bundle(k.TrustPEM), nil
	}
	if now := k.now(); k.trustedAt.IsZero() || now.Sub(k.trustedAt).Abs() >= rereadTrust {
		bundle, err := k.readTrust(ctx)
		if err != nil {
			return nil, err
		}
		k.trusted, k.trustedAt = bundle, now
	}
	return k.trusted, nil
}
