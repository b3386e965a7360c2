package eirinix

// This file is about the origin of certificates: a CA of our own in a Secret, or a source elsewhere. Package
// internal/controller looks after them.

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	"code.cloudfoundry.org/eirinix/internal/certsource"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/controller"
	"code.cloudfoundry.org/eirinix/internal/serving"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// newCertificates is called after the connection is made. cache holds the copies of the objects that are followed.
func (m *ExtensionManager) newCertificates(cache cluster.Cache, log logr.Logger) (controller.Certificates, error) {
	clients, err := m.clients()
	if err != nil {
		return nil, err
	}
	o, namespace := m.GetManagerOptions(), m.secretNamespace()
	if source := m.certificateSource(); source != nil {
		config, err := m.ownConfig()
		if err != nil {
			return nil, err
		}
		served := certsource.NewServed(source.source(certificateSite{
			config: config, namespace: namespace, fingerprint: o.OperatorFingerprint, hosts: o.calledHosts(), log: log, now: time.Now,
		}))
		served.Hosts, served.AtOnce, served.Log = o.calledHosts(), m.host != nil, log
		return &controller.Issued{Served: served, Retain: o.retain()}, nil
	}
	leaf := serving.NewLeaf(o.servingHosts(), o.leafLifetime(), nil)
	leaf.Key, leaf.ServerTime = ca.KeyAlgorithm(o.KeyAlgorithm), m.api.ServerTime
	secrets := clients.CoreV1().Secrets(namespace)
	return &controller.OwnCA{
		Store: &certsecret.Store{
			Secrets: cluster.SeenSecrets{SecretInterface: secrets, Cache: cache}, Namespace: namespace, Name: o.SetupCertificateName, Lifetime: o.caLifetime(),
			Key: ca.KeyAlgorithm(o.KeyAlgorithm), ServerTime: m.api.ServerTime, Now: m.api.Earlier, Log: log,
			Cached: func(ctx context.Context) (*corev1.Secret, error) {
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: o.SetupCertificateName}}
				return secret, cache.Get(ctx, secret)
			},
		},
		Leaf: leaf, SetUp: *o.SetupCertificate, Retain: o.retain(), Log: log, Now: m.api.Earlier,
	}, nil
}

// certificateSource is the source of certificates elsewhere; nil for a CA of our own.
func (m *ExtensionManager) certificateSource() CertificateSource {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.options.Certificates != nil:
		return m.options.Certificates
	case m.host != nil:
		return hostFiles(m.hostOptions)
	}
	return nil
}

// A RotateOption changes what RotateCA does.
type RotateOption func(*rotation)

type rotation struct{ distrust bool }

// Distrust is for a key that may have leaked: the old CA stays trusted only for the seconds that replicas need to move to
// the new one, instead of the lifetime of a serving certificate. RotateCA then returns when API servers do not trust the
// old one any more. Replicas that may not watch the Secret, but only get it, look every 30 seconds, and calls that reach
// one of them may fail until then. In a split deployment, call RegisterExtensions afterwards, which publishes.
func Distrust(r *rotation) { r.distrust = true }

// RotateCA replaces the CA by a new one, without a failed call, and returns when the new one signs. The old one stays
// trusted for the lifetime of a serving certificate and is dropped then; until that, RotateCA waits for its turn. It
// works with the replicas that run, or alone; any of them finishes what it began. The end of ctx ends the wait, not the
// rotation. A program that does not serve changes the Secret and the caBundles, and nothing else.
//
// The same can be asked for with the annotation eirinix.cloudfoundry.org/rotate-ca on the certificate Secret: each new
// value stands for one rotation.
func (m *ExtensionManager) RotateCA(ctx context.Context, opts ...RotateOption) error {
	var r rotation
	for _, o := range opts {
		o(&r)
	}
	if source := m.certificateSource(); source != nil {
		return fmt.Errorf("eirinix: RotateCA: the certificates come from %s; rotate the CA where they are issued, and it is taken over from there", source)
	}
	loop, err := m.rotator(ctx)
	if err != nil {
		return prefixed(err)
	}
	if err := loop.Rotate(ctx, r.distrust); err != nil {
		return fmt.Errorf("eirinix: RotateCA: %w", err)
	}
	return nil
}

// rotator returns the controller that runs, or one that writes caBundles only.
func (m *ExtensionManager) rotator(ctx context.Context) (*controller.Controller, error) {
	if p := m.program.Load(); p != nil {
		return p.controller, nil
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	log := m.logr()
	p, err := m.newProgram(nil, log)
	if err != nil {
		return nil, err
	}
	loop := p.newController(resolved{}, webhookconf.Options{Fingerprint: m.GetManagerOptions().OperatorFingerprint}, func(c *controller.Config) {
		c.Leases, c.OnlyTrust = nil, true
	})
	return loop, cluster.Retry(ctx, log, "the certificate Secret", loop.Obtain)
}
