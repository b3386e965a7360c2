package certsource

// This file holds the Source that reads certificates from a Secret that an issuer maintains.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/cluster"
)

// Secret is a Source that follows a Secret such as cert-manager maintains, usually of type kubernetes.io/tls. It needs
// get, list and watch on that one Secret and reads no other. With get alone it reads the Secret every half minute, and
// more often after a change. It writes nothing. The Secret can be missing at first, and can be deleted and created
// again. The fields must not change while the source runs.
type Secret struct {
	Config          *rest.Config // limits the duration of requests
	Namespace, Name string
	Hosts           []string      // the certificate must be valid for them (see ca.ParseHosts)
	Poll            time.Duration // between two checks of the copy without a change; 0 means DefaultPoll
	Log             logr.Logger   // the zero value is silent
	Now             func() time.Time
}

// Validate returns an error that describes an invalid field.
func (s *Secret) Validate() error {
	if s.Namespace == "" || s.Name == "" {
		return fmt.Errorf("a certificate Secret needs a Namespace and a Name, not %q", s.Namespace+"/"+s.Name)
	}
	_, err := ca.ParseHosts(s.Hosts)
	return about(s, err)
}

func (s *Secret) String() string { return "Secret " + strings.TrimPrefix(s.Namespace+"/"+s.Name, "/") }

// Run implements Source.
func (s *Secret) Run(ctx context.Context, deliver func(Material), waiting func(error)) error {
	objects, err := cluster.NewObjects(s.Config, s.Log, cluster.Followed{Object: s.empty(), Needed: true})
	if err != nil {
		return about(s, err)
	}
	out := newFeed(s.Hosts, s.Now, deliver, waiting)
	follow(ctx, objects, cmp.Or(s.Poll, DefaultPoll), func() bool {
		secret := s.empty()
		t, err := s.look(secret, objects.Get(ctx, secret))
		if err == nil {
			err = out.offerTexts(t)
		}
		if err != nil && secret.Immutable != nil && *secret.Immutable {
			err = fmt.Errorf("%w; the Secret is immutable, so delete it and have it made again", err)
		}
		if err != nil {
			out.wait(about(s, err))
		}
		return false
	})
	return nil
}

// Bundle implements Source.
func (s *Secret) Bundle(ctx context.Context) ([]byte, error) {
	live, err := cluster.NewDirect(s.Config)
	if err != nil {
		return nil, about(s, err)
	}
	secret := s.empty()
	t, err := s.look(secret, live.Get(ctx, secret))
	return bundleOf(s, t.ca, err)
}

func (s *Secret) empty() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
}

// look extracts the texts from the Secret, unless err is set because the read failed.
func (s *Secret) look(secret *corev1.Secret, err error) (texts, error) {
	switch {
	case apierrors.IsForbidden(err):
		return texts{}, fmt.Errorf("%w; grant get, list and watch on secrets with resourceNames %q in namespace %q", err, []string{s.Name}, s.Namespace)
	case apierrors.IsNotFound(err):
		return texts{}, errors.New("it does not exist (yet); have the issuer make it, for example with a Certificate of cert-manager whose secretName is " + s.Name)
	case err != nil:
		return texts{}, err
	}
	part := func(key string) text { return text{name: key, pem: secret.Data[key]} }
	t := texts{certificate: part(defaultCert), key: part(defaultKey), ca: part(defaultCA)}
	for _, p := range []text{t.certificate, t.key} {
		if len(p.pem) == 0 {
			return texts{}, fmt.Errorf("%s is missing or empty; the issuer has not finished, or stores it under another key", p.name)
		}
	}
	if len(t.ca.pem) > 0 {
		return t, nil
	}
	// Issuers that do not know their CA omit it. Some append it to the certificate.
	if t.ca.pem = rootOf(t.certificate.pem); t.ca.pem == nil {
		return texts{}, fmt.Errorf("%s is missing, and the chain in %s does not end in a self-signed certificate, so the CA to trust is unknown; "+
			"use an issuer that stores its CA (cert-manager: CA, Vault or self-signed, not ACME), or add the CA's certificate to the Secret as %s",
			t.ca.name, t.certificate.name, t.ca.name)
	}
	return t, nil
}
