package serving_test

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/serving"
)

var _ = Describe("Clients", func() {
	var (
		time0            *clock
		clients          *serving.Clients
		trusted, another *ca.Authority
		caller           *tls.Certificate
	)
	BeforeEach(func() {
		time0 = newClock(leafNow)
		trusted, another = leafCA(GinkgoTB(), leafYear, leafNow), leafCA(GinkgoTB(), leafYear, leafNow)
		clients = &serving.Clients{Names: []string{"front-proxy-client", "apiserver.cluster.example"}, Now: time0.now}
		Expect(clients.SetCAs(trusted.CertificatePEM)).To(Succeed())
		caller = clientCert(GinkgoTB(), trusted, "front-proxy-client")
	})
	check := func(certificates ...*tls.Certificate) error { return clients.Check(connectionOf(certificates...)) }

	DescribeTable("accepts", func(name string, edit func(*x509.Certificate)) {
		certificate := clientCert(GinkgoTB(), trusted, name, edit)
		for range 2 { // judged, and remembered
			Expect(check(certificate)).To(Succeed())
		}
	},
		Entry("an allowed common name", "front-proxy-client", func(*x509.Certificate) {}),
		Entry("any allowed DNS name", "whatever", func(c *x509.Certificate) { c.DNSNames = []string{"other", "apiserver.cluster.example"} }),
		Entry("clients that are servers too", "front-proxy-client", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		}),
	)

	DescribeTable("refuses", func(reason, name string, edit func(*x509.Certificate)) {
		certificate := clientCert(GinkgoTB(), trusted, name, edit)
		for range 2 {
			Expect(check(certificate)).To(And(MatchError(serving.ErrClientRefused), MatchError(ContainSubstring(reason))))
		}
	},
		Entry("another name", `"CN=unlisted" with DNS names "[other]" is not a name that may call`, "unlisted", func(c *x509.Certificate) { c.DNSNames = []string{"other"} }),
		Entry("a longer name", "may call", "front-proxy-client-2", func(*x509.Certificate) {}),
		Entry("a name in capitals", "may call", "Front-Proxy-Client", func(*x509.Certificate) {}),
		Entry("a wildcard", "may call", "*", func(c *x509.Certificate) { c.DNSNames = []string{"*.cluster.example"} }),
		Entry("an organization of that name", "may call", "", func(c *x509.Certificate) { c.Subject = pkix.Name{Organization: []string{"front-proxy-client"}} }),
		Entry("a server", "incompatible key usage", "front-proxy-client", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}),
		Entry("an expired one", "has expired", "front-proxy-client", until(leafNow.Add(-time.Second))),
		Entry("one that is not valid yet", "not yet valid", "front-proxy-client", from(leafNow.Add(time.Minute))),
	)

	It("refuses a certificate of another CA, and a missing one", func() {
		foreign := clientCert(GinkgoTB(), another, "front-proxy-client")
		Expect(check(foreign)).To(And(MatchError(serving.ErrClientRefused),
			MatchError(ContainSubstring("unknown authority")), MatchError(ContainSubstring(another.Certificate.Subject.SerialNumber))))
		Expect(check(foreign, caller)).NotTo(Succeed(), "only the first certificate is the client's")
		Expect(check()).To(MatchError(serving.ErrNoClientCertificate))
		Expect(clients.Check(nil)).To(MatchError(serving.ErrNoClientCertificate))
	})

	It("accepts any name of the CAs when no names are given", func() {
		clients = &serving.Clients{Now: time0.now}
		Expect(clients.SetCAs(trusted.CertificatePEM)).To(Succeed())
		Expect(check(clientCert(GinkgoTB(), trusted, "any"))).To(Succeed())
		Expect(check(clientCert(GinkgoTB(), another, "any"))).NotTo(Succeed())
	})

	It("refuses every client until it has CAs", func() {
		clients = &serving.Clients{Now: time0.now}
		Expect(check(caller)).To(And(MatchError(serving.ErrClientRefused), MatchError(ContainSubstring("have not been read yet"))))
	})

	It("verifies through the intermediates that a client sends, and for as long as they live", func() {
		middle := clientCert(GinkgoTB(), trusted, "middle", intermediateCA, until(leafNow.Add(time.Hour)))
		below := certifiedBy(GinkgoTB(), middle.Leaf, middle.PrivateKey.(crypto.Signer), "front-proxy-client", until(leafNow.Add(2*time.Hour)))
		Expect(check(below)).NotTo(Succeed(), "without the intermediate")
		Expect(check(below, middle)).To(Succeed(), "with it, at once")
		Expect(check(below)).NotTo(Succeed())
		time0.set(leafNow.Add(time.Hour + time.Second))
		Expect(check(below, middle)).To(MatchError(serving.ErrClientRefused), "the intermediate has expired")
	})

	Describe("SetCAs", func() {
		It("changes the verdict on clients that were seen before", func() {
			foreign := clientCert(GinkgoTB(), another, "front-proxy-client")
			Expect(check(caller)).To(Succeed())
			Expect(check(foreign)).NotTo(Succeed())
			Expect(clients.SetCAs(ca.Bundle(trusted.CertificatePEM, another.CertificatePEM))).To(Succeed())
			Expect(check(caller)).To(Succeed())
			Expect(check(foreign)).To(Succeed())
			Expect(clients.SetCAs(another.CertificatePEM)).To(Succeed())
			Expect(check(caller)).To(MatchError(serving.ErrClientRefused))
			Expect(check(foreign)).To(Succeed())
		})

		It("keeps the last good bundle instead of one that is none", func() {
			whole := ca.Bundle(another.CertificatePEM, trusted.CertificatePEM)
			for _, bad := range [][]byte{
				nil, []byte("\n"), []byte("garbage"), trusted.PrivateKeyPEM,
				ca.EncodeCertificate(caller.Leaf), // not a CA's
				whole[:len(whole)-30],             // being written
			} {
				Expect(clients.SetCAs(bad)).NotTo(Succeed(), "%s", bad)
				Expect(check(caller)).To(Succeed(), "%s", bad)
			}
			Expect(clients.SetCAs(nil)).To(MatchError(serving.ErrNoClientCA))
			Expect(clients.SetCAs(whole[:len(whole)-30])).To(MatchError(ContainSubstring("is it complete")))
		})

		It("reads the CAs that are readable, and trusts no client's own certificate", func() {
			foreign := clientCert(GinkgoTB(), another, "front-proxy-client")
			mixed := append([]byte("# CAs\n"), ca.EncodeCertificate(foreign.Leaf)...)
			mixed = append(mixed, trusted.CertificatePEM...)
			Expect(clients.SetCAs(mixed)).To(Succeed())
			Expect(check(caller)).To(Succeed())
			Expect(check(foreign)).NotTo(Succeed())
		})

		It("keeps no hold of its caller's memory", func() {
			clients = &serving.Clients{Now: time0.now}
			bundle := append(ca.Bundle(trusted.CertificatePEM), make([]byte, 1000)...) // room for the other
			Expect(clients.SetCAs(bundle)).To(Succeed())
			clear(bundle)
			copy(bundle, another.CertificatePEM)
			Expect(clients.SetCAs(bundle)).To(Succeed())
			Expect(check(caller)).NotTo(Succeed(), "taken for the bundle that is set already")
		})
	})

	Describe("a remembered decision", func() {
		It("ends with the certificate", func() {
			Expect(check(caller)).To(Succeed())
			time0.set(caller.Leaf.NotAfter.Add(time.Second))
			Expect(check(caller)).To(MatchError(ContainSubstring("has expired")))
		})

		It("is not from the future", func() {
			young := clientCert(GinkgoTB(), trusted, "front-proxy-client", from(leafNow.Add(-time.Minute)))
			Expect(check(young)).To(Succeed())
			time0.set(leafNow.Add(-2 * time.Minute)) // the clock was wrong and is set right
			Expect(check(young)).To(MatchError(ContainSubstring("not yet valid")))
		})

		It("of a refusal is soon made again", func() {
			young := clientCert(GinkgoTB(), trusted, "front-proxy-client", from(leafNow.Add(time.Second)))
			Expect(check(young)).NotTo(Succeed())
			time0.set(leafNow.Add(serving.RefusalLife))
			Expect(check(young)).To(Succeed())
		})

		It("has a bounded number, and refusals do not push out acceptances", func() {
			Expect(check(caller)).To(Succeed())
			unlisted := clientCert(GinkgoTB(), trusted, "unlisted")
			for i := range serving.MaxDecisions + 10 {
				copied := *unlisted.Leaf // other bytes are another certificate
				copied.Raw = fmt.Append(nil, i)
				Expect(clients.Check(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{&copied}})).NotTo(Succeed())
			}
			accepted, refused := clients.Remembered()
			Expect(accepted).To(Equal(1))
			Expect(refused).To(BeNumerically("<=", serving.MaxDecisions))
		})
	})

	It("quotes the certificate of a refused client on one line of bounded length", func() {
		name := "a\r\nX-Forged: b\n" + strings.Repeat("x", 5000)
		refused := clientCert(GinkgoTB(), another, name)
		middle, other := clientCert(GinkgoTB(), another, name, intermediateCA), clientCert(GinkgoTB(), another, name, intermediateCA)
		below := certifiedBy(GinkgoTB(), middle.Leaf, middle.PrivateKey.(crypto.Signer), "x")
		for _, err := range []error{check(refused), check(below, other)} { // crypto/x509 quotes the other one's name
			Expect(err.Error()).NotTo(ContainSubstring("\n"))
			Expect(len(err.Error())).To(BeNumerically("<", 1200))
		}
	})

	It("names the expected certificate", func() {
		Expect(clients.Expected()).To(And(ContainSubstring(`["front-proxy-client" "apiserver.cluster.example"]`), ContainSubstring("ManagerOptions.ClientCA")))
		Expect((&serving.Clients{}).Expected()).To(ContainSubstring("any name"))
	})

	It("is safe for concurrent use", func() {
		both := ca.Bundle(trusted.CertificatePEM, another.CertificatePEM)
		foreign := clientCert(GinkgoTB(), another, "unlisted")
		var group sync.WaitGroup
		errs := make(chan error, 10000)
		for i := range 8 {
			group.Go(func() {
				for range 50 {
					errs <- clients.SetCAs([][]byte{trusted.CertificatePEM, both}[i%2])
					errs <- check(caller)
					if check(foreign) == nil {
						errs <- fmt.Errorf("a foreign certificate was accepted")
					}
				}
			})
		}
		group.Wait()
		close(errs)
		for err := range errs {
			Expect(err).NotTo(HaveOccurred())
		}
	})
})

func TestClientsCheckDoesNotAllocateOnceAClientIsKnown(t *testing.T) {
	authority := leafCA(t, leafYear, time.Now())
	clients := &serving.Clients{Names: []string{"front-proxy-client"}}
	if err := clients.SetCAs(authority.CertificatePEM); err != nil {
		t.Fatal(err)
	}
	middle := clientCert(t, authority, "middle", intermediateCA)
	for name, connection := range map[string]*tls.ConnectionState{
		"accepted": connectionOf(clientCert(t, authority, "front-proxy-client"), middle),
		"refused":  connectionOf(clientCert(t, authority, "unlisted")),
		"none":     {},
	} {
		// A verification allocates: so this also proves that it does not happen.
		if n := testing.AllocsPerRun(100, func() { _ = clients.Check(connection) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkClientsCheck(b *testing.B) {
	authority := leafCA(b, leafYear, time.Now())
	connection := connectionOf(clientCert(b, authority, "front-proxy-client"))
	clients := &serving.Clients{Names: []string{"front-proxy-client"}}
	bundles := [][]byte{authority.CertificatePEM, append([]byte("\n"), authority.CertificatePEM...)}
	check := func(b *testing.B) {
		if err := clients.Check(connection); err != nil {
			b.Fatal(err)
		}
	}
	set := func(b *testing.B, i int) {
		if err := clients.SetCAs(bundles[i%2]); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("known", func(b *testing.B) {
		set(b, 0)
		b.ReportAllocs()
		for b.Loop() {
			check(b)
		}
	})
	b.Run("new", func(b *testing.B) { // with the reading of the CA
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			set(b, i)
			check(b)
		}
	})
}
