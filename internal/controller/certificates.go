package controller

// This file defines the interface between the control loop and the two origins of certificates: a CA of our own
// (ownca.go) and an external issuer (issued.go).

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"

	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

// Certificates provides this process's serving certificate and the CAs that verify it. GetCertificate and Verify are safe
// for concurrent use; the other methods are for one goroutine at a time.
type Certificates interface {
	// String names the origin in logs and errors.
	fmt.Stringer
	// Obtain returns once it has a certificate to serve. With wait set, it waits for a certificate that another process
	// makes, and logs the reason for the wait.
	Obtain(ctx context.Context, o Observation, wait bool) error
	// ObtainTrust returns once the CAs to trust are known, for a program that serves nothing.
	ObtainTrust(ctx context.Context, o Observation) error
	// Run keeps the certificate up to date until ctx ends. It can be called before Obtain.
	Run(ctx context.Context)
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Verify reports why an API server that trusts this caBundle rejects the served certificate.
	Verify(bundle []byte) error
	// Certificate returns the served certificate, or nil if there is none yet.
	Certificate() *x509.Certificate

	look(ctx context.Context, c *Controller, o Observation) (Plan, error)
	// need rereads the CAs that every caBundle must hold. It is called after the configurations have been read.
	need(ctx context.Context, o Observation) ([]byte, error)
	// verifyRecorded is Verify against the caBundle that the registering half of a deployment has recorded.
	verifyRecorded() error
	// othersTrusted reports whether API servers with this caBundle trust the certificates of other replicas.
	othersTrusted(bundle []byte, now time.Time) bool
}

// Plan holds the actions that the certificates require of the control loop.
type Plan struct {
	Want      []byte // CAs that every caBundle must hold
	Tolerated []byte // further CAs that a caBundle can hold
	Missing   string // why a caBundle must be written at once; empty if no write is needed
	Surplus   string // why a CA can leave a caBundle
	Retain    func(live []byte) []byte
	// Distrusted removes CAs that are not needed from the caBundles at once.
	Distrusted bool

	Apply     func(context.Context) error // the next step of a rotation, or a correction of the Secret; nil for none
	Reason    string
	Blocked   string            // the action that this process has no right to take, and the remedy
	RequeueAt time.Time         // when to look again
	Waiting   error             // why no newer certificate is served
	own       *certsecret.State // the state of a CA of our own; nil for an external issuer
}
