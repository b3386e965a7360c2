package eirinix

// This file sets up the certificates, either with a CA of our own in a Secret or from a CertificateSource, and rotates
// our own CA. Package internal/controller maintains them.

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

// newCertificates returns the certificates that the options select. It is called after the connection has been made.
// cache holds copies of the objects that the program follows.
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

// certificateSource returns the external source of the serving certificates, or nil if the Manager issues them from a
// CA of its own.
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

// A RotateOption changes how RotateCA rotates.
type RotateOption func(*rotation)

type rotation struct{ distrust bool }

// Distrust makes RotateCA drop the old CA quickly, for a key that may have leaked. The old CA stays trusted only for
// the seconds in which the replicas switch to the new one, and not for Rotation.Retain. RotateCA then returns once API
// servers no longer trust the old CA.
//
// Replicas that have the right to get but not to watch the Secret check it every 30 seconds. Calls that reach such a
// replica can fail until then. In a split deployment, call RegisterExtensions afterwards to publish the new CA.
func Distrust(r *rotation) { r.distrust = true }

// RotateCA replaces the CA with a new one, without failing a single call, and returns once the new CA signs. The old CA
// stays trusted for Rotation.Retain, by default a bit more than the lifetime of a serving certificate, and is then
// dropped. A further RotateCA waits until then.
//
// RotateCA works alongside running replicas or without any. If it is interrupted, any replica finishes the rotation.
// When ctx ends, RotateCA stops waiting, but the rotation goes on. A program that does not serve changes only the
// Secret and the caBundles.
//
// The annotation eirinix.cloudfoundry.org/rotate-ca on the certificate Secret requests the same. Each new value
// triggers one rotation.
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

// rotator returns the running controller, or a new one that writes only caBundles.
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
