package certsecret_test

import (
	"crypto/x509"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("EiriniX's Secret", func() {
	It("is migrated: its CA goes on, its keys stay for a rollback", func() {
		data := eirinixData()
		c := newCluster(data)
		state, outcome, err := c.store().Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(certsecret.Migrated))
		Expect(state.Reason).To(BeEmpty())
		authority := expectInOrder(c, state)
		Expect(ca.EqualBundles(authority.CertificatePEM, data["ca_certificate"])).To(BeTrue())
		for key, value := range data {
			Expect(c.secret().Data).To(HaveKeyWithValue(key, value))
		}
	})

	It("lets 200 racers agree", func() {
		c := newCluster(eirinixData())
		cas, outcomes := race(200, unpinned(c))
		Expect(cas).To(HaveLen(1))
		Expect(outcomes).To(HaveKeyWithValue(certsecret.Migrated, 1))
		Expect(c.updated).To(Equal(1))
	})

	DescribeTable("gets a new CA when its own cannot be used", func(reason string, make func() map[string][]byte) {
		data := make()
		c := newCluster(data)
		state, outcome, err := c.store().Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(certsecret.Migrated))
		Expect(state.Reason).To(ContainSubstring(reason))
		authority := expectInOrder(c, state)
		Expect(ca.EqualBundles(authority.CertificatePEM, data["ca_certificate"])).To(BeFalse())
		for key, value := range data {
			Expect(c.secret().Data).To(HaveKeyWithValue(key, value))
		}
	},
		Entry("expired", "ca_certificate: the CA certificate has expired", func() map[string][]byte {
			return eirinixData(func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Hour) })
		}),
		Entry("not a CA", "ca_certificate: the certificate is not a CA certificate", func() map[string][]byte {
			return eirinixData(func(c *x509.Certificate) { c.IsCA = false })
		}),
		Entry("SHA-1", "weaker than SHA-256", func() map[string][]byte {
			return eirinixData(func(c *x509.Certificate) { c.SignatureAlgorithm = x509.SHA1WithRSA })
		}),
		Entry("key mismatch", "ca_private_key does not match ca_certificate", func() map[string][]byte {
			return with(eirinixData(), "ca_private_key", PKCS1(eirinixLeafKey()))
		}),
		Entry("no CA key", "ca_private_key is missing", func() map[string][]byte { return without(eirinixData(), "ca_private_key") }),
		Entry("no CA at all", "ca_certificate is missing", func() map[string][]byte {
			return without(eirinixData(), "ca_certificate", "ca_private_key")
		}),
	)

	It("saves the CA when our keys are damaged later", func() {
		c := newCluster(eirinixData())
		first, _, err := c.store().Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		c.edit(func(s *corev1.Secret) { s.Data["state.json"], s.Data["tls.key"] = []byte("{"), []byte("x") })
		state, outcome, err := c.store().Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(certsecret.Migrated))
		Expect(state.Reason).To(And(ContainSubstring("state.json is not valid"), ContainSubstring("tls.key: no PEM")))
		Expect(expectInOrder(c, state).Equal(Must(first.Current()))).To(BeTrue())
	})
})
