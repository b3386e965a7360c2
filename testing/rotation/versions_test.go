package rotation_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/testing/internal/load"
)

// unhurried are lifetimes of which none ends during a spec.
var unhurried = lifetimes{CA: 24 * time.Hour, Leaf: time.Hour, Retain: time.Hour}

// service names the program in its record, and in errors.
func (d *deployment) service() string { return "Service " + d.namespace + "/" + load.ServiceName }

// records are those of the versions in the Lease.
func (d *deployment) records(ctx context.Context) (rollout.Versions, error) {
	lease, err := clientsOf(0).CoordinationV1().Leases(d.namespace).Get(ctx, d.lease(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return rollout.Versions{}, nil
	}
	if err != nil {
		return nil, err
	}
	return rollout.Read(lease.Annotations), nil
}

// latest waits until one version of the deployment's Service is left, and returns it. The one that arrived last may be another:
// a version whose replicas were so slow that it was taken for gone comes again.
func (d *deployment) latest(ctx context.Context) (version string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		all, err := d.records(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		maps.DeleteFunc(all, func(_ string, r rollout.Record) bool { return r.Removed || r.Target != d.service() })
		g.Expect(all).To(HaveLen(1))
		version = all.First("")
	}).WithContext(ctx).Should(Succeed())
	return version
}

// rollOut replaces all replicas, and waits until their version is registered. The functions in how stop the first of them.
func (d *deployment) rollOut(ctx context.Context, j *journal, how ...func(*replica)) {
	GinkgoHelper()
	d.replace(ctx, how...)
	j.expectRegistered(ctx, d.latest(ctx))
}

var _ = Describe("Versions with different steps", func() {
	// becomes sees that every API server acts on a version, and that the load gets its steps alone from now on.
	becomes := func(ctx context.Context, l *admissions, v version) {
		GinkgoHelper()
		l.d.obeyed(ctx, v.alone())
		l.wanted.Store(v.alone())
		l.ExpectMore(ctx, 20)
		Expect(l.Failures()).To(BeEmpty())
	}

	It("are rolled out forth and back under load, in 3 replicas: no call fails, no object skips a step that all have, and each registration is written once",
		func(ctx SpecContext) {
			const replicas = 3
			rollouts := 2 * max(1, rotations(30)/30)
			d := deploy(ctx, 0, unhurried)
			d.more = older.steps
			d.scale(ctx, replicas)
			j := d.keepJournal(ctx)
			l := d.startLoad(ctx, few)
			becomes(ctx, l, older)
			now, next := older, newer
			for range rollouts {
				l.wanted.Store(now.with(next))
				d.more = next.steps
				d.rollOut(ctx, j)
				becomes(ctx, l, next)
				now, next = next, now
			}
			for _, kind := range []string{mutatingKind, validatingKind} {
				Expect(j.registrations(kind)).To(HaveLen(1+rollouts), "no version gives way to another and comes back")
				Expect(j.written(kind)).To(Equal(rollouts), "writes of the %s", kind)
			}
			l.expectNoFailure("%d rollouts of %d replicas, the Lease written %d times", rollouts, replicas, j.written(leaseKind))
		}, SpecTimeout(time.Hour))

	It("give way to the next one when all replicas of the first are killed, and that one answers their calls until then", func(ctx SpecContext) {
		d := deploy(ctx, 0, unhurried)
		d.more = older.steps
		d.scale(ctx, 2)
		old := slices.Clone(d.replicas)
		j := d.keepJournal(ctx)
		l := d.startLoad(ctx, few)
		l.wanted.Store(older.with(newer))
		d.more = newer.steps
		d.scale(ctx, 2)
		// A question that was answered just before is the worst case.
		Eventually(d.records).WithArguments(ctx).WithContext(ctx).WithPolling(20 * time.Millisecond).Should(HaveEach(HaveField("Answered", BeNumerically(">", 0))))
		Expect(j.written(mutatingKind)).To(BeZero(), "the registration of the first stands")
		died := time.Now()
		d.kill(ctx, old...)
		j.expectRegistered(ctx, d.latest(ctx))
		took := time.Since(died).Round(100 * time.Millisecond)
		becomes(ctx, l, newer)
		Expect(j.written(mutatingKind, validatingKind)).To(Equal(2))
		l.expectNoFailure("all replicas of the first version killed, the next one registered %s later", took)
	}, SpecTimeout(5*patience))
})

var _ = Describe("Two programs of one fingerprint", func() {
	It("are distinguished by their Services: the later one ends with an error, also while the first one is rolled out", func(ctx SpecContext) {
		d := deploy(ctx, 0, unhurried)
		d.more = older.steps
		d.scale(ctx, 2)
		j := d.keepJournal(ctx)
		l := d.startLoad(ctx, few)
		other := func(name string) error {
			m, _ := d.manager(1, name, func(o *eirinix.ManagerOptions) { o.ServiceName = "other" })
			return m.Run(ctx)
		}
		refused := MatchError(And(ContainSubstring(d.service()), ContainSubstring("Service "+d.namespace+"/other"), ContainSubstring("OperatorFingerprint")))
		Expect(other("other")).To(refused)
		Expect(j.written(mutatingKind, validatingKind)).To(BeZero())

		d.more = newer.steps
		trying := load.NewStream()
		trying.Send("a start", every, 1, func(_ context.Context, n int) error {
			if matched, err := refused.Match(other(fmt.Sprint("other-", n))); err != nil || !matched {
				return errors.Join(err, errors.New("it was not refused"))
			}
			return nil
		})
		d.rollOut(ctx, j)
		trying.ExpectMore(ctx, 1)
		trying.End()
		Expect(trying.Failures()).To(BeEmpty())
		Expect(j.registrations(mutatingKind)).To(HaveLen(2))
		l.expectNoFailure("a second program under one fingerprint ends %d times during a rollout of the first", trying.Total())
	}, SpecTimeout(5*patience))
})
