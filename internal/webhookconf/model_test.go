package webhookconf_test

import (
	"math/rand/v2"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// rivals is a model of processes of several versions that share one configuration. What they do is what Stance says;
// who looks when, who starts, who dies and who edits is random.
type rivals struct {
	random *rand.Rand
	now    time.Time
	alive  []*webhookconf.Stance
	exists bool
	stamp  webhookconf.Stamp
	holds  string // the digest of what is in it
	writes int
}

func (r *rivals) start(version string) {
	r.now = r.now.Add(time.Duration(1 + r.random.IntN(1000)))
	r.alive = append(r.alive, &webhookconf.Stance{Us: webhookconf.Stamp{Digest: version, Started: r.now}})
}

func (r *rivals) kill(i int) { r.alive = slices.Delete(r.alive, i, i+1) }

// look lets a process see the configuration and do what it wants to.
func (r *rivals) look(s *webhookconf.Stance) {
	intact := r.holds == s.Us.Digest && r.stamp.Digest == s.Us.Digest
	if s.Judge(r.now, r.exists, r.stamp, intact).Action != webhookconf.Write {
		return
	}
	stamp := r.stamp
	if !r.exists {
		stamp = webhookconf.Stamp{}
	}
	r.exists, r.stamp, r.holds = true, s.StampOver(stamp), s.Us.Digest
	r.writes++
	s.Wrote(r.now)
}

// round lets everybody look, in any order.
func (r *rivals) round() {
	for _, i := range r.random.Perm(len(r.alive)) {
		r.now = r.now.Add(time.Duration(r.random.IntN(int(time.Second))))
		r.look(r.alive[i])
	}
}

// let lets time go by, in which everybody looks every minute.
func (r *rivals) let(pass time.Duration) {
	for until := r.now.Add(pass); r.now.Before(until); r.now = r.now.Add(time.Minute) {
		r.round()
	}
}

// last is the process that started last.
func (r *rivals) last() *webhookconf.Stance {
	return slices.MaxFunc(r.alive, func(a, b *webhookconf.Stance) int { return a.Us.Started.Compare(b.Us.Started) })
}

// disturb does one thing that happens to clusters.
func (r *rivals) disturb(versions []string) {
	switch r.random.IntN(6) {
	case 0, 1:
		if len(r.alive) < 8 {
			r.start(versions[r.random.IntN(len(versions))])
		}
	case 2:
		if len(r.alive) > 1 {
			r.kill(r.random.IntN(len(r.alive)))
		}
	case 3: // a container that crashes comes back as it was
		i := r.random.IntN(len(r.alive))
		version := r.alive[i].Us.Digest
		r.kill(i)
		r.start(version)
	case 4:
		r.holds = "edited"
	case 5:
		switch r.random.IntN(4) {
		case 0:
			r.exists, r.holds, r.stamp = false, "", webhookconf.Stamp{}
		case 1:
			r.stamp = webhookconf.Stamp{}
		}
	}
}

var _ = Describe("Versions that share a configuration", func() {
	const (
		worlds    = 300
		settled   = 5 * time.Hour // more than anybody yields
		quietFor  = 48 * time.Hour
		triesEach = 17 // 10, 20, 40, 80, 160 minutes, and then every four hours
	)
	versions := []string{"a", "b", "c"}

	It("agree on the one that started last, whatever happened, and soon write no more", func() {
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1))
		for world := range worlds {
			r := &rivals{random: random, now: noon}
			r.start("a")
			events := 50 + random.IntN(150)
			for range events {
				r.disturb(versions)
				if random.IntN(4) > 0 {
					r.round()
				} else {
					r.look(r.alive[random.IntN(len(r.alive))])
				}
				r.now = r.now.Add(time.Duration(random.IntN(int(3 * time.Minute))))
			}
			Expect(r.writes).To(BeNumerically("<=", 3*events), "world %d: a write or two for each event", world)

			// Nothing happens any more. The configuration may still hold what somebody registered who is dead. When that is
			// settled, whoever has been replaced tries now and then, in vain.
			r.let(settled)
			winner, others := r.last().Us.Digest, 0
			for _, s := range r.alive {
				if s.Us.Digest != winner {
					others++
				}
			}
			r.writes = 0
			rounds, lost := 0, 0
			for until := r.now.Add(quietFor); r.now.Before(until); rounds++ {
				r.let(time.Minute)
				if r.holds != winner {
					lost++
				}
			}
			Expect(r.writes).To(BeNumerically("<=", 2*triesEach*others), "world %d: %d others", world, others)
			Expect(lost).To(BeNumerically("<=", triesEach*others), "world %d: of %d rounds", world, rounds)
			if others == 0 {
				Expect(r.writes).To(BeZero(), "world %d", world)
			}

			// The last one is undone: only those that it replaced are left.
			r.alive = slices.DeleteFunc(r.alive, func(s *webhookconf.Stance) bool { return s.Us.Digest == winner })
			if len(r.alive) == 0 {
				continue
			}
			r.let(settled)
			Expect(r.holds).NotTo(Equal(winner), "world %d: nobody serves it any more", world)
		}
	})

	It("go back within ten minutes when the newer one dies at once", func() {
		r := &rivals{random: rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 2)), now: noon}
		for range 3 {
			r.start("a")
			r.round()
		}
		r.now = r.now.Add(time.Hour)
		r.start("b")
		r.round()
		r.round()
		Expect(r.holds).To(Equal("b"))
		r.kill(3)
		died := r.now
		for r.holds == "b" {
			r.round()
			r.now = r.now.Add(time.Second)
			Expect(r.now.Sub(died)).To(BeNumerically("<", 10*time.Minute+10*time.Second))
		}
		Expect(r.writes).To(Equal(3), "a, b, and a once, though three replicas of it live")
	})
})
