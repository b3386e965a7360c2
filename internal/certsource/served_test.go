package certsource_test

// This file is about one certificate and its bundle: whether a client accepts it, and that it prints without its key. It is also
// about the served one, and the next, which waits until API servers trust it.

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsource"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// scripted is a source that a spec plays.
type scripted struct {
	deliver func(certsource.Material)
	wait    func(error)
	ready   chan struct{}
	bundle  []byte
}

func (s *scripted) Run(ctx context.Context, deliver func(certsource.Material), wait func(error)) error {
	s.deliver, s.wait = deliver, wait
	close(s.ready)
	<-ctx.Done()
	return nil
}

func (s *scripted) Bundle(context.Context) ([]byte, error) {
	if s.bundle == nil {
		return nil, errors.New("no CA can be read")
	}
	return s.bundle, nil
}
func (*scripted) Validate() error { return nil }
func (*scripted) String() string  { return "a script" }

var _ = Describe("The served certificate", func() {
	var (
		served *certsource.Served
		source *scripted
		said   *recorder
		woken  int
	)

	material := func(of issued, more ...[]byte) certsource.Material {
		GinkgoHelper()
		certificate := Must(tls.X509KeyPair(of.certificate, of.key))
		return certsource.Material{Certificate: &certificate, Bundle: ca.Bundle(append([][]byte{of.ca}, more...)...)}
	}

	BeforeEach(func() {
		source, said, woken = &scripted{ready: make(chan struct{})}, newRecorder(), 0
		served = certsource.NewServed(source)
		served.Hosts, served.Log, served.Wake = hosts, said.log(), func() { woken++ }
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { served.Run(ctx) })
		DeferCleanup(func() {
			cancel()
			running.Wait()
		})
		<-source.ready
	})

	It("is absent at first, when the source is asked for the CAs to trust", func(ctx SpecContext) {
		Expect(served.Certificate()).To(BeNil())
		Expect(served.GetCertificate(nil)).Error().To(MatchError(certsource.ErrNothingServed))
		Expect(served.Verify(issue().ca)).To(MatchError(certsource.ErrNothingServed))
		Expect(served.Arrived()).NotTo(BeClosed())
		Expect(served.Need(ctx)).Error().To(MatchError("no CA can be read"))
		source.bundle = []byte("a CA")
		Expect(served.Need(ctx)).To(BeEquivalentTo("a CA"))
	})

	It("is the first one at once; the next one waits", func(ctx SpecContext) {
		first, second := issue(), issue()
		source.deliver(material(first))
		Expect(served.Arrived()).To(BeClosed())
		m, next, waiting := served.Current()
		Expect(m.Certificate.Leaf).To(BeIdenticalTo(served.Certificate()))
		Expect([]any{next, waiting}).To(HaveEach(BeNil()))
		Expect(served.GetCertificate(nil)).To(BeIdenticalTo(m.Certificate))
		Expect(served.Need(ctx)).To(Equal(first.ca))

		source.deliver(material(second))
		Expect(woken).To(Equal(1))
		still, next, _ := served.Current()
		Expect(still).To(BeIdenticalTo(m))
		Expect(served.GetCertificate(nil)).To(BeIdenticalTo(m.Certificate))
		Expect(ca.Contains(Must(served.Need(ctx)), ca.Bundle(first.ca, second.ca))).To(BeTrue(), "both are trusted before the change")
		Expect(served.Verify(first.ca)).To(Succeed())
		Expect(served.Verify(second.ca)).NotTo(Succeed())
		Expect(served.VerifyNext(next, second.ca)).To(Succeed())

		served.Swap(next, "the API server trusts it")
		m, waits, _ := served.Current()
		Expect(m).To(BeIdenticalTo(next))
		Expect(waits).To(BeNil())
		Expect(served.Need(ctx)).To(Equal(second.ca))
		Expect(count(said.logged(), "serving another certificate", "trusts it")).To(Equal(1))
	})

	It("does not change for one that a newer one has overtaken", func() {
		source.deliver(material(issue()))
		source.deliver(material(issue()))
		first, outdated, _ := served.Current()
		source.deliver(material(issue()))
		served.Swap(outdated, "too late")
		m, next, _ := served.Current()
		Expect(m).To(BeIdenticalTo(first))
		Expect(next).NotTo(Or(BeNil(), BeIdenticalTo(outdated)))
		served.Swap(next, "in time")
		served.Swap(next, "twice")
		m, _, _ = served.Current()
		Expect(m).To(BeIdenticalTo(next))
		Expect(count(said.logged(), "serving another certificate")).To(Equal(1))
	})

	It("is not another one when the source delivers the last one again", func() {
		first, second := issue(), issue()
		source.deliver(material(first))
		source.wait(errors.New("the key is not that of the certificate"))
		source.deliver(material(first))
		_, next, waiting := served.Current()
		Expect(next).To(BeNil())
		Expect(waiting).To(BeNil())

		source.deliver(material(second))
		_, waits, _ := served.Current()
		source.wait(errors.New("the key is not that of the certificate"))
		source.deliver(material(second))
		_, next, _ = served.Current()
		Expect(next).To(BeIdenticalTo(waits), "it goes on waiting where it was")

		source.deliver(material(first))
		_, next, _ = served.Current()
		Expect(next).To(BeNil(), "the served certificate came back")

		source.deliver(material(first, second.ca))
		_, next, _ = served.Current()
		Expect(next).To(BeNil(), "and no other CA verifies it")
	})

	It("changes at once where another server serves", func() {
		served.AtOnce = true
		source.deliver(material(issue()))
		first := served.Certificate()
		source.deliver(material(issue()))
		m, next, _ := served.Current()
		Expect(m.Certificate.Leaf).NotTo(BeIdenticalTo(first))
		Expect(next).To(BeNil())
		Expect(woken).To(Equal(1))
	})

	It("stays, and its end is logged, while the newest one cannot be used", func() {
		source.wait(errors.New("there is no file"))
		_, _, waiting := served.Current()
		Expect(waiting).To(MatchError("there is no file"))
		Expect(count(said.logged(), "there is no file", "is served")).To(BeZero())
		Expect(woken).To(Equal(1))

		source.deliver(material(issue()))
		_, _, waiting = served.Current()
		Expect(waiting).NotTo(HaveOccurred(), "it has come")

		source.wait(errors.New("half written"))
		m, _, waiting := served.Current()
		Expect(waiting).To(MatchError("half written"))
		Expect(count(said.logged(), "half written", "the last good one is served, until "+m.Certificate.Leaf.NotAfter.UTC().Format(time.RFC3339))).To(Equal(1))
		source.deliver(material(issue()))
		_, _, waiting = served.Current()
		Expect(waiting).NotTo(HaveOccurred())
	})

	It("is verified by one CA of a whole trust store", func(ctx SpecContext) {
		var store [][]byte
		for range 30 {
			store = append(store, newAuthority().CertificatePEM)
		}
		first, second := issue(), issue()
		source.deliver(material(first, store...))
		Expect(Must(served.Need(ctx))).To(Equal(first.ca), "31 in, 1 out")
		source.deliver(material(second, store...))
		Expect(ca.SplitBundle(Must(served.Need(ctx)))).To(HaveLen(2))

		By("one that cannot be verified now")
		served.Now = func() time.Time { return time.Now().Add(-100 * day) }
		source.deliver(material(issue(), store...))
		_, next, _ := served.Current()
		Expect(ca.SplitBundle(next.Bundle)).To(HaveLen(31), "nothing is dropped that may be the right one")
	})
})

var _ = Describe("Material", func() {
	material := func(authority *ca.Authority, edit ...func(*x509.Certificate)) certsource.Material {
		GinkgoHelper()
		key := NewKey()
		leaf := leafOf(sign(authority, key.Public(), edit...))
		return certsource.Material{Certificate: &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, Bundle: authority.CertificatePEM}
	}

	It("is good when a client accepts it for every host", func() {
		m := material(newAuthority())
		Expect(m.Verify(hosts, time.Now())).To(Succeed())
		Expect(m.Verify([]string{"[127.0.0.1]", "WEBHOOK.cf.svc."}, time.Now())).To(Succeed())
		for _, host := range hosts {
			Expect(handshake(m, host, time.Now())).To(Succeed())
		}
	})

	It("is judged as a client does that does not know intermediate CAs", func() {
		root, issuer := newAuthority(), newAuthority()
		cross := Must(root.CrossSign(issuer.Certificate, time.Now()))
		m := material(issuer)
		m.Bundle = root.CertificatePEM
		Expect(m.Verify(hosts, time.Now())).To(MatchError(ContainSubstring("intermediate certificates behind the serving certificate")))
		m.Certificate.Certificate = append(m.Certificate.Certificate, cross.Raw)
		Expect(m.Verify(hosts, time.Now())).To(Succeed())
		Expect(handshake(m, hosts[0], time.Now())).To(Succeed())
	})

	// of makes one of a CA of its own.
	of := func(edit func(*x509.Certificate)) func() certsource.Material {
		return func() certsource.Material { return material(newAuthority(), edit) }
	}
	DescribeTable("has the reason why a client would refuse it", func(reason string, make func() certsource.Material) {
		m := make()
		first := m.Verify(hosts, time.Now())
		Expect(first).To(MatchError(ContainSubstring(reason)))
		Expect(handshake(m, hosts[0], time.Now())).NotTo(Succeed())
		Expect(m.Verify(hosts, time.Now().Add(time.Minute))).To(MatchError(first.Error()), "the same reason is the same text")
	},
		Entry("expired", "has expired at", of(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) })),
		Entry("not yet valid", "check the clocks", of(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) })),
		Entry("another host", `is not for host "webhook.cf.svc"`, of(func(c *x509.Certificate) { c.DNSNames = []string{"other.cf.svc"} })),
		Entry("only a common name", "subject alternative names", of(func(c *x509.Certificate) {
			c.DNSNames, c.IPAddresses, c.Subject.CommonName = nil, nil, hosts[0]
		})),
		Entry("for clients", `"server auth"`, of(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })),
		Entry("unknown CA", "put the CA into the bundle", func() certsource.Material {
			m := material(newAuthority())
			m.Bundle = newAuthority().CertificatePEM
			return m
		}),
		Entry("no bundle", "the CA bundle holds no readable certificate", func() certsource.Material {
			m := material(newAuthority())
			m.Bundle = nil
			return m
		}),
		Entry("a CA for clients", "use a CA whose extended key usages are none", func() certsource.Material {
			key, root := NewKey(), newAuthority()
			template := &x509.Certificate{
				SerialNumber: root.Certificate.SerialNumber, NotBefore: root.Certificate.NotBefore, NotAfter: root.Certificate.NotAfter,
				Subject: pkix.Name{CommonName: "clients only"}, BasicConstraintsValid: true, IsCA: true,
				ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			}
			der := Must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
			certificate := Must(x509.ParseCertificate(der))
			return material(&ca.Authority{Certificate: certificate, CertificatePEM: ca.EncodeCertificate(certificate), PrivateKey: key})
		}),
		Entry("expired CA", "the CA certificate of", func() certsource.Material {
			return material(Must(ca.New("spec", time.Hour, time.Now().Add(-2*time.Hour))))
		}),
	)

	It("takes a certificate that is its own CA", func() {
		key := NewKey()
		self := &ca.Authority{PrivateKey: key, Certificate: &x509.Certificate{}}
		leaf := leafOf(sign(self, key.Public()))
		m := certsource.Material{Certificate: &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, Bundle: ca.EncodeCertificate(leaf)}
		Expect(m.Verify(hosts, time.Now())).To(Succeed())
		Expect(handshake(m, hosts[0], time.Now())).To(Succeed())
	})

	It("is nothing without a certificate", func() {
		Expect(certsource.Material{}.Verify(hosts, time.Now())).To(MatchError("there is no certificate"))
		Expect(certsource.Material{}.String()).To(Equal("no certificate"))
	})

	It("never prints its key", func() {
		m := material(newAuthority())
		text := string(PKCS8(m.Certificate.PrivateKey))
		secret := fmt.Sprint(m.Certificate.PrivateKey)
		var printed strings.Builder
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
			fmt.Fprintf(&printed, verb+"\n", m)
			fmt.Fprintf(&printed, verb+"\n", []any{&m, struct{ M certsource.Material }{m}})
		}
		fmt.Fprintln(&printed, m.MarshalLog(), string(Must(json.Marshal(m))))
		Expect(printed.String()).To(ContainSubstring("key redacted"))
		Expect(printed.String()).NotTo(ContainSubstring(strings.Split(text, "\n")[1][30:]))
		for _, number := range strings.Fields(strings.Trim(secret, "&{}")) {
			if len(number) > 30 {
				Expect(printed.String()).NotTo(ContainSubstring(strings.Trim(number, "{}")))
			}
		}
	})
})
