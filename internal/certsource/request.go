package certsource

// This file handles one request to a signer, from the creation of its key to its end.

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/cluster"
)

// errUnsent is wrapped while it is unknown whether the API server has received the request.
var errUnsent = errors.New("the API server did not take the request")

// request is one CertificateSigningRequest and its key. It is never printed as a whole, so that the key is in no log.
type request struct {
	name  string
	names ca.Hosts
	key   crypto.Signer
	pem   []byte
	ended bool // the request can no longer succeed
}

func (r *request) empty() *certificatesv1.CertificateSigningRequest {
	return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: r.name}}
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
	return &request{
		name:  k.NamePrefix + "-" + strings.ToLower(rand.Text()[:10]),
		names: names,
		key:   key,
		pem:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
	}, nil
}

func (k *requester) object(r *request) *certificatesv1.CertificateSigningRequest {
	csr := r.empty()
	csr.Spec = certificatesv1.CertificateSigningRequestSpec{
		Request:    r.pem,
		SignerName: k.SignerName,
		Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
	}
	if k.Lifetime != 0 {
		csr.Spec.ExpirationSeconds = new(int32(k.Lifetime / time.Second))
	}
	return csr
}

// ask sends a request and follows it to its end. It returns nil once a certificate was accepted, or if ctx ends while
// it waits.
func (k *requester) ask(ctx context.Context) error {
	if k.open == nil || k.open.ended {
		r, err := k.newRequest()
		if err != nil {
			return err
		}
		k.open = r
	}
	r := k.open
	if err := k.create(ctx, r); err != nil {
		return err
	}
	err := k.follow(ctx, r)
	r.ended = ctx.Err() == nil
	return err
}

// create sends a request. Its name is unique, so sending it twice creates one object.
func (k *requester) create(ctx context.Context, r *request) error {
	_, err := k.requests.Create(ctx, k.object(r), metav1.CreateOptions{})
	switch {
	case err == nil:
		k.Log.Info("requested a certificate", "request", r.name, "signer", k.SignerName, "hosts", r.names.All())
		return nil
	case apierrors.IsAlreadyExists(err):
		return nil // created by an attempt whose response was lost; follow checks whether it is ours
	case apierrors.IsForbidden(err):
		k.open = nil
		return fmt.Errorf("no certificate can be requested; grant create, get, list and watch on certificatesigningrequests: %w", err)
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
			pending = fmt.Errorf("request %q (needs get, or list and watch, on certificatesigningrequests): %w", r.name, pending)
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
	if string(csr.Spec.Request) != string(r.pem) {
		return nil, fmt.Errorf("request %q was deleted before a certificate was issued", r.name)
	}
	if c := condition(csr, certificatesv1.CertificateDenied); c != nil {
		return nil, fmt.Errorf("request %q was denied (%s); ask who approves the requests of this signer, or correct what they object to", r.name, said(c))
	}
	if c := condition(csr, certificatesv1.CertificateFailed); c != nil {
		return nil, fmt.Errorf("the signer failed to issue a certificate for request %q (%s); correct the request, or look at the signer's log", r.name, said(c))
	}
	if len(csr.Status.Certificate) > 0 {
		return nil, k.accept(r, csr.Status.Certificate)
	}
	if condition(csr, certificatesv1.CertificateApproved) != nil {
		return fmt.Errorf("request %q is approved, and the signer has not issued a certificate yet; see that it runs", r.name), nil
	}
	return fmt.Errorf("request %q waits for approval; approve it with: kubectl certificate approve %s", r.name, r.name), nil
}

// accept stores an issued certificate, or returns the reason why it can never be used.
func (k *requester) accept(r *request, chainPEM []byte) error {
	certificate, err := pair(chainPEM, r.key)
	if errors.Is(err, ca.ErrKeyMismatch) {
		return fmt.Errorf("the certificate in request %q is refused, because it is for another key than the one that was sent; have the signer mended", r.name)
	}
	if err == nil {
		err = errors.Join(checkNames(certificate.Leaf, r.names), checkUsage(certificate.Leaf))
	}
	if err != nil {
		return fmt.Errorf("the certificate in request %q is refused: %w", r.name, err)
	}
	if k.out.now().After(certificate.Leaf.NotAfter) {
		return fmt.Errorf("the certificate in request %q is refused, because it ended at %s; check the clocks of this machine and of the signer",
			r.name, stamp(certificate.Leaf.NotAfter))
	}
	k.take(certificate)
	k.Log.Info("a certificate was issued", "request", r.name, "signer", k.SignerName,
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
