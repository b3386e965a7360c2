package rotation_test

import (
	"context"
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

// atRest is longer than any question or pause.
const atRest = 15 * time.Second

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

// registration is what the API servers know of a program: the registered version and the webhooks.
func (d *deployment) registration(ctx context.Context) ([]any, error) {
	hooks := clientsOf(0).AdmissionregistrationV1()
	m, err := hooks.MutatingWebhookConfigurations().Get(ctx, d.mutating(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	v, err := hooks.ValidatingWebhookConfigurations().Get(ctx, d.validating(), metav1.GetOptions{})
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
	DescribeTable("heals: calls succeed again, nothing that a rule refuses is admitted, all is as it was, and no replica goes on writing",
		func(ctx SpecContext, replicas int, history func(*deployment, context.Context)) {
			d := deploy(ctx, 0, lifetimes{CA: time.Hour, Leaf: 30 * time.Second, Retain: 2 * time.Second})
			d.more = []any{refuse(firstRule)}
			d.scale(ctx, replicas)
			d.settle(ctx)
			d.obeyed(ctx, nil)
			backup := filepath.Join(GinkgoT().TempDir(), "backup")
			Expect(plane.Backup(backup)).To(Succeed())

			history(d, ctx)
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
			}).WithContext(ctx).WithTimeout(4 * patience).WithPolling(50 * time.Millisecond).Should(Succeed())
			healed := time.Since(began).Round(10 * time.Millisecond)
			for n := range servers {
				for _, rule := range []string{firstRule, secondRule}[:len(d.more)] {
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
			l.expectNoFailure("%d replicas, all was as before %s after the restart", replicas, healed)
		},
		Entry("after an hour, three replicas", 3, (*deployment).liveAnHour, SpecTimeout(10*patience)),
		Entry("after a few revisions, one replica", 1, func(d *deployment, ctx context.Context) { d.request(ctx, "soon") }, SpecTimeout(10*patience)),
	)
})
