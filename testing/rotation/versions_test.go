package rotation_test

import (
	"context"
	"maps"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/testing/internal/load"
)

// unhurried are lifetimes of which none ends during a spec.
var unhurried = lifetimes{CA: 24 * time.Hour, Leaf: time.Hour, Retain: time.Hour}

// service names the program in its record.
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
})
