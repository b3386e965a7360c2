package certsource

// This file holds the Source that requests certificates from a signer of the certificates.k8s.io API: its
// configuration, the schedule of its requests, and each request from the creation of its key to its end.

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certificatesv1client "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

const (
	// defaultRetry is the delay before the next request after a failed one.
	defaultRetry = 10 * time.Second

	// maxRetries limits the delay, which doubles each time, in units of the first one. The default limit is an hour.
	maxRetries = 360

	// minLifetime is the API's own minimum of expirationSeconds.
	minLifetime = 10 * time.Minute

	// rereadTrust is the interval at which the trusted CAs are read again while they verify the certificate.
	rereadTrust = time.Minute

	// trustTimeout limits one read of the trusted CAs.
	trustTimeout = 30 * time.Second
)

// CSR is a Source that creates a key and requests a certificate from a signer with a CertificateSigningRequest. It
// waits until the request is approved and the signer issues the certificate. It requests the next one, with another
// key, at two thirds of the certificate's lifetime (plus or minus a tenth). Keys stay in memory, so each process sends
// its own requests, and so does each restart.
//
// CSR needs create, list and watch on certificatesigningrequests. With get instead of list and watch, it observes the
// outcome of a request within half a minute, not at once. It deletes no request: kube-controller-manager does, an hour
// after the approval or denial, or after a day without either.
//
// A request fails if it is denied or deleted, if the signer fails, or if the issued certificate is unusable. Another
// one follows after a delay, which doubles from Retry to 360 times Retry. If only the trusted CAs fail to verify a
// certificate, it is kept and checked again, because the CAs can arrive late. The fields must not change while the CSR
// runs.
type CSR struct {
	Config     *rest.Config // limits the duration of requests
	SignerName string       // such as example.org/webhook-serving
	Hosts      []string     // the certificate must be valid for them (see ca.ParseHosts)
	NamePrefix string       // of the requests' names

	// The CA certificates of the signer, in PEM. The API does not provide them. Set TrustPEM to their text, or Trust to
	// a function that reads them, for example from a ClusterTrustBundle or a ConfigMap. Trust is called every minute,
	// and every Poll while its last result does not verify the certificate. With both, both are trusted.
	TrustPEM []byte
	Trust    func(context.Context) ([]byte, error)

	Lifetime time.Duration // requested, at least ten minutes; 0 leaves it to the signer, which may grant another one
	Retry    time.Duration // before the next request after a failed one; 0 means defaultRetry
	Poll     time.Duration // between two checks without a change; 0 means DefaultPoll
	Log      logr.Logger   // the zero value is silent
	Now      func() time.Time
}

// Validate returns an error that describes every invalid field.
func (c *CSR) Validate() error {
	var errs []error
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
	return about(c, errors.Join(errs...))
}

// Bundle implements Source.
func (c *CSR) Bundle(ctx context.Context) ([]byte, error) {
	bundle, err := c.readTrust(ctx)
	if err == nil && bundle == nil {
		err = errors.New("there is no CA certificate of the signer yet; TrustPEM or Trust must give it")
	}
	return bundle, about(c, err)
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

func (c *CSR) String() string { return "signer " + c.SignerName }

// Run implements Source.
func (c *CSR) Run(ctx context.Context, deliver func(Material), waiting func(error)) error {
	client, err := certificatesv1client.NewForConfig(c.Config)
	if err != nil {
		return about(c, err)
	}
	settled := *c
	settled.Poll, settled.Retry = cmp.Or(c.Poll, DefaultPoll), cmp.Or(c.Retry, defaultRetry)
	k := &requester{CSR: &settled, requests: client.CertificateSigningRequests(), out: newFeed(c.Hosts, c.Now, deliver, waiting)}
	k.run(ctx)
	return nil
}

// requester is the state of one run of a CSR.
type requester struct {
	*CSR     // with its defaults
	requests certificatesv1client.CertificateSigningRequestInterface
	out      *feed

	issued  *tls.Certificate     // the newest one; it matches the key and the hosts
	renewAt time.Time            // when to request the next one
	delays  func() time.Duration // after failed requests; nil while none has failed

	open *request // not known to be sent yet; nil for none

	trusted   []byte    // as last read
	trustedAt time.Time // when it was read; zero after it failed to verify the certificate
}

// run requests a certificate when one is due, and offers the current one in between.
func (k *requester) run(ctx context.Context) {
	for ctx.Err() == nil {
		if k.issued != nil && k.out.now().Before(k.renewAt) {
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
		k.until(ctx, k.out.now().Add(next), func(ctx context.Context) {
			k.out.wait(err)
			k.keepTrust(ctx)
		})
	}
}

// delay returns how long to wait after a failed request.
func (k *requester) delay(err error) time.Duration {
	if errors.Is(err, errUnsent) {
		return k.Poll // repeating it creates no second request
	}
	if k.delays == nil {
		least := k.Retry / 6 * 5 // jitter adds a fifth
		k.delays = wait.Backoff(least, maxRetries*least)
	}
	return k.delays()
}

// until calls each repeatedly until the time at. It reads the clock every poll. Certificates expire by a clock that
// continues while a machine is suspended, but timers stop.
func (k *requester) until(ctx context.Context, at time.Time, each func(context.Context)) {
	for ctx.Err() == nil {
		left := at.Sub(k.out.now())
		if left <= 0 {
			return
		}
		each(ctx)
		_ = wait.Sleep(ctx, min(left, k.Poll))
	}
}

// take stores a new certificate, and decides when to request the next one.
func (k *requester) take(certificate *tls.Certificate) {
	now, leaf := k.out.now(), certificate.Leaf
	k.issued, k.delays, k.trustedAt = certificate, nil, time.Time{}
	k.renewAt = leaf.NotBefore.Add(ca.RenewIn(leaf.NotAfter.Sub(leaf.NotBefore), mathrand.Float64()*2-1))
	if k.renewAt.Before(now.Add(k.Retry)) {
		// Most of its lifetime is already over: the signer backdates it, or its CA expires soon. An immediate request
		// would only return the same again.
		k.renewAt = now.Add(max(k.Retry, leaf.NotAfter.Sub(now)/3*2))
	}
}

// judge offers the current certificate with the trusted CAs.
func (k *requester) judge(ctx context.Context) {
	bundle, err := k.bundle(ctx)
	if err == nil {
		if err = k.out.offer(Material{Certificate: k.issued, Bundle: bundle}); err == nil {
			return
		}
		err = fmt.Errorf("the signer has issued, but: %w", err)
	}
	k.trustedAt = time.Time{}
	if ctx.Err() == nil {
		k.out.wait(about(k, err))
	}
}

// keepTrust delivers the certificate in use with another bundle if that has changed, while the caller waits for a
// request.
func (k *requester) keepTrust(ctx context.Context) {
	if k.issued == nil {
		return
	}
	if bundle, err := k.bundle(ctx); err == nil {
		k.out.refresh(Material{Certificate: k.issued, Bundle: bundle})
	}
}

// bundle returns the trusted CAs. It reads them again if they are a minute old or failed to verify the certificate.
func (k *requester) bundle(ctx context.Context) ([]byte, error) {
	if now := k.out.now(); k.trustedAt.IsZero() || now.Sub(k.trustedAt).Abs() >= rereadTrust {
		bundle, err := k.readTrust(ctx)
		if err != nil {
			return nil, err
		}
		k.trusted, k.trustedAt = bundle, now
	}
	return k.trusted, nil
}

// errUnsent is wrapped while it is unknown whether the API server has received the request.
var errUnsent = errors.New("the API server did not take the request")

// request is one CertificateSigningRequest and its key. It is never printed as a whole, so that the key is in no log.
type request struct {
	sent  *certificatesv1.CertificateSigningRequest
	names ca.Hosts
	key   crypto.Signer
}

func (r *request) empty() *certificatesv1.CertificateSigningRequest {
	return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: r.sent.Name}}
}

func (k *requester) newRequest() (*request, error) {
	names, err := ca.ParseHosts(k.Hosts)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a serving key: %w", err)
	}
	template := &x509.CertificateRequest{DNSNames: names.DNS, IPAddresses: names.IPs}
	if first := names.All()[0]; len(first) <= 64 { // X.520 allows no more, and clients ignore the common name
		template.Subject = pkix.Name{CommonName: first}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate request for %v: %w", names.All(), err)
	}
	r := &request{names: names, key: key, sent: &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: k.NamePrefix + "-" + strings.ToLower(rand.Text()[:10])},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: k.SignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}}
	if k.Lifetime != 0 {
		r.sent.Spec.ExpirationSeconds = new(int32(k.Lifetime / time.Second))
	}
	return r, nil
}

// ask sends a request and follows it to its end. It returns nil once a certificate was accepted, or if ctx ends while
// it waits.
func (k *requester) ask(ctx context.Context) (err error) {
	if k.open == nil {
		if k.open, err = k.newRequest(); err != nil {
			return err
		}
	}
	r := k.open
	if err := k.create(ctx, r); err != nil {
		return err
	}
	k.open = nil // whatever its end is, the next certificate needs another request
	return k.follow(ctx, r)
}

// create sends a request. Its name is unique, so sending it twice creates one object.
func (k *requester) create(ctx context.Context, r *request) error {
	_, err := k.requests.Create(ctx, r.sent, metav1.CreateOptions{})
	switch {
	case err == nil:
		k.Log.Info("requested a certificate", "request", r.sent.Name, "signer", k.SignerName, "hosts", r.names.All())
		return nil
	case apierrors.IsAlreadyExists(err):
		return nil // created by an attempt whose response was lost; follow checks whether it is ours
	case apierrors.IsForbidden(err): // it may have been created before, by an attempt whose response was lost
		return fmt.Errorf("no certificate can be requested; grant create, list and watch on certificatesigningrequests: %w", err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		k.open = nil
		return fmt.Errorf("the API server refuses the request; check SignerName, NamePrefix and Lifetime: %w", err)
	}
	return fmt.Errorf("%w: %w", errUnsent, err)
}

// follow waits until a request has ended, and returns the reason if no certificate was accepted.
func (k *requester) follow(ctx context.Context, r *request) (result error) {
	objects, err := cluster.NewObjects(k.Config, k.Log, cluster.Followed{Object: r.empty(), Needed: true})
	if err != nil {
		return err
	}
	follow(ctx, objects, k.Poll, func() bool {
		csr := r.empty()
		pending := objects.Get(ctx, csr)
		if pending == nil || apierrors.IsNotFound(pending) {
			pending, result = k.look(r, csr)
		} else {
			pending = fmt.Errorf("request %q (needs get, or list and watch, on certificatesigningrequests): %w", r.sent.Name, pending)
		}
		if pending == nil {
			return true
		}
		k.out.wait(fmt.Errorf("%s: %w%s", k, pending, k.inUse()))
		k.keepTrust(ctx)
		return false
	})
	return result
}

// look returns the state of a request. csr is empty if the request does not exist. pending is the reason to wait. It is
// nil once the request has ended. Then failed is the reason why it failed, or nil if the certificate was accepted.
func (k *requester) look(r *request, csr *certificatesv1.CertificateSigningRequest) (pending, failed error) {
	if string(csr.Spec.Request) != string(r.sent.Spec.Request) {
		return nil, fmt.Errorf("request %q was deleted before a certificate was issued", r.sent.Name)
	}
	if c := condition(csr, certificatesv1.CertificateDenied); c != nil {
		return nil, fmt.Errorf("request %q was denied (%s); ask who approves the requests of this signer, or correct what they object to", r.sent.Name, said(c))
	}
	if c := condition(csr, certificatesv1.CertificateFailed); c != nil {
		return nil, fmt.Errorf("the signer failed to issue a certificate for request %q (%s); correct the request, or look at the signer's log", r.sent.Name, said(c))
	}
	if len(csr.Status.Certificate) > 0 {
		return nil, k.accept(r, csr.Status.Certificate)
	}
	if condition(csr, certificatesv1.CertificateApproved) != nil {
		return fmt.Errorf("request %q is approved, and the signer has not issued a certificate yet; see that it runs", r.sent.Name), nil
	}
	return fmt.Errorf("request %q waits for approval; approve it with: kubectl certificate approve %s", r.sent.Name, r.sent.Name), nil
}

// accept stores an issued certificate, or returns the reason why it can never be used.
func (k *requester) accept(r *request, chainPEM []byte) error {
	certificate, err := pair(chainPEM, r.key)
	if errors.Is(err, ca.ErrKeyMismatch) {
		return fmt.Errorf("the certificate in request %q is refused, because it is for another key than the one that was sent; have the signer mended", r.sent.Name)
	}
	if err == nil {
		err = errors.Join(checkNames(certificate.Leaf, r.names), checkUsage(certificate.Leaf))
	}
	if err != nil {
		return fmt.Errorf("the certificate in request %q is refused: %w", r.sent.Name, err)
	}
	if k.out.now().After(certificate.Leaf.NotAfter) {
		return fmt.Errorf("the certificate in request %q is refused, because it ended at %s; check the clocks of this machine and of the signer",
			r.sent.Name, stamp(certificate.Leaf.NotAfter))
	}
	k.take(certificate)
	k.Log.Info("a certificate was issued", "request", r.sent.Name, "signer", k.SignerName,
		"expires", certificate.Leaf.NotAfter, "renewal", k.renewAt)
	return nil
}

// inUse returns a note on when the certificate in use expires, for messages while a renewal is pending. It is empty if
// there is none.
func (k *requester) inUse() string {
	if k.out.last.Certificate == nil {
		return ""
	}
	return fmt.Sprintf(" (the certificate in use is valid until %s)", stamp(k.out.last.Certificate.Leaf.NotAfter))
}

func condition(csr *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequestCondition {
	for i := range csr.Status.Conditions {
		if c := &csr.Status.Conditions[i]; c.Type == kind && c.Status != corev1.ConditionFalse {
			return c
		}
	}
	return nil
}

// said returns the reason and message of a condition.
func said(c *certificatesv1.CertificateSigningRequestCondition) string {
	if c.Reason != "" && c.Message != "" {
		return c.Reason + ": " + c.Message
	}
	return cmp.Or(c.Reason, c.Message, "no reason given")
}
