package world

// This file is a client that may write the Secret and no configuration, and knows how the program writes its state: it forges the
// signature of our CA.

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

// forges writes a state into a Secret as the program does after a rotation: the CA of another client signs, and a certificate says that
// the CA of before has signed it. It reports whether the Secret holds a state to begin with.
func forges(object *unstructured.Unstructured, theirs *ca.Authority) (bool, error) {
	state, err := decode(object)
	if err != nil {
		return false, nil //nolint:nilerr // another client has damaged it
	}
	ours, err := state.Current()
	if err != nil {
		return false, nil //nolint:nilerr // the same
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	if err != nil {
		return false, err
	}
	made, err := x509.CreateCertificate(cryptorand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), RawSubject: theirs.Certificate.RawSubject, SubjectKeyId: theirs.Certificate.SubjectKeyId,
		NotBefore: theirs.Certificate.NotBefore, NotAfter: theirs.Certificate.NotAfter, KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}, &x509.Certificate{Subject: pkix.Name{}, RawSubject: ours.Certificate.RawSubject, SubjectKeyId: ours.Certificate.SubjectKeyId}, theirs.Certificate.PublicKey, key)
	if err != nil {
		return false, err
	}
	cross, err := x509.ParseCertificate(made)
	if err != nil {
		return false, err
	}
	forged, last := state.Clone(), state.Distrusted
	for _, g := range state.Generations {
		last = max(last, g.ID)
	}
	forged.Generations = append(forged.Generations, certsecret.Generation{
		ID: last + 1, CertificatePEM: theirs.CertificatePEM, PrivateKeyPEM: theirs.PrivateKeyPEM,
		CrossSigned: []certsecret.CrossSigned{{IssuerID: state.CurrentID, CertificatePEM: ca.EncodeCertificate(cross)}},
	})
	forged.CurrentID, forged.NextID, forged.Phase, forged.Since, forged.Counter = last+1, 0, ca.Retaining, time.Now(), state.Counter+1
	data := map[string]any{}
	for name, text := range forged.Encode(nil) {
		data[name] = encoded(text)
	}
	object.Object["data"] = data
	return true, nil
}
