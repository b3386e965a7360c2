package ca_test

import (
	"crypto/x509"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

var _ = Describe("Foreign CAs", func() {
	var (
		born                    = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		ours, guest, late, gone []byte
		foreign                 ca.ForeignCAs
	)
	const patience = time.Hour
	mint := func(name string, life time.Duration) []byte {
		authority, err := ca.New(name, life, born)
		Expect(err).NotTo(HaveOccurred())
		return authority.CertificatePEM
	}
	live := func(texts ...[]byte) []ca.Registered {
		return []ca.Registered{{Name: "it", Bundle: ca.Bundle(texts...)}}
	}
	look := func(live []ca.Registered, after time.Duration) ([]byte, time.Time) {
		return foreign.Tolerate(live, ours, born.Add(after),
			func(c *x509.Certificate) time.Duration {
				if c.Subject.CommonName == "gone" {
					return 0
				}
				return patience
			},
			func(c *x509.Certificate) bool { return c.Subject.CommonName == "late" })
	}
	BeforeEach(func() {
		ours, guest, late, gone = mint("ours", 24*time.Hour), mint("guest", 24*time.Hour), mint("late", 24*time.Hour), mint("gone", 24*time.Hour)
		foreign = ca.ForeignCAs{}
	})

	It("stay for as long as patience lasts, from when they are first seen", func() {
		tolerated, until := look(live(ours, guest), 0)
		Expect(tolerated).To(Equal(guest))
		Expect(until).To(Equal(born.Add(patience)))

		tolerated, until = look(live(ours, guest, late), patience/2)
		Expect(tolerated).To(Equal(ca.Bundle(guest, late)))
		Expect(until).To(Equal(born.Add(patience)), "of the first that need not stay any more")

		tolerated, until = look(live(ours, guest, late), patience)
		Expect(tolerated).To(Equal(late))
		Expect(until).To(Equal(born.Add(patience + patience/2)))
	})

	It("begin anew when they have gone and come back", func() {
		look(live(ours, guest), 0)
		look(live(ours), patience/2)
		tolerated, until := look(live(ours, guest), patience)
		Expect(tolerated).To(Equal(guest))
		Expect(until).To(Equal(born.Add(2 * patience)))
	})

	It("do not include a CA that replaced ours, unless it may be of another replica", func() {
		tolerated, _ := look(live(guest, late), 0)
		Expect(tolerated).To(Equal(late))
		tolerated, until := look(live(), 0)
		Expect(tolerated).To(BeEmpty())
		Expect(until).To(BeZero())
	})

	It("stay when they were beside us before we were taken away", func() {
		look(live(ours, guest), 0)
		tolerated, _ := look(live(guest), patience/2)
		Expect(tolerated).To(Equal(guest))
	})

	It("go at once where there is no patience with them, or they have expired", func() {
		tolerated, until := look(live(ours, gone), 0)
		Expect(tolerated).To(BeEmpty())
		Expect(until).To(BeZero())

		short := mint("short", patience/2)
		tolerated, until = look(live(ours, short), 0)
		Expect(tolerated).To(Equal(short))
		Expect(until).To(Equal(born.Add(patience / 2)))
		tolerated, _ = look(live(ours, short), patience/2+time.Minute)
		Expect(tolerated).To(BeEmpty())
	})

	It("are found in any of several caBundles, and returned once", func() {
		all := append(live(ours, guest), live(ours, guest, late)...)
		tolerated, _ := look(all, 0)
		Expect(tolerated).To(Equal(ca.Bundle(guest, late)))
		Expect(ca.Common(ca.Bundle(ours, late, guest), tolerated)).To(Equal(ca.Bundle(late, guest)))
		Expect(ca.Common(ours, tolerated)).To(BeEmpty())
	})
})
