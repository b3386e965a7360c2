package rotation_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix"
)

var _ = Describe("A rotation of the CA", func() {
	It("fails no admission, many times over, while versions are rolled out and replicas die", Label("soak"), func(ctx SpecContext) {
		// Half of a CA's life is over some seven seconds after it was made, and a rotation by request is done before.
		d := deploy(ctx, 2, lifetimes{CA: 15 * time.Second, Leaf: 8 * time.Second, Retain: 2 * time.Second})
		l := startLoad(ctx, d, few)
		clients := clientsOf(0)
		j := d.keepJournal(ctx, clients)
		first := d.state(ctx, clients).CurrentID
		began, last := time.Now(), first
		kinds, rollouts, deaths := map[string]int{}, 0, 0
		for n := 0; last-first < int64(rotations(30)); n++ {
			kind := []string{"RotateCA", "annotation", "age"}[n%3]
			switch kind {
			case "RotateCA":
				Expect(d.replicas[n/3%len(d.replicas)].RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed())
			case "annotation":
				d.request(ctx, clients, fmt.Sprint("request ", n))
			}
			d.more = []any{mark([]string{"odd", "even"}[n%2], "yes", eirinix.Settings{})}
			if kind == "age" {
				deaths++
				d.rollOut(ctx, j, func(r *replica) { d.kill(ctx, r) })
			} else {
				d.rollOut(ctx, j)
			}
			rollouts++
			Eventually(func() int64 { return d.state(ctx, clients).CurrentID }).WithContext(ctx).WithTimeout(patience).
				WithPolling(50*time.Millisecond).Should(BeNumerically(">", last), kind)
			last = d.state(ctx, clients).CurrentID
			kinds[kind]++
			Expect(l.failing()).To(BeEmpty(), "after %d rotations", last-first)
		}
		took := time.Since(began)
		d.settle(ctx, clients)
		Expect(j.versions(mutatingKind)).To(HaveLen(1+rollouts), "each version was registered once")
		Expect(j.maxTrusted()).To(BeNumerically("<=", 3), "CAs in a caBundle: the old, the new, and one that is about to go")
		d.expectNoFailure(l, fmt.Sprintf("%d rotations in %s %v, %d rollouts, %d replicas killed, %d CAs in a caBundle at most",
			last-first, took.Round(time.Second), kinds, rollouts, deaths, j.maxTrusted()))
	}, SpecTimeout(4*time.Hour))
})
