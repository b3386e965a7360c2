// Specs of the limit on log lines.
package lograte_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/lograte"
)

func TestAnEventIsLoggedOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var l lograte.Limiter
		allow := func(kind, reason string, withheld int, ok bool) {
			t.Helper()
			n, yes := l.Allow(kind, reason)
			g.Expect(yes).To(Equal(ok))
			g.Expect(n).To(Equal(withheld))
		}
		allow("read", "a", 0, true)
		allow("read", "a", 0, false)
		allow("read", "a", 0, false)
		allow("write", "a", 0, true) // another kind
		allow("read", "b", 2, true)  // its reason has changed, and two were withheld
		allow("read", "a", 0, true)  // and has changed back
		time.Sleep(time.Minute - 1)
		allow("read", "a", 0, false)
		time.Sleep(time.Nanosecond)
		allow("read", "a", 1, true) // a reminder
		l.Forget("read")
		allow("read", "a", 0, true) // it had passed
		allow("read", "a", 0, false)
	})
}

func TestLograte(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "internal/lograte")
}

var _ = It("A limit goes by the clock that it is given", func() {
	now := time.Now()
	var lines []string
	log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	l := lograte.Limiter{Every: time.Hour, Now: func() time.Time { return now }}
	Expect(l.Info(log, "waiting for the Secret", "it is missing")).To(BeTrue())
	now = now.Add(59 * time.Minute)
	Expect(l.Info(log, "waiting for the Secret", "it is missing")).To(BeFalse())
	now = now.Add(-3 * time.Hour) // the clock was set back
	Expect(l.Info(log, "waiting for the Secret", "it is missing")).To(BeTrue())
	Expect(lines).To(HaveLen(2))
	Expect(lines).To(HaveEach(`"level"=0 "msg"="waiting for the Secret" "reason"="it is missing"`))
})

var _ = DescribeTable("A text in a log line", func(text, brief string) {
	Expect(lograte.Brief(text, 4)).To(Equal(brief))
},
	Entry("is whole up to its bound", "abcd", "abcd"),
	Entry("is cut beyond it", "abcde", "abcd..."),
	Entry("is cut between characters", "abcé", "abc..."),
)

func TestOfManyEventsTheFirstAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var s lograte.Sampler
		logged := func(kind string, events int, reason func(int) string) (lines, withheld int) {
			for i := range events {
				if n, ok := s.Allow(kind, reason(i)); ok {
					lines, withheld = lines+1, withheld+n
				}
			}
			return lines, withheld
		}
		same := func(int) string { return "no root" }
		lines, _ := logged("a", 50, same)
		g.Expect(lines).To(Equal(10))
		others, withheld := 0, 0 // reasons can share a hash with the first one
		for lines = 0; lines == 0 && others < 40; others++ {
			lines, withheld = logged("a", 1, func(int) string { return fmt.Sprint("another reason ", others) })
		}
		g.Expect([]int{lines, withheld}).To(Equal([]int{1, 39 + others}))
		lines, _ = logged("b", 10_000, func(i int) string { return fmt.Sprint(i) })
		g.Expect(lines).To(Equal(100), "any number of reasons")
		lines, _ = logged("c", 5, same)
		g.Expect(lines).To(Equal(5), "another kind")
		time.Sleep(time.Minute)
		lines, _ = logged("b", 1, same)
		g.Expect(lines).To(Equal(1))

		lines = 0
		for i := range 1_000 {
			if _, ok := s.Allow(fmt.Sprint("kind ", i), ""); ok {
				lines++
			}
		}
		g.Expect(lines).To(Equal(256-3+10), "the three and these are 256 kinds; further ones count as one")
	})
}
