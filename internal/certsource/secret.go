package certsource

// This file reads certificates from a Secret that an issuer keeps.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// Secret is a Source that follows a Secret such as cert-manager keeps, usually of type kubernetes.io/tls. It
// needs get, list and watch on that one Secret and reads no other; with get alone it looks every Poll. It
// writes nothing. The Secret may be missing at first, and deleted and made again. Its fields must not change
// while it runs.
type Secret struct {
	Secrets         corev1client.SecretInterface // of Namespace
	Namespace, Name string
	Cert, Key, CA   string           // keys of the Secret's data; default tls.crt, tls.key, ca.crt
	Hosts           []string         // that the certificate must be for (see ca.ParseHosts)
	Poll            time.Duration    // between two looks without a watch; 0 means DefaultPoll
	Log             logr.Logger      // the zero value is silent
	Now             func() time.Time // nil means time.Now
}

// Validate says what is wrong with the fields.
func (s *Secret) Validate() error {
	if s.Secrets == nil {
		return errors.New("a certificate Secret needs a client for Secrets")
	}
	if s.Namespace == "" || s.Name == "" {
		return fmt.Errorf("a certificate Secret needs a Namespace and a Name, not %q", s.Namespace+"/"+s.Name)
	}
	if _, err := ca.ParseHosts(s.Hosts); err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	return checkPoll(s.Poll)
}

// String is the Secret's namespace and name.
func (s *Secret) String() string { return "Secret " + s.Namespace + "/" + s.Name }

// Run implements Source.
func (s *Secret) Run(ctx context.Context, deliver func(Material), waiting func(error)) error {
	if err := s.Validate(); err != nil {
		return err
	}
	out := &feed{hosts: s.Hosts, now: clock(s.Now), deliver: deliver, waiting: waiting}
	f := single[corev1.Secret]{
		kind: "secrets", name: s.Name, poll: or(s.Poll, DefaultPoll), log: s.Log, rights: &rights{},
		find: s.find, get: s.Secrets.Get, watch: s.Secrets.Watch,
	}
	f.follow(ctx, func(secret *corev1.Secret, err error) bool {
		if err := s.judge(out, secret, err); err != nil {
			out.wait(fmt.Errorf("%s: %w", s, err))
		}
		return false
	})
	return nil
}

// Bundle implements Source.
func (s *Secret) Bundle(ctx context.Context) ([]byte, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	secret, err := s.Secrets.Get(ctx, s.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		secret, err = nil, nil
	}
	t, err := s.look(secret, err)
	if err == nil {
		var bundle []byte
		if bundle, err = t.ca.bundle(); err == nil {
			return bundle, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", s, err)
}

func (s *Secret) find(ctx context.Context, o metav1.ListOptions) (*corev1.Secret, string, error) {
	list, err := s.Secrets.List(ctx, o)
	if err != nil {
		return nil, "", err
	}
	for i := range list.Items {
		if list.Items[i].Name == s.Name {
			return &list.Items[i], list.ResourceVersion, nil
		}
	}
	return nil, list.ResourceVersion, nil
}

// judge offers what stands in the Secret.
func (s *Secret) judge(out *feed, secret *corev1.Secret, err error) error {
	t, err := s.look(secret, err)
	if err == nil {
		err = out.offerTexts(t)
	}
	if err != nil && secret != nil && secret.Immutable != nil && *secret.Immutable {
		return fmt.Errorf("%w; the Secret is immutable, so delete it and have it made again", err)
	}
	return err
}

// look takes the texts out of what was read: the Secret, nil where there is none, or why it could not be.
func (s *Secret) look(secret *corev1.Secret, err error) (texts, error) {
	switch {
	case apierrors.IsForbidden(err):
		return texts{}, fmt.Errorf("it cannot be read; grant get, list and watch on secrets with resourceNames %q in namespace %q: %w", []string{s.Name}, s.Namespace, err)
	case err != nil:
		return texts{}, fmt.Errorf("it cannot be read: %w", err)
	case secret == nil:
		return texts{}, errors.New("it does not exist (yet); have the issuer make it, for example with a Certificate of cert-manager whose secretName is " + s.Name)
	}
	return s.texts(secret)
}

func (s *Secret) texts(secret *corev1.Secret) (texts, error) {
	part := func(key string) text { return text{name: key, pem: secret.Data[key]} }
	t := texts{certificate: part(or(s.Cert, DefaultCert)), key: part(or(s.Key, DefaultKey)), ca: part(or(s.CA, DefaultCA))}
	for _, p := range []text{t.certificate, t.key} {
		if len(p.pem) == 0 {
			return texts{}, fmt.Errorf("%s is missing or empty; the issuer has not finished, or stores it under another key", p.name)
		}
	}
	if len(t.ca.pem) > 0 {
		return t, nil
	}
	// Issuers that do not know their CA leave it out; some put it behind the certificate.
	if t.ca.pem = rootOf(t.certificate.pem); t.ca.pem == nil {
		return texts{}, fmt.Errorf("%s is missing, and the chain in %s does not end in a self-signed certificate, so that nobody knows which CA to trust; "+
			"use an issuer that stores its CA (cert-manager: CA, Vault or self-signed, not ACME), or add the CA's certificate to the Secret as %s",
			t.ca.name, t.certificate.name, t.ca.name)
	}
	return t, nil
}
