package certsecret_test

import (
	"bytes"
	"testing"

	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

// FuzzDecode feeds the bytes of a hostile Secret. A decoded state has a CA that signs, survives encoding and
// decoding, and stays within the same trust. Run it with -fuzzminimizetime 5x: coverage
// of the crypto packages varies from run to run, and the engine would spend its time on minimizing.
func FuzzDecode(f *testing.F) {
	RegisterTestingT(f)
	own, old := ownData(), eirinixData()
	empty := []byte(nil)
	f.Add(own["state.json"], own["tls.crt"], own["tls.key"], empty, empty)
	f.Add(empty, own["tls.crt"], own["tls.key"], empty, empty)
	f.Add(empty, empty, empty, old["ca_certificate"], old["ca_private_key"])
	f.Add([]byte(`{"formatVersion":1,"current":1,"generations":[{"id":1,"certificate":"x","privateKey":"y","crossSigned":[{"issuer":2}]}]}`), own["tls.crt"], own["tls.key"], old["ca_certificate"], old["ca_private_key"])
	f.Add(bytes.Replace(own["state.json"], []byte(`"phase"`), []byte(`"since": "9999-12-31T23:59:59-01:00", "phase"`), 1), own["tls.crt"], own["tls.key"], empty, empty)
	f.Add([]byte(`{"formatVersion":99,"generations":7}`), own["tls.crt"], own["tls.key"], empty, empty)
	f.Add([]byte(`{"formatVersion":1,"counter":-9223372036854775808,"generations":[{"id":9223372036854775807}]}`), own["tls.crt"], own["tls.key"], empty, empty)
	f.Add([]byte(`null`), []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte("-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n-----END EC PRIVATE KEY-----\n"), empty, empty)
	f.Fuzz(func(t *testing.T, document, certificate, key, oldCertificate, oldKey []byte) {
		data := map[string][]byte{}
		for name, value := range map[string][]byte{
			"state.json": document, "tls.crt": certificate, "tls.key": key, "ca_certificate": oldCertificate, "ca_private_key": oldKey,
		} {
			if len(value) > 0 {
				data[name] = value
			}
		}
		state, err := certsecret.Decode(data)
		if err != nil {
			if state != nil || err.Error() == "" {
				t.Fatalf("state %v with error %q", state, err)
			}
			if bytes.Contains([]byte(err.Error()), []byte("PRIVATE KEY-----")) {
				t.Fatalf("the error quotes a key: %s", err)
			}
			return
		}
		authority, err := state.Current()
		if err != nil {
			t.Fatalf("decoded without a CA: %s", err)
		}
		if !ca.Contains(state.Bundle(), authority.CertificatePEM) {
			t.Fatal("the current CA is not in the bundle")
		}
		encoded := state.Encode(data)
		again, err := certsecret.Decode(encoded)
		if err != nil {
			t.Fatalf("does not survive encoding: %s", err)
		}
		if !bytes.Equal(again.Encode(nil)["state.json"], encoded["state.json"]) {
			t.Fatal("encoding is not stable")
		}
		_ = state.String()
	})
}
