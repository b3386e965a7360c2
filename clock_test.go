package eirinix

import (
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2/dsl/core"
	. "github.com/onsi/ginkgo/v2/dsl/table"
	. "github.com/onsi/gomega"
)

var _ = Describe("The API server's clock", func() {
	at := time.Date(2030, 1, 2, 3, 4, 5, 700_000_000, time.UTC)

	DescribeTable("is ahead of ours by", func(ahead, expected time.Duration) {
		var c serverClock
		c.observe(at.Add(ahead).Format(http.TimeFormat), at)
		Expect(c.Skew()).To(BeNumerically("~", expected, time.Second))
		if expected == 0 {
			Expect(c.Skew()).To(BeZero())
		}
	},
		Entry("nothing", time.Duration(0), time.Duration(0)),
		Entry("what an answer takes", -1500*time.Millisecond, time.Duration(0)),
		Entry("an hour", time.Hour, time.Hour),
		Entry("a year, the wrong way", -365*24*time.Hour, -365*24*time.Hour),
	)

	It("is ours where nobody tells", func() {
		var c serverClock
		c.observe("", at)
		c.observe("yesterday", at)
		Expect(c.Now()).To(BeTemporally("~", time.Now(), time.Second))
	})

	It("does not tremble with every answer, and is corrected when ours is set", func() {
		var c serverClock
		c.observe(at.Add(time.Hour).Format(http.TimeFormat), at)
		first := c.Skew()
		c.observe(at.Add(time.Hour+time.Second).Format(http.TimeFormat), at)
		Expect(c.Skew()).To(Equal(first))
		c.observe(at.Format(http.TimeFormat), at)
		Expect(c.Skew()).To(BeZero())
	})

	It("is read off every answer", func() {
		var c serverClock
		transport := c.wrap(roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{Header: http.Header{"Date": {time.Now().Add(24 * time.Hour).UTC().Format(http.TimeFormat)}}}, nil
		}))
		_, err := transport.RoundTrip(nil) //nolint:bodyclose // there is none
		Expect(err).NotTo(HaveOccurred())
		Expect(c.Skew()).To(BeNumerically("~", 24*time.Hour, 2*time.Second))
	})
})

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
