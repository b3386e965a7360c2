package serving

// This file is about the order in which connections make room. The order depends on times alone, so it plays with a clock
// of its own. It also exports internals to the other specs.

import (
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

// arrival is a connection whose client is its name.
type arrival struct {
	net.Conn
	name   string
	closed bool
}

func (a *arrival) RemoteAddr() net.Addr { return &net.UnixAddr{Name: a.name} }

func (a *arrival) Close() error {
	a.closed = true
	return nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// never is the rest of a body that does not come.
type never struct{}

func (never) Read([]byte) (int, error) { return 0, io.ErrNoProgress }

func TestConnectionsMakeRoomInTheOrderOfTheirUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		all := &connections{most: 7}
		open := func(name string) *arrival {
			a := &arrival{name: name}
			g.Expect(all.admit(a)).To(Succeed())
			time.Sleep(time.Second)
			return a
		}
		// send begins a request of that many bytes, of which some arrive.
		send := func(a *arrival, bytes, arrived int64) (*connection, *http.Request) {
			r := &http.Request{RemoteAddr: a.name, ContentLength: bytes, Body: io.NopCloser(io.LimitReader(zeros{}, arrived))}
			if arrived < bytes {
				r.Body = io.NopCloser(io.MultiReader(r.Body, never{}))
			}
			x := all.begin(r)
			_, err := io.Copy(io.Discard, r.Body)
			g.Expect(err == nil).To(Equal(arrived == bytes))
			time.Sleep(time.Second)
			return x, r
		}
		atRest, large, trickles, silent := open("at rest"), open("large"), open("trickles"), open("silent")
		answered, refused, atWork := open("answered"), open("refused"), open("at work")
		for _, a := range []*arrival{answered, atRest} {
			x, r := send(a, 10, 10)
			x.end(r)
		}
		large2, _ := send(large, 100<<20, 40<<20) // in no time, which makes it as old as if it began ten seconds later
		send(trickles, 100, 99)
		x, r := send(refused, 10, 5)
		x.end(r)
		send(atWork, 10, 10)
		g.Expect(large2.since).To(BeTemporally(">", time.Now()))

		for _, next := range []*arrival{silent, trickles, refused} {
			open("newcomer of " + next.name)
			g.Expect(next.closed).To(BeTrue(), next.name)
			g.Expect(all.begin(&http.Request{RemoteAddr: next.name})).To(BeNil(), "its request comes too late")
		}
		for _, stays := range []*arrival{large, answered, atRest, atWork} {
			g.Expect(stays.closed).To(BeFalse(), stays.name)
		}
		for range 5 { // newcomers that send nothing give way to others
			open("another")
		}
		for _, stays := range []*arrival{answered, atRest, atWork} {
			g.Expect(stays.closed).To(BeFalse(), "%s gives way only if nothing is arriving", stays.name)
		}
	})
}

// SetMostConnections is for specs that open only a few. Call it before Start.
func (s *Server) SetMostConnections(n int) { s.most = n }

// AdmitConnections takes connections in, of which that many may be open.
func AdmitConnections(most int) func(net.Conn) error {
	c := &connections{most: most}
	return c.admit
}

// MaxDecisions and RefusalLife bound the remembered decisions of Clients.
const (
	MaxDecisions = maxDecisions
	RefusalLife  = refusalLife
)

// Remembered is how many decisions of each kind are remembered under the current CAs.
func (c *Clients) Remembered() (accepted, refused int) {
	seen := &c.current.Load().seen
	if known := seen.accepted.Load(); known != nil {
		accepted = len(*known)
	}
	if known := seen.refused.Load(); known != nil {
		refused = len(*known)
	}
	return accepted, refused
}

func TestShutdownWaitsForFirstRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, began := NewWithT(t), time.Now()
		all := &connections{most: 7}
		g.Expect(all.admit(&arrival{name: "never used"})).To(Succeed())
		time.Sleep(time.Second)
		g.Expect(all.admit(&arrival{name: "used late"})).To(Succeed())
		time.AfterFunc(firstRequest/4, func() { all.begin(&http.Request{RemoteAddr: "used late", Body: http.NoBody}) })
		all.closeUnused(t.Context())
		g.Expect(time.Since(began)).To(BeNumerically("~", firstRequest, 10*time.Millisecond), "until the one that stays unused is old")
		g.Expect(all.open).To(And(HaveLen(1), HaveKey("used late")))

		began = time.Now()
		all.closeUnused(t.Context())
		g.Expect(time.Since(began)).To(BeZero(), "none is young")
		g.Expect(all.admit(&arrival{name: "first"})).To(Succeed())
		time.AfterFunc(time.Second, func() { _ = all.admit(&arrival{name: "second"}) })
		all.closeUnused(t.Context())
		g.Expect(time.Since(began)).To(BeNumerically("~", firstRequest, 10*time.Millisecond), "not for ever, where new ones come")
	})
}
