package rotation_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// tookOver bounds how long it may take that a version without replicas is given up: a question after at most ten seconds,
// ten more without an answer, and the delays of a busy machine.
const tookOver = 30 * time.Second

// unhurried are lifetimes of which none ends during a spec.
var unhurried = lifetimes{CA: 24 * time.Hour, Leaf: time.Hour, Retain: time.Hour}

// mark is a step that leaves a value under its ID.
func mark(id, value string, settings eirinix.Settings) eirinix.Mutation[*corev1.ConfigMap] {
	// Four of them share a call with a step that every replica has, which gives it 26 s of the 30 that there are.
	settings.Timeout = 4 * time.Second
	if settings.Isolated {
		settings.Timeout = 30 * time.Second
	}
	return eirinix.Mutation[*corev1.ConfigMap]{ID: id, Settings: settings, Apply: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
		if c.Data == nil {
			c.Data = map[string]string{}
		}
		c.Data[id] = value
		return nil
	}}
}

// version is one version of a program: its steps beside those that every replica has, and their marks in an object of the
// load.
type version struct {
	steps  []any
	leaves map[string]string
}

// The next version has an entry and a step of an entry more than the older one, lacks an entry and a step of another, has
// renamed two steps, and changes two: each selects other objects, and does something else.
var older, newer = func() (version, version) {
	alone := eirinix.Settings{Isolated: true}
	selects := func(alone bool, tiers ...string) eirinix.Settings {
		return eirinix.Settings{Isolated: alone, Objects: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: tiers}},
		}}
	}
	all := eirinix.Settings{}
	return version{
		steps: []any{
			mark("stays", "yes", all), mark("stays-alone", "yes", alone),
			mark("removed", "yes", all), mark("removed-alone", "yes", alone),
			mark("old-name", "yes", all), mark("old-name-alone", "yes", alone),
			mark("changed", "1", selects(false, "one")), mark("changed-alone", "1", selects(true, "one")),
		},
		leaves: map[string]string{
			"mutated": "yes", "stays": "yes", "stays-alone": "yes", "removed": "yes", "removed-alone": "yes",
			"old-name": "yes", "old-name-alone": "yes", "changed": "1", "changed-alone": "1",
		},
	}, version{
		steps: []any{
			mark("stays", "yes", all), mark("stays-alone", "yes", alone),
			mark("added", "yes", all), mark("added-alone", "yes", alone),
			mark("new-name", "yes", all), mark("new-name-alone", "yes", alone),
			mark("changed", "2", selects(false, "one", "two")), mark("changed-alone", "2", selects(true, "one", "two")),
		},
		leaves: map[string]string{
			"mutated": "yes", "stays": "yes", "stays-alone": "yes", "added": "yes", "added-alone": "yes",
			"new-name": "yes", "new-name-alone": "yes", "changed": "2", "changed-alone": "2",
		},
	}
}()

// alone wants the version's steps, and no others.
func (v version) alone() *wanted { return &wanted{has: v.leaves, exact: true} }

// with wants the steps that both versions have. Where they do something else, either will do.
func (v version) with(w version) *wanted {
	has := map[string]string{}
	for key, value := range v.leaves {
		switch other, both := w.leaves[key]; {
		case both && other == value:
			has[key] = value
		case both:
			has[key] = ""
		}
	}
	return &wanted{has: has}
}

// records are those of the versions in the Lease.
func (d *deployment) records(ctx context.Context) rollout.Versions {
	GinkgoHelper()
	lease, err := clientsOf(0).CoordinationV1().Leases(d.namespace).Get(ctx, d.lease(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return rollout.Versions{}
	}
	Expect(err).NotTo(HaveOccurred())
	return rollout.Read(lease.Annotations)
}

// latest is the version of the deployment's Service that came last.
func (d *deployment) latest(ctx context.Context) string {
	GinkgoHelper()
	all := d.records(ctx)
	for _, version := range slices.Backward(all.InOrder()) {
		if all[version].Target == "Service "+d.namespace+"/"+serviceName {
			return version
		}
	}
	Fail("no version has a record")
	return ""
}

// registered waits until both configurations hold a version.
func (j *journal) registered(ctx context.Context, version string) {
	GinkgoHelper()
	for _, kind := range []string{mutatingKind, validatingKind} {
		Eventually(func() string {
			all := j.versions(kind)
			return all[len(all)-1]
		}).WithContext(ctx).WithTimeout(patience).WithPolling(5*time.Millisecond).Should(Equal(version), kind)
	}
}

// rollOut replaces all replicas one after the other, and waits until their version is registered. It returns the time
// from the stop of the last one until then. The functions in how stop the first replicas.
func (d *deployment) rollOut(ctx context.Context, j *journal, how ...func(*replica)) time.Duration {
	GinkgoHelper()
	var stopping []*replica
	var last time.Time
	for n, r := range slices.Clone(d.replicas) {
		d.start(ctx, r.server)
		last = time.Now()
		if n < len(how) {
			how[n](r)
			continue
		}
		d.dismiss(r)
		stopping = append(stopping, r)
	}
	j.registered(ctx, d.latest(ctx))
	took := time.Since(last)
	d.stopped(ctx, stopping...)
	return took
}

// obeyed waits until every API server acts on the registration that stands.
func (d *deployment) obeyed(ctx context.Context, w *wanted) {
	GinkgoHelper()
	for n := range servers {
		clients := clientsOf(n)
		Eventually(func() error {
			data, err := admitted(ctx, clients, d.objects)
			if err != nil {
				return err
			}
			return w.missedBy(data)
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	}
}

// expectAnswers waits until that many more objects have been admitted.
func (l *load) expectAnswers(ctx context.Context, n int64) {
	GinkgoHelper()
	before := l.total()
	Eventually(func() int64 { return l.total() - before + int64(len(l.failing())) }).WithContext(ctx).WithTimeout(patience).Should(BeNumerically(">=", n))
}

var _ = Describe("Versions with different steps", func() {
	DescribeTable("are rolled out forth and back under load: no call fails, no object skips a step that all have, and each registration is written once",
		func(ctx SpecContext, replicas, rollouts int) {
			if n := rotations(30); n > 30 {
				rollouts *= n / 30
			}
			d := deploy(ctx, 0, unhurried)
			d.more = older.steps
			for n := range replicas {
				d.start(ctx, n%len(servers))
			}
			j := d.keepJournal(ctx, clientsOf(0))
			l := startLoad(ctx, d, few)
			d.obeyed(ctx, older.alone())
			l.wanted.Store(older.alone())

			now, next := older, newer
			var slowest time.Duration
			for n := range rollouts {
				By(fmt.Sprintf("rollout %d", n+1))
				l.wanted.Store(now.with(next))
				d.more = next.steps
				slowest = max(slowest, d.rollOut(ctx, j))
				d.obeyed(ctx, next.alone())
				l.wanted.Store(next.alone())
				l.expectAnswers(ctx, 20)
				Expect(l.failing()).To(BeEmpty(), "after %d rollouts", n+1)
				now, next = next, now
			}
			for _, kind := range []string{mutatingKind, validatingKind} {
				versions := j.versions(kind)
				Expect(versions).To(HaveLen(1+rollouts), "no version gives way to another and comes back: %v", versions)
				for n := range versions[:len(versions)-1] {
					Expect(versions[n]).NotTo(Equal(versions[n+1]))
				}
				Expect(j.written(kind)).To(Equal(rollouts), "writes of the %s", kind)
			}
			d.expectNoFailure(l, fmt.Sprintf("%d rollouts of %d replicas, registered %s after the last old replica was told to stop, the Lease written %d times",
				rollouts, replicas, slowest.Round(10*time.Millisecond), j.written(leaseKind)))
		},
		Entry("3 replicas", 3, 4, SpecTimeout(time.Hour)),
		Entry("10 replicas", 10, 2, SpecTimeout(time.Hour)),
		Entry("20 replicas", 20, 2, SpecTimeout(time.Hour)),
	)

	It("may live beside each other: the registration of the first stands, however often they ask for each other", func(ctx SpecContext) {
		d := deploy(ctx, 0, unhurried)
		d.more = older.steps
		for n := range 10 {
			d.start(ctx, n%len(servers))
		}
		first := d.latest(ctx)
		l := startLoad(ctx, d, few)
		j := d.keepJournal(ctx, clientsOf(0))
		l.wanted.Store(older.with(newer))
		d.more = newer.steps
		for n := range 5 {
			d.start(ctx, n%len(servers))
			d.retire(ctx, d.replicas[0])
		}
		before := maps.Clone(d.records(ctx))
		Expect(before).To(HaveLen(2))
		const questions = 2
		Eventually(func(g Gomega) {
			for version, r := range d.records(ctx) {
				g.Expect(r.Answered).To(BeNumerically(">=", before[version].Answered+questions), version)
			}
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		Expect(j.registrations()).To(BeZero(), "writes of the configurations")
		Expect(j.versions(mutatingKind)).To(Equal([]string{first}))

		By("going back")
		d.more = older.steps
		for range 5 {
			d.start(ctx, 0)
			r := d.replicas[5]
			d.retire(ctx, r)
		}
		d.obeyed(ctx, older.alone())
		l.wanted.Store(older.alone())
		l.expectAnswers(ctx, 20)
		Expect(j.registrations()).To(BeZero())
		d.expectNoFailure(l, fmt.Sprintf("half a rollout of 10 replicas, %d questions each, and back", questions))
	}, SpecTimeout(5*patience))
})

var _ = Describe("Versions whose replicas die", func() {
	It("change nothing that is registered while they crash, and are given up", func(ctx SpecContext) {
		d := deploy(ctx, 0, unhurried)
		d.more = older.steps
		for n := range 3 {
			d.start(ctx, n%len(servers))
		}
		first := d.latest(ctx)
		j := d.keepJournal(ctx, clientsOf(0))
		l := startLoad(ctx, d, few)
		d.obeyed(ctx, older.alone())
		l.wanted.Store(older.with(newer))

		By("registering its record and dying")
		d.more = newer.steps
		c := loseAt(func(m moment) bool { return m.object == "leases" && m.past })
		c.only = d.nextName()
		d.crash.Store(c)
		dead := d.launch(ctx, 1)
		Eventually(c.victim).WithContext(ctx).WithTimeout(patience).Should(Receive())
		d.crash.Store(nil)
		dead.Stop()
		crashing := d.latest(ctx)
		Expect(crashing).NotTo(Equal(first))

		By("crashing again and again")
		const crashes = 5
		for n := range crashes {
			d.kill(ctx, d.start(ctx, n%len(servers)))
		}
		last := time.Now()
		Eventually(func() bool { return d.records(ctx)[crashing].Removed }).WithContext(ctx).WithTimeout(tookOver).Should(BeTrue())
		gone := time.Since(last)
		Expect(d.records(ctx).First(first)).To(Equal(first))
		d.obeyed(ctx, older.alone())
		l.wanted.Store(older.alone())
		l.expectAnswers(ctx, 20)
		Expect(j.registrations()).To(BeZero(), "writes of the configurations")
		d.expectNoFailure(l, fmt.Sprintf("%d crashes of the next version, which was given up %s after the last", crashes+1, gone.Round(100*time.Millisecond)))
	}, SpecTimeout(5*patience))

	It("give way to the next version, which answers their calls until then", func(ctx SpecContext) {
		d := deploy(ctx, 0, unhurried)
		d.more = older.steps
		for n := range 3 {
			d.start(ctx, n%len(servers))
		}
		old := slices.Clone(d.replicas)
		j := d.keepJournal(ctx, clientsOf(0))
		l := startLoad(ctx, d, few)
		l.wanted.Store(older.with(newer))
		d.more = newer.steps
		for n := range 3 {
			d.start(ctx, n%len(servers))
		}
		next := d.latest(ctx)
		// A question that was answered just before is the worst case.
		Eventually(func() bool {
			for _, r := range d.records(ctx) {
				if r.Answered == 0 {
					return false
				}
			}
			return true
		}).WithContext(ctx).WithTimeout(patience).WithPolling(20 * time.Millisecond).Should(BeTrue())
		died := time.Now()
		d.kill(ctx, old...)
		Eventually(func() string {
			all := j.versions(mutatingKind)
			return all[len(all)-1]
		}).WithContext(ctx).WithTimeout(tookOver).WithPolling(5 * time.Millisecond).Should(Equal(next))
		took := time.Since(died)
		j.registered(ctx, next)
		d.obeyed(ctx, newer.alone())
		l.wanted.Store(newer.alone())
		l.expectAnswers(ctx, 20)
		Expect(j.versions(mutatingKind)).To(HaveLen(2))
		Expect(j.written(mutatingKind)).To(Equal(1))
		Expect(j.written(validatingKind)).To(Equal(1))
		d.expectNoFailure(l, fmt.Sprintf("all replicas of the first version killed, the next one registered %s later", took.Round(100*time.Millisecond)))
	}, SpecTimeout(5*patience))
})

var _ = Describe("A program of one replica", func() {
	It("is started anew with other steps, and registered within seconds", func(ctx SpecContext) {
		d := deploy(ctx, 0, unhurried)
		d.more = older.steps
		d.start(ctx, 0)
		j := d.keepJournal(ctx, clientsOf(0))
		const restarts = 4
		var slowest time.Duration
		next, after := newer, older
		for range restarts {
			d.retire(ctx, d.replicas[0])
			d.more = next.steps
			began := time.Now()
			d.start(ctx, 0)
			j.registered(ctx, d.latest(ctx))
			slowest = max(slowest, time.Since(began))
			d.obeyed(ctx, next.alone())
			next, after = after, next
		}
		Expect(j.versions(mutatingKind)).To(HaveLen(1 + restarts))
		Expect(j.written(mutatingKind)).To(Equal(restarts))
		AddReportEntry(fmt.Sprintf("%d restarts with other steps, registered %s after the start at most", restarts, slowest.Round(10*time.Millisecond)), ReportEntryVisibilityAlways)
		Expect(slowest).To(BeNumerically("<", 6*time.Second))
	}, SpecTimeout(5*patience))
})

// deployTwo starts two replicas of a program, and returns a function that runs another one, with another Service, until it
// ends.
func deployTwo(ctx context.Context) (*deployment, func(name string, v version) error) {
	GinkgoHelper()
	d := deploy(ctx, 0, unhurried)
	d.more = older.steps
	for n := range 2 {
		d.start(ctx, n%len(servers))
	}
	return d, func(name string, v version) error {
		m := d.manager(1, name, func(o *eirinix.ManagerOptions) { o.ServiceName = "other" })
		for _, step := range append(d.steps(), v.steps...) {
			if err := m.AddExtension(step); err != nil {
				return err
			}
		}
		return m.Run(ctx)
	}
}

// refused matches the error of the other program.
func (d *deployment) refused() types.GomegaMatcher {
	return MatchError(And(
		ContainSubstring("Service "+d.namespace+"/"+serviceName), ContainSubstring("Service "+d.namespace+"/other"), ContainSubstring("OperatorFingerprint"),
	))
}

var _ = Describe("Two programs of one fingerprint", func() {
	It("are distinguished by their Services: the later one ends with an error, and nothing of the first one's registration changes", func(ctx SpecContext) {
		d, run := deployTwo(ctx)
		j := d.keepJournal(ctx, clientsOf(0))
		l := startLoad(ctx, d, few)
		d.obeyed(ctx, older.alone())
		l.wanted.Store(older.alone())
		var slowest time.Duration
		for _, v := range []version{newer, older} {
			began := time.Now()
			Expect(run("other", v)).To(d.refused())
			slowest = max(slowest, time.Since(began))
		}
		l.expectAnswers(ctx, 20)
		Expect(l.failing()).To(BeEmpty())
		Expect(j.registrations()).To(BeZero(), "writes of the configurations")

		d.expectNoFailure(l, fmt.Sprintf("a second program under one fingerprint ends %s after its start at most", slowest.Round(100*time.Millisecond)))
	}, SpecTimeout(5*patience))

	It("are distinguished also while the first one is rolled out, and the later one is started again and again", func(ctx SpecContext) {
		d, run := deployTwo(ctx)
		j := d.keepJournal(ctx, clientsOf(0))
		l := startLoad(ctx, d, few)
		d.obeyed(ctx, older.alone())
		var trying sync.WaitGroup
		ended := make(chan struct{})
		end := sync.OnceFunc(func() { close(ended); trying.Wait() })
		DeferCleanup(end)
		var tries atomic.Int64
		trying.Go(func() {
			defer GinkgoRecover()
			for {
				select {
				case <-ended:
					return
				default:
				}
				n := tries.Add(1)
				Expect(run(fmt.Sprintf("other-%d", n), older)).To(d.refused())
			}
		})
		const rollouts = 2
		now, next := older, newer
		for range rollouts {
			before := tries.Load()
			Eventually(tries.Load).WithContext(ctx).WithTimeout(patience).Should(BeNumerically(">", before))
			l.wanted.Store(now.with(next))
			d.more = next.steps
			d.rollOut(ctx, j)
			d.obeyed(ctx, next.alone())
			l.wanted.Store(next.alone())
			l.expectAnswers(ctx, 20)
			now, next = next, now
		}
		end()
		Expect(j.versions(mutatingKind)).To(HaveLen(1 + rollouts))
		d.expectNoFailure(l, fmt.Sprintf("a second program under one fingerprint ends %d times during %d rollouts of the first", tries.Load(), rollouts))
	}, SpecTimeout(5*patience))
})

var _ = Describe("A split deployment", func() {
	It("rolls its serving halves out first, and an order replaces the entries at once", func(ctx SpecContext) {
		d := deploy(ctx, 0, unhurried)
		register := func() {
			GinkgoHelper()
			m := d.manager(0, "registering")
			for _, step := range append(d.steps(), d.more...) {
				Expect(m.AddExtension(step)).To(Succeed())
			}
			Expect(m.RegisterExtensions()).To(Succeed())
		}
		d.more = older.steps
		register()
		d.change = func(o *eirinix.ManagerOptions) { o.RegisterWebHook = new(false) }
		for n := range 3 {
			d.start(ctx, n%len(servers))
		}
		j := d.keepJournal(ctx, clientsOf(0))
		l := startLoad(ctx, d, few)
		now, next := older, newer
		const rollouts = 2
		for n := range rollouts {
			d.obeyed(ctx, now.alone())
			l.wanted.Store(now.with(next))
			d.more = next.steps
			var stopping []*replica
			for _, r := range slices.Clone(d.replicas) {
				d.start(ctx, r.server)
				d.dismiss(r)
				stopping = append(stopping, r)
			}
			d.stopped(ctx, stopping...)
			l.expectAnswers(ctx, 20)
			Expect(j.versions(mutatingKind)).To(HaveLen(1 + n))
			d.change = nil
			register()
			d.change = func(o *eirinix.ManagerOptions) { o.RegisterWebHook = new(false) }
			c, err := clientsOf(0).AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, d.mutating(), metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(c.Annotations).To(HaveKeyWithValue(webhookconf.VersionAnnotation, d.latest(ctx)), "at once")
			d.obeyed(ctx, next.alone())
			l.wanted.Store(next.alone())
			l.expectAnswers(ctx, 20)
			now, next = next, now
		}
		Expect(j.written(mutatingKind)).To(Equal(rollouts))
		d.expectNoFailure(l, fmt.Sprintf("%d rollouts of 3 serving halves, each followed by RegisterExtensions", rollouts))
	}, SpecTimeout(5*patience))
})
