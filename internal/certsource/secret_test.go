package certsource_test

// This file is about certificates in a Secret that an issuer maintains, before an API server of a few lines.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsource"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

const secretName = "webhook-tls"

func data(i issued) map[string][]byte {
	return map[string][]byte{"tls.crt": i.certificate, "tls.key": i.key, "ca.crt": i.ca}
}

// vault is an API server that holds a Secret, which may be read and not watched.
type vault struct{ held *corev1.Secret }

func (v *vault) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case path.Base(r.URL.Path) != secretName:
		return failed(http.StatusForbidden, metav1.StatusReasonForbidden), nil
	case v.held == nil:
		return failed(http.StatusNotFound, metav1.StatusReasonNotFound), nil
	}
	v.held.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	v.held.Namespace, v.held.Name, v.held.ResourceVersion = "cf", secretName, "1"
	return answered(http.StatusOK, bytes.NewReader(Must(json.Marshal(v.held)))), nil
}

func secretAt(server http.RoundTripper) *certsource.Secret {
	return &certsource.Secret{Config: at(server), Namespace: "cf", Name: secretName, Hosts: hosts, Now: time.Now}
}

func TestSecretKeepsTheLastGoodOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		v, r := &vault{}, newRecorder()
		background(t, secretAt(v), r)
		becomes := func(data map[string][]byte, kind ...corev1.SecretType) string {
			v.held = &corev1.Secret{Data: data}
			for _, k := range kind {
				v.held.Type = k
			}
			passes(time.Minute)
			return r.reason()
		}
		first, second, root := issue(), issueFor(hosts, 2*time.Hour, time.Now()), newAuthority()
		cross := ca.EncodeCertificate(Must(root.CrossSign(first.authority.Certificate, time.Now())))
		Expect(becomes(map[string][]byte{"tls.crt": first.certificate, "tls.key": first.key})).To(And(
			ContainSubstring("ca.crt is missing"), ContainSubstring("add the CA's certificate to the Secret as ca.crt")))
		Expect(becomes(map[string][]byte{"tls.crt": join(first.certificate, cross), "tls.key": first.key})).To(ContainSubstring("ca.crt is missing"), "an intermediate CA is no root")
		Expect(r.deliveries()).To(BeZero())
		Expect(becomes(map[string][]byte{"tls.crt": join(first.certificate, first.ca), "tls.key": first.key}, corev1.SecretTypeOpaque)).To(BeEmpty())
		Expect(r.bundle()).To(Equal(string(first.ca)), "the end of the chain")

		Expect(becomes(map[string][]byte{"tls.crt": second.certificate, "tls.key": first.key, "ca.crt": second.ca})).To(ContainSubstring("tls.crt and tls.key: the private key does not match"))
		Expect(becomes(map[string][]byte{"tls.crt": second.certificate, "tls.key": second.key, "ca.crt": first.ca})).To(ContainSubstring("the CA bundle does not verify"))
		Expect(becomes(map[string][]byte{"tls.key": second.key})).To(ContainSubstring("tls.crt is missing or empty"))
		Expect(becomes(data(issueFor([]string{"other.cf.svc"}, day, time.Now())))).To(ContainSubstring("is not for host"))
		v.held = nil
		passes(time.Minute)
		Expect(r.reason()).To(ContainSubstring("does not exist"))
		Expect(r.deliveries()).To(Equal(1))
		Expect(becomes(data(second))).To(BeEmpty())
		Expect(r.serial()).To(Equal(serialOf(second)))

		passes(2 * time.Hour)
		Expect(r.reason()).To(ContainSubstring("has expired"), "though nothing changes")
		v.held.Immutable = new(true)
		passes(time.Minute)
		Expect(r.reason()).To(And(ContainSubstring("has expired"), ContainSubstring("the Secret is immutable, so delete it")))
		Expect(r.faults()).To(BeEmpty())
	})
}

func TestSecretReportsWhyItCannotBeRead(t *testing.T) {
	for reason, answer := range map[string]roundTrip{
		`grant get, list and watch on secrets with resourceNames ["webhook-tls"] in namespace "cf"`: func(*http.Request) (*http.Response, error) {
			return failed(http.StatusForbidden, metav1.StatusReasonForbidden), nil
		},
		"the network is down": func(*http.Request) (*http.Response, error) { return nil, errors.New("the network is down") },
		"the API server has not sent it yet": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
	} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				source, r := secretAt(answer), newRecorder()
				background(t, source, r)
				passes(6 * time.Second)
				Expect(r.reason()).To(And(HavePrefix("Secret cf/webhook-tls: it cannot be read: "), ContainSubstring(reason)))
				bundle, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				Expect(source.Bundle(bundle)).Error().To(MatchError(HavePrefix("Secret cf/webhook-tls: ")))
			})
		})
	}
}

var _ = Describe("Secret without a cluster", func() {
	It("needs its required fields", func() {
		Expect((&certsource.Secret{Name: "x", Hosts: hosts}).Validate()).To(MatchError(ContainSubstring("a Namespace and a Name")))
		Expect((&certsource.Secret{Namespace: "cf", Name: "x"}).Validate()).To(MatchError(ContainSubstring("at least one host")))
	})
})
