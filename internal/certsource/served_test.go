package certsource_test

// This file is about the certificate that is served, and the next one, which waits until API servers trust it.

import (
	"context"
	"crypto/tls"
	"errors"
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
