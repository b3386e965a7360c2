package rotation_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

const (
	// callsHealed bounds the time from the moment at which all replicas watch again until no more calls fail. How long they
	// wait for that depends on the outage.
	callsHealed = 10 * time.Second

	// tookOverAgain bounds the time from then until the version that runs is registered in the place of the one that the
	// backup knows. Silence proves nothing until the API servers have been up for some time.
	tookOverAgain = 90 * time.Second

	// atRest is longer than any question or pause.
	atRest = 15 * time.Second

	firstRule, secondRule = "first-rule", "second-rule"
)

// refuse is a rule about the objects that have its label.
func refuse(rule string) eirinix.Validation[*corev1.ConfigMap] {
	return eirinix.Validation[*corev1.ConfigMap]{
		ID: rule, Settings: eirinix.Settings{Timeout: 4 * time.Second}, // whether a busy machine is fast enough is not the question
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

// probes are calls through every API server, one after the other, also while there is none.
type probes struct {
	mu       sync.Mutex
	calls    int
	ready    []time.Time // since when an API server is up again
	failed   int         // calls since then
	last     time.Time   // when the last of them began
	why      string
	admitted []string // that the first rule refuses, at any time
}

func startProbes(ctx context.Context, d *deployment) (p *probes, end func()) {
	GinkgoHelper()
	p = &probes{ready: make([]time.Time, len(servers))}
	probing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	for n := range servers {
		clients := clientsOf(n)
		all.Go(func() {
			ticker := time.NewTicker(every)
			defer ticker.Stop()
			for {
				select {
				case <-probing.Done():
					return
				case <-ticker.C:
				}
				began := time.Now()
				failure := admit(probing, clients, d.objects)
				by, err := refused(probing, clients, d.objects, firstRule)
				if probing.Err() != nil {
					return
				}
				p.note(began, n, failure)
				p.note(began, n, err)
				if err == nil && !by {
					p.wrong(began, n)
				}
			}
		})
	}
	end = func() { stop(); all.Wait() }
	DeferCleanup(end)
	return p, end
}

func (p *probes) note(began time.Time, server int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if since := p.ready[server]; err != nil && !since.IsZero() && began.After(since) {
		p.failed++
		if began.After(p.last) {
			p.last, p.why = began, err.Error()
		}
	}
}

func (p *probes) wrong(began time.Time, server int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.admitted = append(p.admitted, fmt.Sprintf("by API server %d, %s", server, began.Format("15:04:05.000")))
}

func (p *probes) up(server int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready[server] = time.Now()
}

// watching notes when a replica last began to watch.
type watching struct{ atomic.Pointer[time.Time] }

func (w *watching) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err == nil && resp.StatusCode == http.StatusOK && r.URL.Query().Get("watch") == "true" {
			w.Store(new(time.Now()))
		}
		return resp, err
	})
}

// registration is what the API servers know of a program, apart from the managed fields and the resourceVersions.
type registration struct {
	Mutating, Validating string
	MutatingWebhooks     []admissionregistrationv1.MutatingWebhook
	ValidatingWebhooks   []admissionregistrationv1.ValidatingWebhook
}

func (d *deployment) registration(ctx context.Context) (r registration, err error) {
	hooks := clientsOf(0).AdmissionregistrationV1()
	m, err := hooks.MutatingWebhookConfigurations().Get(ctx, d.mutating(), metav1.GetOptions{})
	if err != nil {
		return r, err
	}
	v, err := hooks.ValidatingWebhookConfigurations().Get(ctx, d.validating(), metav1.GetOptions{})
	if err != nil {
		return r, err
	}
	return registration{m.Annotations[webhookconf.VersionAnnotation], v.Annotations[webhookconf.VersionAnnotation], m.Webhooks, v.Webhooks}, nil
}

// rotate replaces the CA.
func (d *deployment) rotate(ctx context.Context, value string) {
	GinkgoHelper()
	d.request(ctx, clientsOf(0), value)
	d.settle(ctx, clientsOf(0))
}

// liveAnHour does what happens to a program in a cluster: the CA is rotated, a version with one more rule is rolled out,
// other clients edit what the program keeps, and the state of the cluster changes often.
func (d *deployment) liveAnHour(ctx context.Context) {
	GinkgoHelper()
	clients := clientsOf(0)
	By("rotating the CA")
	d.rotate(ctx, "within the hour")

	By("rolling out a version with one more rule")
	d.more = append(d.more, refuse(secondRule))
	d.rollOut(ctx, d.keepJournal(ctx, clients))
	before := d.settle(ctx, clients)

	By("editing the configurations and the Lease")
	hooks := clients.AdmissionregistrationV1()
	m, err := hooks.MutatingWebhookConfigurations().Get(ctx, d.mutating(), metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	m.Webhooks = m.Webhooks[1:]
	_, err = hooks.MutatingWebhookConfigurations().Update(ctx, m, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
	v, err := hooks.ValidatingWebhookConfigurations().Get(ctx, d.validating(), metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	v.Webhooks[0].ClientConfig.CABundle = nil
	_, err = hooks.ValidatingWebhookConfigurations().Update(ctx, v, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(clients.CoordinationV1().Leases(d.namespace).Delete(ctx, d.lease(), metav1.DeleteOptions{})).To(Succeed())
	Eventually(func() int { return len(d.records(ctx)) }).WithContext(ctx).WithTimeout(patience).Should(BeNumerically(">", 0))
	Expect(d.settle(ctx, clients).Counter).To(Equal(before.Counter))

	By("writing much else")
	const writers, writes = 10, 200
	var all sync.WaitGroup
	for n := range writers {
		all.Go(func() {
			defer GinkgoRecover()
			maps := clients.CoreV1().ConfigMaps(d.namespace)
			c, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("other-%d", n)}}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			for i := range writes {
				c.Data = map[string]string{"n": strconv.Itoa(i)}
				c, err = maps.Update(ctx, c, metav1.UpdateOptions{})
				Expect(err).NotTo(HaveOccurred())
			}
		})
	}
	all.Wait()
}

var _ = Describe("A backup of etcd that is restored under replicas that go on", func() {
	lives := lifetimes{CA: time.Hour, Leaf: 30 * time.Second, Retain: 2 * time.Second}

	DescribeTable("heals: calls succeed again within seconds, nothing that a rule refuses is admitted, all is as it was, and no replica goes on writing",
		func(ctx SpecContext, replicas int, history func(*deployment, context.Context)) {
			d := deploy(ctx, 0, lives)
			d.more = []any{refuse(firstRule)}
			var w watching
			d.change = func(o *eirinix.ManagerOptions) { o.RestConfig.Wrap(w.wrap) }
			for n := range replicas {
				d.start(ctx, n%len(servers))
			}
			clients := clientsOf(0)
			d.settle(ctx, clients)
			for n := range servers {
				Eventually(admit).WithArguments(ctx, clientsOf(n), d.objects).Should(Succeed())
			}
			backup, saved := filepath.Join(GinkgoT().TempDir(), "backup"), revision(ctx, clients)
			Expect(plane.Backup(backup)).To(Succeed())

			history(d, ctx)
			state := d.settle(ctx, clients)
			before, err := d.registration(ctx)
			Expect(err).NotTo(HaveOccurred())
			version := d.latest(ctx)
			Expect(before.Mutating).To(Equal(version))
			gap := revision(ctx, clients) - saved
			p, end := startProbes(ctx, d)

			By("restoring the backup")
			Expect(plane.Restore(ctx, backup)).To(Succeed())
			Expect(servers[0].Restart(ctx)).To(Succeed())
			began := time.Now()
			p.up(0)
			j := d.keepJournal(ctx, clients)
			for n, s := range servers[1:] {
				Expect(s.Restart(ctx)).To(Succeed())
				p.up(1 + n)
			}
			Eventually(func(g Gomega) {
				now, err := d.registration(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(now).To(Equal(before))
				read, err := d.store(clients).Load(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(read.Bundle()).To(Equal(state.Bundle()), "the CA of the Secret")
				g.Expect(read.Reason).To(BeEmpty())
				g.Expect(d.records(ctx).First(version)).To(Equal(version))
				g.Expect(d.records(ctx).Serving()).To(Equal(1))
			}).WithContext(ctx).WithTimeout(tookOverAgain).WithPolling(50 * time.Millisecond).Should(Succeed())
			healed, watched := time.Since(began), *w.Load()
			for n := range servers {
				for _, rule := range []string{firstRule, secondRule}[:len(d.more)] {
					Eventually(refused).WithArguments(ctx, clientsOf(n), d.objects, rule).WithContext(ctx).WithTimeout(patience).Should(BeTrue(), rule)
				}
			}

			By("waiting for writes")
			writes := fmt.Sprintf("%d of the Secret, %d and %d of the configurations, %d of the Lease",
				j.written(secretKind), j.written(mutatingKind), j.written(validatingKind), j.written(leaseKind))
			Expect(j.registrations()).To(BeNumerically("<=", 2*maxWrites), "writes of the configurations")
			Expect(j.written(secretKind)).To(BeNumerically("<=", maxWrites), "writes of the Secret")
			at := j.all() + j.written(leaseKind)
			Consistently(func() int { return j.all() + j.written(leaseKind) - at }).WithContext(ctx).WithTimeout(atRest).Should(BeZero(), "writes after all was as before")
			end()
			after := func(t time.Time) time.Duration { return max(0, t.Sub(began)).Round(10 * time.Millisecond) }
			AddReportEntry(fmt.Sprintf("%d replicas, restored over %d revisions: of %d calls %d failed after the restart, the last one %s after it; all replicas watched after %s, and all was as before after %s; writes: %s",
				replicas, gap, p.calls, p.failed, after(p.last), after(watched), healed.Round(10*time.Millisecond), writes), ReportEntryVisibilityAlways)
			Expect(p.admitted).To(BeEmpty(), "admitted against the rule")
			Expect(p.last).To(BeTemporally("<", watched.Add(callsHealed)), "the last of %d failures: %s", p.failed, p.why)
		},
		Entry("after an hour, one replica", 1, (*deployment).liveAnHour, SpecTimeout(5*patience)),
		Entry("after an hour, three replicas", 3, (*deployment).liveAnHour, SpecTimeout(5*patience)),
		Entry("after a few revisions, one replica", 1, func(d *deployment, ctx context.Context) { d.rotate(ctx, "soon") }, SpecTimeout(5*patience)),
		Entry("after a few revisions, three replicas", 3, func(d *deployment, ctx context.Context) { d.rotate(ctx, "soon") }, SpecTimeout(5*patience)),
	)
})
