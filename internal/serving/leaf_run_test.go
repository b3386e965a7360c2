package serving_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/serving"
)

// The bubbles of synctest need a *testing.T, so these are plain tests: their clock is time itself.

func TestLeafRunRenewsForMonths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		authority := leafCA(t, 10*leafYear, time.Now())
		leaf := serving.NewLeaf([]string{"a.b.svc"}, 7*24*time.Hour, time.Now)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { leaf.Run(ctx, logr.Discard()); close(done) }()
		synctest.Wait() // started before the first Use
		g.Expect(leaf.Use(authority)).To(Succeed())

		serials := map[string]bool{}
		for range 40 {
			time.Sleep(leafDay)
			synctest.Wait()
			g.Expect(leaf.Verify(authority.CertificatePEM)).To(Succeed(), "at %s", time.Now())
			g.Expect(time.Until(leaf.Certificate().NotAfter)).To(BeNumerically(">", leafDay), "renewed well before its end")
			serials[leaf.Certificate().SerialNumber.String()] = true
		}
		g.Expect(len(serials)).To(BeNumerically("~", 9, 2), "once every 4.7 days, give or take")
		cancel()
		synctest.Wait()
		g.Expect(done).To(BeClosed(), "Run ends with its context")
	})
}

func TestLeafRunRenewsCompressedLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		authority := leafCA(t, leafYear, time.Now())
		leaf := serving.NewLeaf([]string{"a.b.svc"}, 3*time.Second, time.Now)
		go leaf.Run(t.Context(), logr.Discard())
		synctest.Wait()
		g.Expect(leaf.Use(authority)).To(Succeed())
		serials := map[string]bool{}
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			g.Expect(leaf.Verify(authority.CertificatePEM)).To(Succeed())
			serials[leaf.Certificate().SerialNumber.String()] = true
		}
		g.Expect(len(serials)).To(BeNumerically(">", 20))
		g.Expect(len(serials)).To(BeNumerically("<", 120), "no spinning")
	})
}

// A suspended machine: timers stood still, the wall clock jumped.
func TestLeafRunNoticesAJumpOfTheWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		authority := leafCA(t, leafYear, time.Now())
		var suspended atomic.Int64
		now := func() time.Time { return time.Now().Add(time.Duration(suspended.Load())) }
		leaf := serving.NewLeaf([]string{"a.b.svc"}, 7*24*time.Hour, now)
		go leaf.Run(t.Context(), logr.Discard())
		g.Expect(leaf.Use(authority)).To(Succeed())
		synctest.Wait()
		suspended.Store(int64(30 * leafDay))
		g.Expect(leaf.Verify(authority.CertificatePEM)).NotTo(Succeed(), "expired while asleep")
		time.Sleep(time.Minute)
		synctest.Wait()
		g.Expect(leaf.Verify(authority.CertificatePEM)).To(Succeed(), "within a minute of waking up")
	})
}

// The wall clock was ahead when the certificate was signed, and is set right.
func TestLeafRunNoticesThatTheWallClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		authority := leafCA(t, leafYear, time.Now())
		var ahead atomic.Int64
		ahead.Store(int64(6 * time.Hour))
		now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		leaf := serving.NewLeaf([]string{"a.b.svc"}, 7*24*time.Hour, now)
		go leaf.Run(t.Context(), logr.Discard())
		g.Expect(leaf.Use(authority)).To(Succeed())
		synctest.Wait()
		time.Sleep(time.Hour)
		ahead.Store(0)
		g.Expect(leaf.Verify(authority.CertificatePEM)).To(MatchError(ContainSubstring("is before")))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		g.Expect(leaf.Verify(authority.CertificatePEM)).To(Succeed(), "within two seconds")
		again := leaf.Certificate()
		time.Sleep(leafDay)
		synctest.Wait()
		g.Expect(leaf.Certificate()).To(BeIdenticalTo(again), "once")
	})
}

// The API server's clock was ahead for a while, as seen, or is found to be behind.
func TestLeafRunFollowsTheServersClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		authority := leafCA(t, leafYear, time.Now().Add(-leafDay))
		var ahead atomic.Int64
		ahead.Store(int64(6 * time.Hour))
		server := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		leaf := serving.NewLeaf([]string{"a.b.svc"}, 7*24*time.Hour, time.Now)
		leaf.ServerTime = server
		go leaf.Run(t.Context(), logr.Discard())
		g.Expect(leaf.Use(authority)).To(Succeed())
		synctest.Wait()
		odd := leaf.Certificate()
		g.Expect(odd.NotBefore).To(BeTemporally("<=", time.Now().Add(-time.Hour)), "valid by the local clock too")
		g.Expect(odd.NotAfter).To(BeTemporally(">=", server().Add(7*leafDay-time.Second)))
		ahead.Store(0)
		time.Sleep(time.Minute)
		synctest.Wait()
		g.Expect(leaf.Certificate()).To(BeIdenticalTo(odd), "one odd date changes nothing")
		ahead.Store(int64(-6 * time.Hour))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		g.Expect(leaf.Certificate().NotBefore).To(BeTemporally("<=", server().Add(-50*time.Minute)), "signed again for a server that is behind")
		g.Expect(leaf.Verify(authority.CertificatePEM)).To(Succeed())
	})
}

func TestLeafRunServesOnWhenRenewalFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var lines []string
		log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		authority := leafCA(t, leafDay, time.Now())
		leaf := serving.NewLeaf([]string{"a.b.svc"}, 7*24*time.Hour, time.Now)
		g.Expect(leaf.Use(authority)).To(Succeed())
		go leaf.Run(t.Context(), log)
		time.Sleep(2 * leafDay)
		synctest.Wait()
		g.Expect(leaf.GetCertificate(nil)).NotTo(BeNil())
		failures := func() (n int) {
			for _, line := range lines {
				if strings.Contains(line, "was not renewed") && strings.Contains(line, "has expired") {
					n++
				}
			}
			return n
		}
		g.Expect(failures()).To(Equal(1), "the same failure is told once: %q", lines)
		next := leafCA(t, leafYear, time.Now())
		g.Expect(leaf.Use(next)).To(Succeed())
		time.Sleep(7 * leafDay)
		synctest.Wait()
		g.Expect(leaf.Verify(next.CertificatePEM)).To(Succeed())
		g.Expect(lines).To(ContainElement(ContainSubstring("serving certificate renewed")))
		block, _ := pem.Decode(next.PrivateKeyPEM)
		g.Expect(strings.Join(lines, "")).NotTo(ContainSubstring(fmt.Sprintf("%x", block.Bytes)))
	})
}

func TestLeafGetCertificateDoesNotAllocate(t *testing.T) {
	leaf := serving.NewLeaf([]string{"a.b.svc"}, 7*24*time.Hour, time.Now)
	if err := leaf.Use(leafCA(t, leafYear, time.Now())); err != nil {
		t.Fatal(err)
	}
	hello := &tls.ClientHelloInfo{ServerName: "a.b.svc"}
	if n := testing.AllocsPerRun(100, func() { _, _ = leaf.GetCertificate(hello) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkGetCertificate(b *testing.B) {
	leaf := serving.NewLeaf([]string{"a.b.svc"}, 7*24*time.Hour, time.Now)
	if err := leaf.Use(leafCA(b, leafYear, time.Now())); err != nil {
		b.Fatal(err)
	}
	hello := &tls.ClientHelloInfo{ServerName: "a.b.svc"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := leaf.GetCertificate(hello); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSign measures the cost of one renewal, for scale.
func BenchmarkSign(b *testing.B) {
	authority := leafCA(b, leafYear, time.Now())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := authority.SignServing([]string{"a.b.svc", "10.0.0.1"}, leafDay, time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}
