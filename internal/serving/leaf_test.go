package serving_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/serving"
)

const (
	leafDay  = 24 * time.Hour
	leafYear = 365 * leafDay
)

// leafNow is the moment of every spec that does not move its clock.
var leafNow = time.Date(2030, time.May, 17, 12, 0, 0, 0, time.UTC)

// clock is a wall clock that specs move.
type clock struct{ t atomic.Pointer[time.Time] }

func newClock(t time.Time) *clock {
	c := &clock{}
	c.set(t)
	return c
}

func (c *clock) set(t time.Time) { c.t.Store(&t) }
func (c *clock) now() time.Time  { return *c.t.Load() }

func leafCA(t testing.TB, lifetime time.Duration, at time.Time) *ca.Authority {
	t.Helper()
	authority, err := ca.New("spec", lifetime, at)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

var _ = Describe("Leaf", func() {
	hosts := []string{"Logger.cf.svc", "10.1.2.3", "[::1]"}
	var (
		time0     *clock
		leaf      *serving.Leaf
		authority *ca.Authority
	)
	BeforeEach(func() {
		time0 = newClock(leafNow)
		leaf = serving.NewLeaf(hosts, 7*24*time.Hour, time0.now)
		authority = leafCA(GinkgoTB(), 10*leafYear, leafNow)
	})

	It("has nothing to serve before the first Use", func() {
		Expect(leaf.GetCertificate(nil)).Error().To(MatchError(serving.ErrNoCertificate))
		Expect(leaf.Certificate()).To(BeNil())
		Expect(leaf.Verify(authority.CertificatePEM)).To(MatchError(serving.ErrNoCertificate))
		Expect(leaf.Use(nil)).NotTo(Succeed())
	})

	It("serves a certificate of seven days for every host, over TLS", func() {
		Expect(leaf.Use(authority)).To(Succeed())
		Expect(leaf.Certificate().NotAfter).To(Equal(leafNow.Add(7 * leafDay)))
		for _, name := range []string{"logger.cf.svc", "10.1.2.3", "::1"} {
			Expect(leafHandshake(leaf, name, authority.CertificatePEM)).To(Succeed(), name)
		}
		Expect(leafHandshake(leaf, "other.cf.svc", authority.CertificatePEM)).To(MatchError(ContainSubstring("other.cf.svc")))
	})

	It("signs once for a CA, until it is due", func() {
		Expect(leaf.Use(authority)).To(Succeed())
		first := leaf.Certificate()
		life := first.NotAfter.Sub(first.NotBefore)
		time0.set(first.NotBefore.Add(life * 59 / 100))
		same, err := ca.Parse(authority.CertificatePEM, authority.PrivateKeyPEM) // as read again from the Secret
		Expect(err).NotTo(HaveOccurred())
		Expect(leaf.Use(same)).To(Succeed())
		Expect(leaf.Certificate()).To(BeIdenticalTo(first), "not due at 59 % of its life")
		time0.set(first.NotBefore.Add(life * 74 / 100))
		Expect(leaf.Use(authority)).To(Succeed())
		Expect(leaf.Certificate()).NotTo(BeIdenticalTo(first), "due at 74 %")
		Expect(leaf.Certificate().NotAfter).To(Equal(time0.now().Add(7 * leafDay).Truncate(time.Second)))
	})

	It("changes with the CA, and with its cross-signed chain", func() {
		Expect(leaf.Use(authority)).To(Succeed())
		next := leafCA(GinkgoTB(), leafYear, leafNow)
		Expect(leaf.Use(next)).To(Succeed())
		Expect(leaf.Verify(next.CertificatePEM)).To(Succeed())
		Expect(leaf.Verify(authority.CertificatePEM)).NotTo(Succeed())

		cross, err := authority.CrossSign(next.Certificate, leafNow)
		Expect(err).NotTo(HaveOccurred())
		armed := *next
		armed.Chain = []*x509.Certificate{cross}
		Expect(leaf.Use(&armed)).To(Succeed())
		Expect(leaf.Verify(authority.CertificatePEM)).To(Succeed())
		Expect(leaf.Verify(next.CertificatePEM)).To(Succeed())
		Expect(leafHandshake(leaf, "logger.cf.svc", authority.CertificatePEM)).To(Succeed())
	})

	It("keeps the last good certificate when a CA cannot sign", func() {
		Expect(leaf.Use(authority)).To(Succeed())
		good := leaf.Certificate()
		expired := leafCA(GinkgoTB(), time.Hour, leafNow.Add(-leafDay))
		Expect(leaf.Use(expired)).To(MatchError(ca.ErrExpired))
		Expect(leaf.Certificate()).To(BeIdenticalTo(good))
		Expect(leaf.Verify(authority.CertificatePEM)).To(Succeed())
	})

	It("names the host that cannot be certified", func() {
		bad := serving.NewLeaf([]string{"a.example:443"}, 7*24*time.Hour, time.Now)
		Expect(bad.Use(leafCA(GinkgoTB(), leafYear, time.Now()))).To(MatchError(And(ContainSubstring("a.example:443"), ContainSubstring("leave out the port"))))
	})

	It("has the kind of key that is wanted", func() {
		for algorithm, kind := range map[ca.KeyAlgorithm]x509.PublicKeyAlgorithm{"": x509.ECDSA, ca.RSA2048: x509.RSA} {
			keyed := serving.NewLeaf(hosts, 7*24*time.Hour, time0.now)
			keyed.Key = algorithm
			Expect(keyed.Use(authority)).To(Succeed())
			Expect(keyed.Certificate().PublicKeyAlgorithm).To(Equal(kind))
			Expect(leafHandshake(keyed, "logger.cf.svc", authority.CertificatePEM)).To(Succeed())
		}
		leaf.Key = "RSA-1024"
		Expect(leaf.Use(authority)).To(And(MatchError(ca.ErrUnknownKeyAlgorithm), MatchError(ContainSubstring(`"RSA-1024"; choose one of`))))
	})

	It("is safe for concurrent use", func() {
		other := leafCA(GinkgoTB(), leafYear, leafNow)
		Expect(leaf.Use(authority)).To(Succeed())
		both := ca.Bundle(authority.CertificatePEM, other.CertificatePEM)
		var group sync.WaitGroup
		errs := make(chan error, 1000)
		for i := range 20 {
			group.Go(func() {
				for range 5 {
					errs <- leaf.Use([]*ca.Authority{authority, other}[i%2])
					errs <- leaf.Verify(both)
					_, err := leaf.GetCertificate(nil)
					errs <- err
				}
			})
		}
		group.Wait()
		close(errs)
		for err := range errs {
			Expect(err).NotTo(HaveOccurred())
		}
	})

	DescribeTable("Verify returns the reason", func(reason string, bundle func() []byte, move time.Duration) {
		Expect(leaf.Use(authority)).To(Succeed())
		time0.set(leafNow.Add(move))
		err := leaf.Verify(bundle())
		if reason == "" {
			Expect(err).NotTo(HaveOccurred())
			return
		}
		Expect(err).To(MatchError(ContainSubstring(reason)))
	},
		Entry("trusted", "", func() []byte { return authority.CertificatePEM }, time.Duration(0)),
		Entry("trusted among others", "", func() []byte {
			return ca.Bundle(leafCA(GinkgoTB(), leafYear, leafNow).CertificatePEM, authority.CertificatePEM)
		}, time.Duration(0)),
		Entry("blanked", "the caBundle is empty", func() []byte { return []byte("\n") }, time.Duration(0)),
		Entry("garbage", "holds no readable certificate", func() []byte { return []byte("Cg==") }, time.Duration(0)),
		Entry("another CA", "does not hold the CA", func() []byte { return leafCA(GinkgoTB(), leafYear, leafNow).CertificatePEM }, time.Duration(0)),
		Entry("expired", "has expired", func() []byte { return authority.CertificatePEM }, 8*leafDay),
		Entry("a clock that is behind", "is before", func() []byte { return authority.CertificatePEM }, -2*time.Hour),
	)

	It("is signed again at once when it is not valid yet", func() {
		old := leafCA(GinkgoTB(), leafYear, leafNow.Add(-leafDay))
		time0.set(leafNow.Add(6 * time.Hour)) // the clock is ahead
		Expect(leaf.Use(old)).To(Succeed())
		time0.set(leafNow)
		Expect(leaf.Verify(old.CertificatePEM)).NotTo(Succeed())
		Expect(leaf.Use(old)).To(Succeed())
		Expect(leaf.Verify(old.CertificatePEM)).To(Succeed())
	})

	It("is not signed in vain when it starts with its CA", func() {
		leaf.ServerTime = func() time.Time { return leafNow }
		time0.set(leafNow.Add(-6 * time.Hour)) // ours is behind that of the replica which made the CA
		Expect(leaf.Use(authority)).To(Succeed())
		first := leaf.Certificate()
		Expect(first.NotBefore).To(Equal(authority.Certificate.NotBefore))
		Expect(leaf.Verify(authority.CertificatePEM)).To(Succeed(), "by the server's clock")
		for range 3 {
			time0.set(time0.now().Add(time.Minute))
			Expect(leaf.Use(authority)).To(Succeed())
		}
		Expect(leaf.Certificate()).To(BeIdenticalTo(first))
		time0.set(leafNow.Add(-leafYear)) // set back further: when it was to be renewed means nothing any more
		Expect(leaf.Use(authority)).To(Succeed())
		Expect(leaf.Certificate()).NotTo(BeIdenticalTo(first))
	})

	DescribeTable("is renewed by the local clock", func(server time.Duration) {
		leaf.ServerTime = func() time.Time { return time0.now().Add(server) }
		old := leafCA(GinkgoTB(), 10*leafYear, leafNow.Add(-leafYear))
		Expect(leaf.Use(old)).To(Succeed())
		first := leaf.Certificate()
		time0.set(leafNow.Add(7 * leafDay * 59 / 100))
		Expect(leaf.Use(old)).To(Succeed())
		Expect(leaf.Certificate()).To(BeIdenticalTo(first), "not due before 0.6 of seven days")
		time0.set(leafNow.Add(7 * leafDay * 74 / 100))
		Expect(leaf.Use(old)).To(Succeed())
		Expect(leaf.Certificate()).NotTo(BeIdenticalTo(first), "due after 0.734 of seven days")
	},
		Entry("the server's is ahead", 100*leafDay),
		Entry("the server's is behind", -100*leafDay),
	)

	It("is not renewed in vain when it ends with its CA", func() {
		last := leafCA(GinkgoTB(), leafDay, leafNow)
		Expect(leaf.Use(last)).To(Succeed())
		first := leaf.Certificate()
		time0.set(leafNow.Add(leafDay - time.Minute))
		Expect(leaf.Use(last)).To(Succeed())
		Expect(leaf.Certificate()).To(BeIdenticalTo(first))
		time0.set(leafNow.Add(leafDay + time.Minute))
		Expect(leaf.Use(last)).To(MatchError(ca.ErrExpired))
		Expect(leaf.Certificate()).To(BeIdenticalTo(first))
	})
})

// leafHandshake connects over loopback as an API server would.
func leafHandshake(leaf *serving.Leaf, serverName string, bundle []byte) error {
	clockOfLeaf := func() time.Time { return leafNow }
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: leaf.GetCertificate, Time: clockOfLeaf})
	if err != nil {
		return err
	}
	defer listener.Close()
	go func() {
		if connection, err := listener.Accept(); err == nil {
			_ = connection.(*tls.Conn).Handshake()
			_ = connection.Close()
		}
	}()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return errors.New("no roots")
	}
	connection, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", listener.Addr().String(),
		&tls.Config{ServerName: serverName, RootCAs: roots, Time: clockOfLeaf})
	if err != nil {
		return err
	}
	return connection.Close()
}
