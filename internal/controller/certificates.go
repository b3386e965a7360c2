package controller

// This file is the interface between the loop and the two origins of certificates: a CA of our own (ownca.go), and an
// issuer elsewhere (issued.go).

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"
)

// Certificates provides this process's serving certificate and the CAs that verify it. GetCertificate and Verify are safe
// for concurrent use; the other methods are for one goroutine at a time.
type Certificates interface {
	// String names the origin in logs and errors.
	fmt.Stringer
	// Obtain returns when there is a certificate to serve. With wait it waits, and says for what, where others make it.
	Obtain(ctx context.Context, o Observation, wait bool) error
	// ObtainTrust returns when it is known what must be trusted, for a program that serves nothing.
	ObtainTrust(ctx context.Context, o Observation) error
	// Run keeps the certificate up to date until ctx ends. It may be called before Obtain.
	Run(ctx context.Context)
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Verify reports why an API server that trusts this caBundle refuses what is served here.
	Verify(bundle []byte) error

	look(ctx context.Context, c *Controller, o Observation) (Trust, error)
	// need reads anew what every caBundle must hold, after the configurations have been read.
	need(ctx context.Context, o Observation) ([]byte, error)
	// verifyRecorded is Verify for what the registering half of a deployment has recorded.
	verifyRecorded() error
	// othersTrusted reports whether API servers with this caBundle trust what other replicas serve.
	othersTrusted(bundle []byte, now time.Time) bool
	leaf() *x509.Certificate
}

// Trust is what certificates ask of the loop.
type Trust struct {
	Want      []byte // every caBundle must hold these CAs
	Tolerated []byte // and may hold these
	Lacks     string // why a caBundle must be written at once; empty when it need not
	Excess    string // why a CA may leave a caBundle
	Keep      func(live []byte) []byte
	// Distrusted says that CAs which are not needed leave at once.
	Distrusted bool

	Do      func(context.Context) error // the next step of a rotation, or a correction of the Secret; nil for none
	Reason  string
	Blocked string    // what this process may not do, and the remedy
	Again   time.Time // when to look again
	Waiting error     // why no newer certificate is served
	own     *ownStatus
}
