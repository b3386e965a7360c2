package serving_test

// This file is about the serving certificate that a process signs for itself: its life, and the clocks that it follows.

import (
	"crypto/x509"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/serving"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("Leaf", func() {
	hosts := []string{"Logger.cf.svc", "10.1.2.3", "[::1]"}
	var (
		clock     *clock
		leaf      *serving.Leaf
		authority *ca.Authority
	)
	BeforeEach(func() {
		clock = newClock(noon)
		leaf = serving.NewLeaf(hosts, 7*day, clock.now)
		authority = NewCA(10*year, noon)
	})

	It("has nothing to serve before the first Use", func() {
		Expect(leaf.GetCertificate(nil)).Error().To(MatchError(serving.ErrNoCertificate))
		Expect(leaf.Certificate()).To(BeNil())
		Expect(leaf.Verify(authority.CertificatePEM)).To(MatchError(serving.ErrNoCertificate))
		Expect(leaf.Use(nil)).NotTo(Succeed())
	})

	It("serves a certificate of seven days for every host", func() {
		Expect(leaf.Use(authority)).To(Succeed())
		served := Must(leaf.GetCertificate(nil))
		Expect(served.Leaf).To(BeIdenticalTo(leaf.Certificate()))
		Expect(served.Leaf.NotAfter).To(Equal(noon.Add(7 * day)))
		Expect(leaf.Verify(authority.CertificatePEM)).To(Succeed())
		Expect(served.Leaf.DNSNames).To(ConsistOf("logger.cf.svc"))
		Expect(served.Leaf.IPAddresses).To(HaveLen(2))
	})

	It("changes with the CA, and with its cross-signed chain", func() {
		Expect(leaf.Use(authority)).To(Succeed())
		next := NewCA(year, noon)
		Expect(leaf.Use(next)).To(Succeed())
		Expect(leaf.Verify(next.CertificatePEM)).To(Succeed())
		Expect(leaf.Verify(authority.CertificatePEM)).NotTo(Succeed())

		armed := *next
		armed.Chain = []*x509.Certificate{Must(authority.CrossSign(next.Certificate, noon))}
		Expect(leaf.Use(&armed)).To(Succeed())
		Expect(leaf.Verify(authority.CertificatePEM)).To(Succeed())
		Expect(leaf.Verify(next.CertificatePEM)).To(Succeed())
		Expect(Must(leaf.GetCertificate(nil)).Certificate).To(HaveExactElements(leaf.Certificate().Raw, armed.Chain[0].Raw), "it is sent along")
	})

	It("keeps the last good certificate when a CA cannot sign, or the hosts or the key are wrong", func() {
		Expect(leaf.Use(authority)).To(Succeed())
		good := leaf.Certificate()
		Expect(leaf.Use(NewCA(time.Hour, noon.Add(-day)))).To(MatchError(ca.ErrExpired))
		leaf.Key = "RSA-1024"
		Expect(leaf.Use(NewCA(year, noon))).To(MatchError(ca.ErrUnknownKeyAlgorithm))
		Expect(leaf.Certificate()).To(BeIdenticalTo(good))

		bad := serving.NewLeaf([]string{"a.example:443"}, 7*day, time.Now)
		Expect(bad.Use(NewCA(year, time.Now()))).To(MatchError(And(ContainSubstring("a.example:443"), ContainSubstring("leave out the port"))))
	})

	DescribeTable("Verify returns the reason", func(reason string, bundle func() []byte, move time.Duration) {
		Expect(leaf.Use(authority)).To(Succeed())
		if move != 0 {
			Expect(leaf.Verify(bundle())).To(Succeed(), "before the clock moves")
		}
		clock.set(noon.Add(move))
		if reason == "" {
			Expect(leaf.Verify(bundle())).To(Succeed())
			return
		}
		Expect(leaf.Verify(bundle())).To(MatchError(ContainSubstring(reason)))
	},
		Entry("trusted among others", "", func() []byte {
			return ca.Bundle(NewCA(year, noon).CertificatePEM, authority.CertificatePEM)
		}, time.Duration(0)),
		Entry("blanked", "the caBundle is empty", func() []byte { return []byte("\n") }, time.Duration(0)),
		Entry("garbage", "holds no readable certificate", func() []byte { return []byte("Cg==") }, time.Duration(0)),
		Entry("another CA", "does not hold the CA", func() []byte { return NewCA(year, noon).CertificatePEM }, time.Duration(0)),
		Entry("expired", "has expired", func() []byte { return authority.CertificatePEM }, 8*day),
		Entry("a clock that is behind", "is before", func() []byte { return authority.CertificatePEM }, -2*time.Hour),
	)

	It("is not signed in vain when it starts with its CA", func() {
		leaf.ServerTime = func() time.Time { return noon }
		clock.set(noon.Add(-6 * time.Hour)) // ours is behind that of the replica which made the CA
		Expect(leaf.Use(authority)).To(Succeed())
		first := leaf.Certificate()
		Expect(first.NotBefore).To(Equal(authority.Certificate.NotBefore))
		Expect(leaf.Verify(authority.CertificatePEM)).To(Succeed(), "by the server's clock")
		for range 3 {
			clock.set(clock.now().Add(time.Minute))
			Expect(leaf.Use(authority)).To(Succeed())
		}
		Expect(leaf.Certificate()).To(BeIdenticalTo(first))
		clock.set(noon.Add(-year)) // set back further: when it was to be renewed means nothing any more
		Expect(leaf.Use(authority)).To(Succeed())
		Expect(leaf.Certificate()).NotTo(BeIdenticalTo(first))
	})

	DescribeTable("is signed once for a CA, until it is due by the local clock", func(server time.Duration) {
		leaf.ServerTime = func() time.Time { return clock.now().Add(server) }
		old := NewCA(10*year, noon.Add(-year))
		Expect(leaf.Use(old)).To(Succeed())
		first := leaf.Certificate()
		clock.set(noon.Add(7 * day * 59 / 100))
		Expect(leaf.Use(Must(ca.Parse(old.CertificatePEM, old.PrivateKeyPEM)))).To(Succeed(), "as read again from the Secret")
		Expect(leaf.Certificate()).To(BeIdenticalTo(first), "not due before 0.6 of seven days")
		clock.set(noon.Add(7 * day * 74 / 100))
		Expect(leaf.Use(old)).To(Succeed())
		Expect(leaf.Certificate()).NotTo(BeIdenticalTo(first), "due after 0.734 of seven days")
	},
		Entry("which is the server's", time.Duration(0)),
		Entry("and the server's is ahead", 100*day),
		Entry("and the server's is behind", -100*day),
	)

	It("is not renewed in vain when it ends with its CA", func() {
		last := NewCA(day, noon)
		Expect(leaf.Use(last)).To(Succeed())
		first := leaf.Certificate()
		clock.set(noon.Add(day - time.Minute))
		Expect(leaf.Use(last)).To(Succeed())
		clock.set(noon.Add(day + time.Minute))
		Expect(leaf.Use(last)).To(MatchError(ca.ErrExpired))
		Expect(leaf.Certificate()).To(BeIdenticalTo(first))
	})
})

// running is a leaf whose Run lasts as long as the test, with a CA of a year from a day ago.
func running(t *testing.T, life time.Duration, now, server func() time.Time) (*serving.Leaf, *ca.Authority) {
	leaf, authority := serving.NewLeaf([]string{"a.b.svc"}, life, now), NewCA(year, time.Now().Add(-day))
	if server != nil {
		leaf.ServerTime = server
	}
	go leaf.Run(t.Context(), logr.Discard())
	synctest.Wait() // started before the first Use
	Expect(leaf.Use(authority)).To(Succeed())
	synctest.Wait()
	return leaf, authority
}

func TestLeafRunRenewsLongAndShortLives(t *testing.T) {
	for name, c := range map[string]struct{ life, look time.Duration }{
		"of seven days":    {7 * day, day},
		"of three seconds": {3 * time.Second, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				leaf, authority := running(t, c.life, time.Now, nil)
				serials, looks := map[string]bool{}, 0
				for began := time.Now(); time.Since(began) < 6*c.life; looks++ {
					passes(c.look)
					Expect(leaf.Verify(authority.CertificatePEM)).To(Succeed())
					Expect(time.Until(leaf.Certificate().NotAfter)).To(BeNumerically(">", c.life/7-time.Second), "renewed well before its end")
					serials[leaf.Certificate().SerialNumber.String()] = true
				}
				Expect(len(serials)).To(And(BeNumerically(">", 6), BeNumerically("<", 14)), "once in two thirds of its life, give or take, and no spinning")
			})
		})
	}
}

// A suspended machine: timers stood still, the wall clock jumped.
func TestLeafRunNoticesAJumpOfTheWallClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var suspended atomic.Int64
		leaf, authority := running(t, 7*day, func() time.Time { return time.Now().Add(time.Duration(suspended.Load())) }, nil)
		suspended.Store(int64(30 * day))
		Expect(leaf.Verify(authority.CertificatePEM)).NotTo(Succeed(), "expired while asleep")
		passes(time.Minute)
		Expect(leaf.Verify(authority.CertificatePEM)).To(Succeed(), "within a minute of waking up")
	})
}

// The wall clock was ahead when the certificate was signed, and is set right.
func TestLeafRunNoticesThatTheWallClockIsSetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var ahead atomic.Int64
		ahead.Store(int64(6 * time.Hour))
		leaf, authority := running(t, 7*day, func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }, nil)
		passes(time.Hour)
		ahead.Store(0)
		Expect(leaf.Verify(authority.CertificatePEM)).To(MatchError(ContainSubstring("is before")))
		passes(2 * time.Second)
		Expect(leaf.Verify(authority.CertificatePEM)).To(Succeed(), "within two seconds")
		again := leaf.Certificate()
		passes(day)
		Expect(leaf.Certificate()).To(BeIdenticalTo(again), "once")
	})
}

// The API server's clock was ahead for a while, as seen, or is found to be behind.
func TestLeafRunFollowsTheServersClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var ahead atomic.Int64
		ahead.Store(int64(6 * time.Hour))
		server := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		leaf, authority := running(t, 7*day, time.Now, server)
		odd := leaf.Certificate()
		Expect(odd.NotBefore).To(BeTemporally("<=", time.Now().Add(-time.Hour)), "valid by the local clock too")
		Expect(odd.NotAfter).To(BeTemporally(">=", server().Add(7*day-time.Second)))
		ahead.Store(0)
		passes(time.Minute)
		Expect(leaf.Certificate()).To(BeIdenticalTo(odd), "one odd date changes nothing")
		ahead.Store(int64(-6 * time.Hour))
		passes(2 * time.Second)
		Expect(leaf.Certificate().NotBefore).To(BeTemporally("<=", server().Add(-50*time.Minute)), "signed again for a server that is behind")
		Expect(leaf.Verify(authority.CertificatePEM)).To(Succeed())
	})
}

func TestLeafRunServesOnWhenRenewalFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var logs logLines
		leaf := serving.NewLeaf([]string{"a.b.svc"}, 7*day, time.Now)
		Expect(leaf.Use(NewCA(day, time.Now()))).To(Succeed())
		go leaf.Run(t.Context(), logs.logger())
		passes(2 * day)
		Expect(leaf.GetCertificate(nil)).NotTo(BeNil())
		Expect(logs.with("was not renewed")).To(ConsistOf(ContainSubstring("has expired")), "the same failure is told once: %s", logs.String)
		next := NewCA(year, time.Now())
		Expect(leaf.Use(next)).To(Succeed())
		passes(7 * day)
		Expect(leaf.Verify(next.CertificatePEM)).To(Succeed())
		Expect(logs.with("serving certificate renewed")).NotTo(BeEmpty())
	})
}
