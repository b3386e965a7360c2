package certsecret_test

// This file runs the specs, and holds their fixtures: a strict API server, Secrets as this library and EiriniX leave them,
// and the invariants of a Secret in order.

import (
	"context"
	"crypto"
	"crypto/fips140"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"maps"
	"math/big"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

func TestCertSecret(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "internal/certsecret")
}

const (
	day  = 24 * time.Hour
	year = 365 * day

	namespace = "cf"
	name      = "eirini-x-setupcertificate"
)

// now is the moment of every spec that does not choose its own.
var now = time.Date(2030, time.May, 17, 12, 0, 0, 0, time.UTC)

var (
	background = context.Background()
	secrets    = corev1.SchemeGroupVersion.WithResource("secrets")
)

// cluster is an API server that is as strict about Secrets as the real one: client-go's tracker alone neither sets nor
// checks resourceVersion, and knows nothing of immutable Secrets.
type cluster struct {
	*fake.Clientset
	mu               sync.Mutex
	version          int
	created, updated int // successful writes only
}

// newCluster holds a Secret with this data, or none if data is nil.
func newCluster(data map[string][]byte, edit ...func(*corev1.Secret)) *cluster {
	GinkgoHelper()
	c := &cluster{Clientset: fake.NewClientset()}
	c.PrependReactor("create", "secrets", c.create)
	c.PrependReactor("update", "secrets", c.update)
	if data != nil {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: "1"}, Type: corev1.SecretTypeOpaque, Data: data}
		for _, e := range edit {
			e(secret)
		}
		Expect(c.Tracker().Add(secret)).To(Succeed())
		c.version = 1
	}
	return c
}

func (c *cluster) create(action clienttesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	secret := action.(clienttesting.CreateAction).GetObject().(*corev1.Secret).DeepCopy()
	secret.ResourceVersion = strconv.Itoa(c.version + 1)
	if err := c.Tracker().Create(secrets, secret, action.GetNamespace()); err != nil {
		return true, nil, err
	}
	c.version++
	c.created++
	return true, secret, nil
}

func (c *cluster) update(action clienttesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	secret := action.(clienttesting.UpdateAction).GetObject().(*corev1.Secret).DeepCopy()
	object, err := c.Tracker().Get(secrets, action.GetNamespace(), secret.Name)
	if err != nil {
		return true, nil, err
	}
	live := object.(*corev1.Secret)
	if secret.ResourceVersion == "" {
		return true, nil, apierrors.NewBadRequest("an update without resourceVersion would overwrite anything")
	}
	if secret.ResourceVersion != live.ResourceVersion {
		return true, nil, apierrors.NewConflict(secrets.GroupResource(), secret.Name, nil)
	}
	if live.Immutable != nil && *live.Immutable || secret.Type != live.Type {
		return true, nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), secret.Name, nil)
	}
	c.version++
	secret.ResourceVersion = strconv.Itoa(c.version)
	c.updated++
	return true, secret, c.Tracker().Update(secrets, secret, action.GetNamespace())
}

// fail answers a verb with an error, the first times only if times is not negative.
func (c *cluster) fail(verb string, times int, err error) {
	c.PrependReactor(verb, "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if times == 0 {
			return false, nil, nil
		}
		times--
		return true, nil, err
	})
}

func (c *cluster) store() *certsecret.Store { return c.storeAt(now) }

func (c *cluster) storeAt(at time.Time) *certsecret.Store {
	return &certsecret.Store{
		Secrets: c.CoreV1().Secrets(namespace), Namespace: namespace, Name: name,
		Lifetime: 10 * year, Log: logr.Discard(), Now: func() time.Time { return at },
	}
}

func (c *cluster) secret() *corev1.Secret {
	GinkgoHelper()
	return Must(c.CoreV1().Secrets(namespace).Get(background, name, metav1.GetOptions{}))
}

// edit changes the Secret behind the Store's back.
func (c *cluster) edit(change func(*corev1.Secret)) {
	GinkgoHelper()
	secret := c.secret()
	change(secret)
	Must(c.CoreV1().Secrets(namespace).Update(background, secret, metav1.UpdateOptions{}))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.updated--
}

func (c *cluster) delete() {
	GinkgoHelper()
	Expect(c.CoreV1().Secrets(namespace).Delete(background, name, metav1.DeleteOptions{})).To(Succeed())
}

// writes counts the attempts to change anything, by verb.
func (c *cluster) writes() map[string]int {
	counts := map[string]int{}
	for _, action := range c.Actions() {
		if verb := action.GetVerb(); verb != "get" && verb != "list" && verb != "watch" {
			counts[verb]++
		}
	}
	return counts
}

func without(data map[string][]byte, keys ...string) map[string][]byte {
	data = maps.Clone(data)
	for _, key := range keys {
		delete(data, key)
	}
	return data
}

func with(data map[string][]byte, key string, value []byte) map[string][]byte {
	data = maps.Clone(data)
	data[key] = value
	return data
}

var (
	eirinixCAKey   = sync.OnceValue(func() *rsa.PrivateKey { return Must(rsa.GenerateKey(rand.Reader, 2048)) })
	eirinixLeafKey = sync.OnceValue(func() *rsa.PrivateKey { return Must(rsa.GenerateKey(rand.Reader, 2048)) })
)

// ownData returns the data of a new Secret of ours.
func ownData() map[string][]byte {
	GinkgoHelper()
	c := newCluster(nil)
	restore(c.store(), nil, nil)
	return c.secret().Data
}

// eirinixData returns the data that EiriniX wrote: RSA keys in PKCS#1, a leaf without SANs. Editors change the CA.
func eirinixData(edit ...func(*x509.Certificate)) map[string][]byte {
	GinkgoHelper()
	authority := &x509.Certificate{
		SerialNumber:          big.NewInt(11),
		Subject:               pkix.Name{CommonName: "SCF CA"},
		NotBefore:             now.Add(-30 * day),
		NotAfter:              now.Add(335 * day),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	for _, e := range edit {
		e(authority)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(12), Subject: pkix.Name{CommonName: "logger.cf.svc"}, NotBefore: authority.NotBefore, NotAfter: authority.NotAfter}
	issue := func(template *x509.Certificate, key crypto.PublicKey) (text []byte) {
		fips140.WithoutEnforcement(func() { // as EiriniX, which knew nothing of it
			text = PEM("CERTIFICATE", Must(x509.CreateCertificate(rand.Reader, template, authority, key, eirinixCAKey())))
		})
		return text
	}
	return map[string][]byte{
		"ca_certificate": issue(authority, eirinixCAKey().Public()),
		"ca_private_key": PKCS1(eirinixCAKey()),
		"certificate":    issue(leaf, eirinixLeafKey().Public()),
		"private_key":    PKCS1(eirinixLeafKey()),
	}
}

// restore is Restore, which must succeed.
func restore(store *certsecret.Store, known *certsecret.State, pinned certsecret.Pinned) (*certsecret.State, certsecret.Outcome) {
	GinkgoHelper()
	state, outcome, err := store.Restore(background, known, pinned, nil)
	Expect(err).NotTo(HaveOccurred())
	return state, outcome
}

// rotated takes the Secret through a whole rotation.
func rotated(c *cluster, from *certsecret.State) *certsecret.State {
	GinkgoHelper()
	staged := Must(c.store().Stage(background, from))
	return Must(c.store().Prune(background, Must(c.store().Activate(background, staged))))
}

// expectInOrder checks the invariant after any Restore: the Secret agrees with the state in every key,
// its CA signs, and a second Restore writes nothing.
func expectInOrder(c *cluster, state *certsecret.State) *ca.Authority {
	GinkgoHelper()
	authority := Must(state.Current())
	Expect(authority.Usable(now)).To(Succeed())
	Expect(authority.SignServing([]string{"logger.cf.svc"}, day, now)).Error().NotTo(HaveOccurred())
	data := c.secret().Data
	Expect(string(data["ca.crt"])).To(Equal(string(authority.CertificatePEM)))
	Expect(string(data["tls.crt"])).To(Equal(string(authority.CertificatePEM)))
	Expect(string(data["tls.key"])).To(Equal(string(authority.PrivateKeyPEM)))
	Expect(ca.Contains(state.Bundle(), authority.CertificatePEM)).To(BeTrue())
	before := c.writes()
	again, outcome := restore(c.store(), nil, nil)
	Expect(outcome).To(Equal(certsecret.Adopted))
	Expect(c.writes()).To(Equal(before), "a second Restore writes nothing")
	Expect(Must(again.Current()).Equal(authority)).To(BeTrue())
	Expect(again.ResourceVersion).To(Equal(state.ResourceVersion))
	return authority
}
