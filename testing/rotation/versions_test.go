package rotation_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
)

// answer is what became of one admission.
type answer struct {
	began  time.Time
	data   map[string]string
	failed error
}

// ask has objects admitted through every API server until stop, one after the other. soFar gives the answers that are
// there already.
func ask(d *deployment) (soFar, stop func() []answer) {
	var mu sync.Mutex
	var all []answer
	ended := make(chan struct{})
	var asking sync.WaitGroup
	for n := range servers {
		clients := clientsOf(n)
		asking.Go(func() {
			for {
				select {
				case <-ended:
					return
				case <-time.After(every):
				}
				a := answer{began: time.Now()}
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				c, err := clients.CoreV1().ConfigMaps(d.objects).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "load-"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				cancel()
				if a.failed = err; err == nil {
					a.data = c.Data
				}
				mu.Lock()
				all = append(all, a)
				mu.Unlock()
			}
		})
	}
	once := sync.OnceFunc(func() { close(ended); asking.Wait() })
	DeferCleanup(once)
	soFar = func() []answer {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
	return soFar, func() []answer { once(); return soFar() }
}

// wasCut tells whether the connection to a replica was cut, as its API server reports it: on a machine so busy that a call
// waits longer for the replica than that drains, here for one second. Nobody repeats such a call.
func wasCut(err error) bool {
	return err != nil && strings.Contains(err.Error(), "failed to call webhook: Post") &&
		(strings.HasSuffix(err.Error(), ": EOF") || strings.HasSuffix(err.Error(), "connection reset by peer"))
}

var _ = Describe("Two versions with different steps", func() {
	rotation := eirinix.Rotation{CALifetime: time.Hour, LeafLifetime: time.Minute, Retain: time.Minute}
	mark := func(key string, settings eirinix.Settings) eirinix.Mutation[*corev1.ConfigMap] {
		settings.Timeout = 30 * time.Second
		return eirinix.Mutation[*corev1.ConfigMap]{ID: key, Settings: settings, Apply: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
			if c.Data == nil {
				c.Data = map[string]string{}
			}
			c.Data[key] = "yes"
			return nil
		}}
	}
	configuration := func(ctx context.Context, d *deployment) *admissionregistrationv1.MutatingWebhookConfiguration {
		GinkgoHelper()
		c, err := clientsOf(0).AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, d.mutating(), metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return c
	}
	entries := func(ctx context.Context, d *deployment) int { return len(configuration(ctx, d).Webhooks) }

	It("may be rolled out, one after the other, under load: no object skips a step, and nobody fights", func(ctx SpecContext) {
		d := deploy(ctx, 3, rotation)
		before := configuration(ctx, d)
		soFar, stop := ask(d)
		// One shares its webhook with a step that was there before, the other has one of its own.
		d.more = []any{mark("shared", eirinix.Settings{}), mark("alone", eirinix.Settings{Isolated: true})}
		d.replace(ctx, d.replicas[0])
		Expect(entries(ctx, d)).To(Equal(len(before.Webhooks)), "who is not known to those who send calls does not register what nobody else knows")
		for range 2 {
			d.replace(ctx, d.replicas[0])
		}
		var registered time.Time
		Eventually(func() int { registered = time.Now(); return entries(ctx, d) }).WithContext(ctx).WithPolling(20 * time.Millisecond).Should(Equal(len(before.Webhooks) + 1))
		Consistently(func() int64 { return configuration(ctx, d).Generation }, "2s").Should(BeNumerically("<=", before.Generation+2))
		// API servers have heard of the steps by then. On a busy machine answers take their time.
		known := func(a answer) bool { return a.began.After(registered.Add(time.Second)) }
		Eventually(func() int {
			asked := 0
			for _, a := range soFar() {
				if known(a) {
					asked++
				}
			}
			return asked
		}).WithContext(ctx).Should(BeNumerically(">", 20))
		answers := stop()

		late, cut := 0, 0
		for _, a := range answers {
			if wasCut(a.failed) {
				cut++
				continue
			}
			Expect(a.failed).NotTo(HaveOccurred())
			Expect(a.data).To(HaveKey("mutated"))
			if known(a) {
				Expect(a.data).To(And(HaveKey("shared"), HaveKey("alone")), "after %s", a.began.Sub(registered))
			} else if a.data["alone"] == "" {
				late++
			}
		}
		Expect(cut).To(BeNumerically("<=", 1+len(answers)/100), "connections may be cut at most now and then")
		AddReportEntry(fmt.Sprintf("a rollout of two more steps: %d admissions, 0 failures, %d connections cut, %d before the steps were registered", len(answers), cut, late), ReportEntryVisibilityAlways)
	}, SpecTimeout(5*patience))

	It("may lose the one that has registered, or never reach it: the other one takes back what it serves", func(ctx SpecContext) {
		d := deploy(ctx, 2, rotation)
		before := configuration(ctx, d).Annotations["eirinix.cloudfoundry.org/sets"]
		d.more = []any{mark("shared", eirinix.Settings{})}
		newer := d.start(ctx, 0)
		registered := func() string { return configuration(ctx, d).Annotations["eirinix.cloudfoundry.org/sets"] }
		Eventually(registered).WithContext(ctx).ShouldNot(Equal(before))
		d.balancer.remove(newer.Addr().String()) // it runs on, and is no endpoint
		Eventually(registered).WithContext(ctx).Should(Equal(before))
		_, stop := ask(d)
		Consistently(registered, "8s", "100ms").Should(Equal(before), "it yields")
		failed := 0
		for _, a := range stop() {
			if a.failed != nil {
				failed++
			}
		}
		Expect(failed).To(BeNumerically("<=", 2), "those that were asked before both had noticed")
	}, SpecTimeout(5*patience))

	It("may run beside each other: who does not know what is registered passes calls on, and few fail", func(ctx SpecContext) {
		d := deploy(ctx, 2, rotation)
		before := configuration(ctx, d)
		d.more = []any{mark("shared", eirinix.Settings{})}
		d.start(ctx, 0)
		Eventually(func() int64 { return configuration(ctx, d).Generation + int64(len(configuration(ctx, d).Annotations)) }).WithContext(ctx).
			Should(BeNumerically(">=", before.Generation+int64(len(before.Annotations))))
		Eventually(func() string { return configuration(ctx, d).Annotations["eirinix.cloudfoundry.org/sets"] }).WithContext(ctx).
			ShouldNot(Equal(before.Annotations["eirinix.cloudfoundry.org/sets"]), "the new version takes over")
		settled := configuration(ctx, d)
		Eventually(func(g Gomega) { // the two have noticed
			for range 10 {
				c, err := clientsOf(0).CoreV1().ConfigMaps(d.objects).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "load-"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if err == nil {
					g.Expect(c.Data).To(HaveKey("shared"))
				}
			}
		}).WithContext(ctx).Should(Succeed())
		_, stop := ask(d)
		Consistently(func() string { return configuration(ctx, d).ResourceVersion }, "8s", "100ms").Should(Equal(settled.ResourceVersion), "nobody fights")
		answers := stop()
		failed := 0
		for _, a := range answers {
			if a.failed != nil {
				failed++
				continue
			}
			Expect(a.data).To(And(HaveKey("mutated"), HaveKey("shared")), "no object skips a step that is registered")
		}
		// An API server asks ten times more, each time one of three replicas: (2/3)^11, 1.2 % of calls, meet none that knows.
		AddReportEntry(fmt.Sprintf("two replicas of three do not know a step: %d of %d admissions fail", failed, len(answers)), ReportEntryVisibilityAlways)
		Expect(len(answers)).To(BeNumerically(">", 50))
		Expect(failed).To(BeNumerically("<", len(answers)/10))
	}, SpecTimeout(5*patience))
})
