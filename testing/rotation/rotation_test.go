package rotation_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
	"code.cloudfoundry.org/eirinix/testing/internal/load"
)

var _ = Describe("A rotation of the CA", func() {
	It("fails no admission, many times over, while versions are rolled out and replicas die", Label("soak"), func(ctx SpecContext) {
		// Half of a CA's life is over some fifteen seconds after it was made, and a rotation by request is done before.
		d := deploy(ctx, 2, lifetimes{CA: 30 * time.Second, Leaf: 20 * time.Second, Retain: 3 * time.Second})
		l := d.startLoad(ctx, few)
		j := d.keepJournal(ctx)
		first := Must(d.current(ctx))
		began, last, rollouts := time.Now(), first, 0
		for ; last-first < int64(rotations(3)); rollouts++ {
			kind := []string{"RotateCA", "age", "annotation", "annotation"}[rollouts%4]
			switch kind {
			case "RotateCA":
				Expect(d.replicas[rollouts/4%len(d.replicas)].RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed())
			case "annotation":
				d.request(ctx, fmt.Sprint("request ", rollouts))
			}
			d.more = []any{mark([]string{"odd", "even"}[rollouts%2], "yes", eirinix.Settings{})}
			if kind == "age" {
				d.rollOut(ctx, j, func(r *replica) { d.kill(ctx, r) })
			} else {
				d.rollOut(ctx, j)
			}
			Eventually(d.current).WithArguments(ctx).WithContext(ctx).Should(BeNumerically(">", last), kind)
			last = Must(d.current(ctx))
			Expect(l.Failures()).To(BeEmpty(), "after %d rotations", last-first)
		}
		took := time.Since(began).Round(time.Second)
		d.settle(ctx)
		Expect(j.registrations(mutatingKind)).To(HaveLen(1+rollouts), "each version was registered once")
		Expect(j.most).To(BeNumerically("<=", 3), "CAs in a caBundle: the old, the new, and one that is about to go")
		l.expectNoFailure("%d rotations in %s, %d rollouts", last-first, took, rollouts)
	}, SpecTimeout(4*time.Hour))
})

// freeze stops an API server while something is done, and sees that it goes on.
func freeze(server int, meanwhile func()) {
	GinkgoHelper()
	Expect(servers[server].Pause()).To(Succeed())
	defer func() { Expect(servers[server].Resume()).To(Succeed()) }()
	meanwhile()
}

// callTimeout is shorter than the time after which either side gives up a call or a handshake.
const callTimeout = 4 * time.Second

// A thawed API server may still act on an old state: it meets a new serving certificate with the old caBundle. Without
// cross-signed certificates calls fail then; no other spec on a real API server shows it.
var _ = Describe("A rotation of the CA while an API server is frozen until the next CA signs", func() {
	It("fails no admission", func(ctx SpecContext) {
		d := deploy(ctx, 3, lifetimes{CA: time.Hour, Leaf: 30 * time.Second, Retain: 5 * time.Second})
		l := d.startLoad(ctx, many)
		const times = 2
		var longest time.Duration
		for n := range times {
			before := d.settle(ctx).CurrentID
			began := time.Now()
			freeze(1, func() {
				d.request(ctx, fmt.Sprint("request ", n))
				Eventually(d.current).WithArguments(ctx).WithContext(ctx).WithPolling(20 * time.Millisecond).Should(BeNumerically(">", before))
			})
			longest = max(longest, time.Since(began))
			d.settle(ctx)
			l.ExpectMore(ctx, 2*many)
		}
		l.end("%d rotations while an API server is frozen", times)
		Expect(l.Failures()).NotTo(ContainElement(ContainSubstring("x509")))
		if longest < callTimeout { // else other failures are not the rotation's
			Expect(l.Failures()).To(BeEmpty())
		}
	}, SpecTimeout(10*patience))
})

// atRest is longer than any question or pause, and maxWrites is how often an object may be written for one fault.
const atRest, maxWrites = 15 * time.Second, 3

const firstRule, secondRule = "first-rule", "second-rule"

// refuse is a rule about the objects that have its label.
func refuse(rule string) eirinix.Validation[*corev1.ConfigMap] {
	return eirinix.Validation[*corev1.ConfigMap]{
		ID: rule, Settings: eirinix.Settings{Timeout: 10 * time.Second}, // whether a busy machine is fast enough is not the question
		Create: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
			if c.Labels[rule] != "" {
				return eirinix.Deny("refused by the %s", rule)
			}
			return nil
		},
	}
}

// refused reports whether a rule refuses an object. The error says why the call failed.
func refused(ctx context.Context, clients kubernetes.Interface, namespace, rule string) (bool, error) {
	_, err := clients.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "broken-", Labels: map[string]string{rule: "yes"}},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil && strings.Contains(err.Error(), "refused by the "+rule) {
		return true, nil
	}
	return false, err
}

// registration is the registered version of a program, and its webhooks.
func (d *deployment) registration(ctx context.Context) ([]any, error) {
	m, v, err := d.configurations(ctx)
	if err != nil {
		return nil, err
	}
	return []any{m.Annotations[webhookconf.VersionAnnotation], m.Webhooks, v.Annotations[webhookconf.VersionAnnotation], v.Webhooks}, nil
}

// liveAnHour does what happens to a program in a cluster: the CA is rotated, a version with one more rule is rolled out, and
// the state of the cluster changes often.
func (d *deployment) liveAnHour(ctx context.Context) {
	GinkgoHelper()
	d.request(ctx, "within the hour")
	d.settle(ctx)
	d.more = append(d.more, refuse(secondRule))
	d.rollOut(ctx, d.keepJournal(ctx))
	maps := clientsOf(0).CoreV1().ConfigMaps(d.namespace)
	other := Must(maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{}))
	for n := range 300 {
		other.Data = map[string]string{"n": strconv.Itoa(n)}
		other = Must(maps.Update(ctx, other, metav1.UpdateOptions{}))
	}
}

var _ = Describe("A backup of etcd that is restored under replicas that go on", func() {
	It("heals after an hour: calls succeed again, nothing that a rule refuses is admitted, all is as it was, and no replica goes on writing",
		func(ctx SpecContext) {
			d := deploy(ctx, 0, lifetimes{CA: time.Hour, Leaf: 30 * time.Second, Retain: 2 * time.Second})
			d.more = []any{refuse(firstRule)}
			d.scale(ctx, 3)
			d.settle(ctx)
			d.obeyed(ctx, nil)
			backup := filepath.Join(GinkgoT().TempDir(), "backup")
			Expect(plane.Backup(backup)).To(Succeed())

			d.liveAnHour(ctx)
			state, version, before := d.settle(ctx), d.latest(ctx), Must(d.registration(ctx))
			var admitted atomic.Int64
			asking := load.NewStream()
			for n := range servers {
				clients := clientsOf(n)
				asking.Send(serverName(n), every, 1, func(ctx context.Context, _ int) error {
					is, err := refused(ctx, clients, d.objects, firstRule)
					if err == nil && !is {
						admitted.Add(1)
					}
					return err
				})
			}

			By("restoring the backup")
			Expect(plane.Restore(ctx, backup)).To(Succeed())
			Expect(servers[0].Restart(ctx)).To(Succeed())
			began := time.Now()
			j := d.keepJournal(ctx)
			Expect(servers[1].Restart(ctx)).To(Succeed())
			// Silence proves nothing until the API servers have been up for some time.
			Eventually(func(g Gomega) {
				g.Expect(d.registration(ctx)).To(Equal(before))
				now, err := d.store().Load(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(now.Bundle()).To(Equal(state.Bundle()), "the CA of the Secret")
				g.Expect(now.Reason).To(BeEmpty())
				records, err := d.records(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(records.First(version)).To(Equal(version))
				g.Expect(records.Serving()).To(Equal(1))
			}).WithContext(ctx).WithTimeout(4 * patience).Should(Succeed())
			healed := time.Since(began).Round(10 * time.Millisecond)
			for n := range servers {
				for _, rule := range []string{firstRule, secondRule} {
					Eventually(refused).WithArguments(ctx, clientsOf(n), d.objects, rule).WithContext(ctx).Should(BeTrue(), rule)
				}
			}
			asking.End()
			Expect(admitted.Load()).To(BeZero(), "admitted against the rule")

			By("waiting for writes")
			l := d.startLoad(ctx, few)
			for _, kind := range []string{secretKind, mutatingKind, validatingKind} {
				Expect(j.written(kind)).To(BeNumerically("<=", maxWrites), kind)
			}
			written := func() int { return j.written(secretKind, mutatingKind, validatingKind, leaseKind) }
			Consistently(written).WithContext(ctx).WithTimeout(atRest).Should(Equal(written()), "writes after all was as before")
			l.expectNoFailure("all was as before %s after the restart", healed)
		}, SpecTimeout(10*patience))
})
