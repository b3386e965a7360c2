package eirinix_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// mode is one way to deploy a program, with its actions that need a right.
type mode struct {
	change      func(*play)
	registering bool // the half whose rights these are
	live        func(context.Context, *play, *rest.Config) error
	tolerated   string           // a line of the log that is expected in this mode
	uses        []right          // all that it has
	shown       []right          // of those, the ones whose need another mode shows
	idle        []right          // of those, the ones that this life does not use, though another needs them
	missed      map[right]string // where it is not the common one
}

var (
	configMutating   = "mutatingwebhookconfigurations"
	configValidating = "validatingwebhookconfigurations"
	requests         = "certificatesigningrequests"

	// missed is how the lack of a right shows.
	missed = map[right]string{
		{"create", "secrets"}: "needs get, create, update on secrets",
		{"get", "secrets"}:    "needs get, create, update on secrets",
		{"update", "secrets"}: "needs get, create, update on secrets",
		{"list", "secrets"}:   "list secrets", // read again and again instead, and so with the others
		{"watch", "secrets"}:  "watch secrets",
		{"create", "leases"}:  "needs get, list, watch, create and update on leases.coordination.k8s.io",
		{"get", "leases"}:     "could not record in the Lease that this replica stops",
		{"update", "leases"}:  "could not record in the Lease that this replica stops",
		{"list", "leases"}:    "list leases.coordination.k8s.io",
		{"watch", "leases"}:   "watch leases.coordination.k8s.io",
		{"create", "events"}:  "create events.events.k8s.io",
		{"patch", "events"}:   "patch events.events.k8s.io",

		{"create", configMutating}:   "needs get, create and update on " + configMutating,
		{"get", configMutating}:      "needs get on " + configMutating,
		{"update", configMutating}:   "needs get, create and update on " + configMutating,
		{"list", configMutating}:     "list " + configMutating,
		{"watch", configMutating}:    "watch " + configMutating,
		{"delete", configMutating}:   "needs get and delete on " + configMutating,
		{"create", configValidating}: "needs get, create and update on " + configValidating,
		{"get", configValidating}:    "needs get on " + configValidating,
		{"update", configValidating}: "needs get, create and update on " + configValidating,
		{"list", configValidating}:   "list " + configValidating,
		{"watch", configValidating}:  "watch " + configValidating,
		{"delete", configValidating}: "needs get and delete on " + configValidating,

		{"get", "configmaps"}:    "get configmaps",
		{"list", "configmaps"}:   "list configmaps",
		{"watch", "configmaps"}:  "watch configmaps",
		{"create", "configmaps"}: "create configmaps in namespace",
		{"get", "namespaces"}:    "will outlive the namespace",

		{"create", "tokenreviews"}:         "Authentication failed",
		{"create", "subjectaccessreviews"}: "Authorization for user",
		{"get", "/metrics"}:                "Authorization denied for user",

		{"list", "pods"}:  "needs list and watch on pods",
		{"watch", "pods"}: "needs list and watch on pods",
	}
)

// uses are rights by resource.
func uses(resource string, verbs ...string) (all []right) {
	for _, v := range verbs {
		all = append(all, right{v, resource})
	}
	return all
}

func both(lists ...[]right) (all []right) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// runsAndRotates is the life of a Deployment's pod: it registers, serves, rotates the CA and stops.
func runsAndRotates(ctx context.Context, p *play, config *rest.Config) error {
	m := p.manager(config)
	err := p.running(ctx, m, func(ctx context.Context) error {
		if err := p.called(ctx); err != nil {
			return err
		}
		return m.RotateCA(ctx, eirinix.RotateOptions{})
	})
	if p.options.UnregisterOnStop && err == nil && p.registered(ctx) {
		err = errors.New("a configuration is left")
	}
	return err
}

// runs is the life of a pod that makes nothing in the cluster.
func runs(ctx context.Context, p *play, config *rest.Config) error {
	return p.running(ctx, p.manager(config), p.called)
}

// registers is the life of a Job, and of the next one, which goes on with a rotation.
func registers(ctx context.Context, p *play, config *rest.Config) error {
	if err := p.manager(config).RegisterExtensions(); err != nil {
		return err
	}
	_, err := clients().CoreV1().Secrets(p.own).Patch(ctx, p.pods+"-setupcertificate", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"eirinix.cloudfoundry.org/rotate-ca":"now"}}}`), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	return p.manager(config).RegisterExtensions()
}

// adopts is the life of a pod that others make the Secret for, and that is deployed again with another port. The
// rotation on request needs them too.
func adopts(ctx context.Context, p *play, config *rest.Config) error {
	admin := p.manager(controlPlane().Config(), func(o *eirinix.ManagerOptions) { o.SetupCertificate = new(true) })
	if err := errors.Join(admin.RegisterExtensions(), admin.Unregister(ctx)); err != nil {
		return err
	}
	secrets := clients().CoreV1().Secrets(p.own)
	s, err := secrets.Get(ctx, p.pods+"-setupcertificate", metav1.GetOptions{})
	if err != nil {
		return err
	}
	delete(s.Data, "state.json") // as if another tool had made it
	s.Annotations = map[string]string{"eirinix.cloudfoundry.org/rotate-ca": "now"}
	if _, err := secrets.Update(ctx, s, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := runs(ctx, p, config); err != nil {
		return err
	}
	p.options.Port = FreePort()
	return runs(ctx, p, config)
}

var _ = Describe("The rights in a program's manifests", Label("api-server"), func() {
	around := both(uses("configmaps", "create"), uses("namespaces", "get"))
	versions := uses("leases", "create", "get", "list", "watch", "update")
	follow := func(resource string) []right { return uses(resource, "get", "list", "watch") }
	events := uses("events", "create", "patch")
	whole := both(uses("secrets", "create", "get", "list", "watch", "update"), versions, events, around)
	mutating, validating := uses(configMutating, "create", "get", "list", "watch", "update"), uses(configValidating, "create", "get", "list", "watch", "update")
	// seldom is used where an API server cannot send a watch the present objects, for an Event that goes on, and while a program
	// runs on.
	seldom := both(uses("secrets", "list"), uses("leases", "list"), uses(configMutating, "list"), uses(configValidating, "list"), uses("configmaps", "list"), uses("events", "patch"))
	// gets are for an API server that refuses a watch.
	gets := both(uses("secrets", "get"), uses("leases", "get"), uses("configmaps", "get"))
	missedGets := map[right]string{{"get", "secrets"}: "get secrets", {"get", "leases"}: "get leases"}
	podsValidated := eirinix.Validation[*corev1.Pod]{ID: "checks", Create: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil }}
	pods := uses("pods", "list", "watch")

	DescribeTable("are enough, and none is too many,",
		func(ctx SpecContext, m mode) {
			perform := func(without right) (used, refused []right, err error) {
				p, err := newPlay(ctx, m.change)
				if err != nil {
					return nil, nil, err
				}
				defer p.clear(context.WithoutCancel(ctx))
				p.without = without
				config, err := p.connect(ctx, m.registering)
				if err != nil {
					return nil, nil, err
				}
				err = m.live(ctx, p, config)
				return p.used.rights(), p.used.refusals(), errors.Join(err, p.complaints(m.tolerated))
			}
			used, refused, err := perform(right{})
			Expect(err).NotTo(HaveOccurred())
			Expect(both(used, seldom, m.idle)).To(ContainElements(m.uses))

			p, err := newPlay(ctx, m.change)
			Expect(err).NotTo(HaveOccurred())
			if p.options.Certificates != nil { // these rights are shown by use, and not by a review
				Expect(refused).NotTo(ContainElement(HaveField("Resource", BeElementOf("secrets", requests))))
			}
			objects, err := p.manifests()
			Expect(err).NotTo(HaveOccurred())
			var granted []right
			for _, o := range ofHalf(objects, m.registering) {
				for _, r := range rulesOf(o) {
					granted = append(granted, uses(resourceOf(r), r.Verbs...)...)
				}
			}
			Expect(granted).To(ConsistOf(m.uses))
			granted = slices.DeleteFunc(granted, func(r right) bool { return slices.Contains(m.shown, r) })

			var mu sync.Mutex
			outcomes := map[right]error{}
			atOnce(granted, func(r right) {
				_, _, err := perform(r)
				mu.Lock()
				defer mu.Unlock()
				outcomes[r] = err
			})
			for r, outcome := range maps.All(outcomes) {
				symptom := missed[r]
				if own, ok := m.missed[r]; ok {
					symptom = own
				}
				Expect(symptom).NotTo(BeEmpty(), "%s", r)
				Expect(outcome).To(MatchError(ContainSubstring(symptom)), "without %s", r)
			}
		},
		Entry("called through a Service, with steps of both kinds and UnregisterOnStop", mode{
			change: func(p *play) {
				p.options.ServiceName, p.options.UnregisterOnStop = "hooks", true
				p.added = []any{addEnv{}, podsValidated}
			},
			live: throughService(runsAndRotates),
			uses: both(whole, mutating, validating, uses(configMutating, "delete"), uses(configValidating, "delete")),
		}, SpecTimeout(10*patience)),
		Entry("called through a Service, with a watcher", mode{
			change: func(p *play) { p.options.ServiceName, p.added = "hooks", []any{addEnv{}, p.heard} },
			live:   throughService(runsAndRotates),
			uses:   both(whole, mutating, pods), shown: both(whole, mutating),
		}, SpecTimeout(10*patience)),
		Entry("called by URL, with mutations only", mode{
			change: func(p *play) { p.added = []any{addEnv{}} },
			live:   runsAndRotates, uses: both(whole, mutating),
		}, SpecTimeout(10*patience)),
		Entry("called by URL, with validations only", mode{
			change: func(p *play) { p.added = []any{podsValidated} },
			live:   runsAndRotates, uses: both(whole, validating),
		}, SpecTimeout(10*patience)),
		Entry("with a step that looks at other objects", mode{
			change: func(p *play) {
				looks := podsValidated
				looks.Settings.Reads = []eirinix.Read{
					{Object: &corev1.Service{}, Namespaces: []string{p.pods}, Fields: fields.OneTermEqualSelector("metadata.name", "gate")},
					{Object: &corev1.LimitRange{}},
				}
				p.added = []any{looks}
			},
			live: runsAndRotates,
			uses: both(whole, validating, follow("services"), follow("limitranges")), shown: both(whole, validating),
			idle: both(uses("services", "get", "list"), uses("limitranges", "get", "list")), // for API servers that cannot stream, and for completeness
			missed: map[right]string{
				{"get", "services"}: "get services", {"list", "services"}: "list services", {"watch", "services"}: "watch services",
				{"get", "limitranges"}: "get limitranges", {"list", "limitranges"}: "list limitranges", {"watch", "limitranges"}: "watch limitranges",
			},
		}, SpecTimeout(10*patience)),
		Entry("with a Secret that another program makes", mode{
			change: func(p *play) { p.options.SetupCertificate, p.added = new(false), []any{addEnv{}} },
			live:   adopts, tolerated: "this replica has no right",
			uses: both(uses("secrets", "get", "list", "watch", "update"), versions, events, around, mutating), shown: both(versions, around, uses("secrets", "update")),
			// The Lease is there, RotateCA writes the Secret, and the program stops soon.
			idle: both(uses("leases", "create"), uses("secrets", "update"), uses("configmaps", "create"), events),
		}, SpecTimeout(10*patience)),
		Entry("of the Job and the CronJob that register", mode{
			change: func(p *play) {
				p.options.RegisterWebHook, p.options.UnregisterOnStop = new(false), true
				p.added = []any{addEnv{}, podsValidated, p.heard}
			},
			live: registers, registering: true,
			idle: uses("leases", "update"), shown: uses("leases", "update"), // while another version lives
			missed: map[right]string{{"create", "leases"}: "versions of this program cannot see each other", {"get", "leases"}: "versions of this program cannot see each other"},
			uses:   both(uses("secrets", "create", "get", "update"), uses("leases", "create", "get", "update"), events, uses("namespaces", "get"), uses(configMutating, "create", "get", "update"), uses(configValidating, "create", "get", "update")),
		}, SpecTimeout(10*patience)),
		Entry("of the Deployment that serves the registration of others", mode{
			change: func(p *play) {
				p.options.RegisterWebHook, p.options.UnregisterOnStop = new(false), true
				p.added = []any{addEnv{}}
			},
			live: func(ctx context.Context, p *play, config *rest.Config) error {
				if err := p.manager(controlPlane().Config()).RegisterExtensions(); err != nil {
					return err
				}
				return runs(ctx, p, config)
			},
			uses: both(follow("secrets"), follow("leases")), idle: gets, missed: missedGets,
		}, SpecTimeout(10*patience)),
		Entry("of the same with client CAs in a ConfigMap", mode{
			change: func(p *play) {
				p.options.RegisterWebHook, p.added = new(false), []any{addEnv{}}
				p.options.ClientCA.ConfigMap = p.pods + "/callers"
			},
			live: func(ctx context.Context, p *play, config *rest.Config) error {
				_, err := clients().CoreV1().ConfigMaps(p.pods).Create(ctx, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: "callers"}, Data: map[string]string{"ca.crt": string(config.CAData)},
				}, metav1.CreateOptions{})
				if err := errors.Join(err, p.manager(controlPlane().Config()).RegisterExtensions()); err != nil {
					return err
				}
				// The API server of the specs has no certificate to show, so that nothing is called.
				return p.running(ctx, p.manager(config), func(context.Context) error { return nil })
			},
			idle: gets, missed: missedGets,
			uses:  both(follow("secrets"), follow("leases"), follow("configmaps")),
			shown: both(follow("secrets"), follow("leases")),
		}, SpecTimeout(10*patience)),
		Entry("with certificates from a Secret that an issuer keeps", mode{
			change: func(p *play) {
				p.options.Certificates, p.added = eirinix.FromSecret("", "webhook-cert"), []any{addEnv{}}
			},
			live: issued(runs),
			uses: both(uses("secrets", "list", "watch"), versions, events, around, mutating), shown: both(versions, events, around, mutating), idle: both(events, mutating, around),
			missed: map[right]string{{"watch", "secrets"}: "may not be watched"},
		}, SpecTimeout(10*patience)),
		Entry("of the Job that registers the CA of such a Secret", mode{
			change: func(p *play) {
				p.options.RegisterWebHook, p.added = new(false), []any{addEnv{}}
				p.options.Certificates = eirinix.FromSecret("", "webhook-cert")
			},
			live: issued(func(_ context.Context, p *play, config *rest.Config) error {
				return p.manager(config).RegisterExtensions()
			}), registering: true,
			uses:   both(uses("secrets", "get"), uses("leases", "create", "get", "update"), events, uses("namespaces", "get"), uses(configMutating, "create", "get", "update")),
			shown:  both(uses("leases", "create", "get", "update"), events, uses("namespaces", "get"), uses(configMutating, "create", "get", "update")),
			idle:   both(uses("leases", "update"), events, uses(configMutating, "update")),
			missed: map[right]string{{"get", "secrets"}: "grant get, list and watch on secrets"},
		}, SpecTimeout(10*patience)),
		Entry("with certificates from a signer", mode{
			change: func(p *play) {
				p.options.Certificates = eirinix.FromCSR("example.org/"+p.pods, eirinix.SignerOptions{TrustPEM: p.signer().CertificatePEM})
				p.added = []any{addEnv{}}
			},
			live: signed(runs),
			uses: both(uses(requests, "create", "list", "watch"), versions, events, around, mutating), shown: both(versions, events, around, mutating), idle: both(events, mutating, around, uses(requests, "list")),
			missed: map[right]string{
				{"create", requests}: "grant create, get, list and watch on certificatesigningrequests",
				{"list", requests}:   "list " + requests, {"watch", requests}: "may not be watched",
			},
		}, SpecTimeout(10*patience)),
		Entry("of a program whose metrics others reach", mode{
			change: func(p *play) { p.options.MetricsBindAddress, p.added = fmt.Sprintf(":%d", FreePort()), []any{p.heard} },
			live:   scraped,
			uses:   both(uses("tokenreviews", "create"), uses("subjectaccessreviews", "create"), uses("/metrics", "get"), pods), shown: pods,
			idle: uses("/metrics", "get"), // by the program: it is for those who read them
		}, SpecTimeout(10*patience)),
		Entry("of a program that only watches, in all namespaces", mode{
			change: func(p *play) { p.options.Namespace, p.added = "", []any{p.heard} },
			live:   runs, uses: pods,
		}, SpecTimeout(10*patience)),
		Entry("of a program that only watches, in one namespace", mode{
			change: func(p *play) { p.added = []any{p.heard} },
			live:   runs, uses: pods,
		}, SpecTimeout(10*patience)),
	)

	It("are all that the program asks for while it runs on", func(ctx SpecContext) {
		p, err := newPlay(ctx, func(p *play) { p.added = []any{addEnv{}} })
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(p.clear)
		config, err := p.connect(ctx, false)
		Expect(err).NotTo(HaveOccurred())
		m := p.manager(config)
		runManager(ctx, m)
		Eventually(p.logs.FilterMessageSnippet).WithArguments("the API server calls this program").WithTimeout(patience).ShouldNot(HaveField("Len()", 0))
		before := p.used.refusals()
		for range 3 { // each takes some passes over all objects
			c := configuration(ctx, m)
			c.Webhooks[0].ClientConfig.CABundle = nil
			_, err := clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{})
			Expect(err).NotTo(HaveOccurred())
			Eventually(func() []byte { return configuration(ctx, m).Webhooks[0].ClientConfig.CABundle }).WithTimeout(patience).ShouldNot(BeEmpty())
		}
		Expect(p.used.refusals()).To(Equal(before))
	}, SpecTimeout(3*patience))

	It("are those that the README lists", func(ctx SpecContext) {
		p, err := newPlay(ctx, func(p *play) { p.added = []any{addEnv{}} })
		Expect(err).NotTo(HaveOccurred())
		objects, err := p.manifests()
		Expect(err).NotTo(HaveOccurred())
		role, clusterRole := documentedRules(p.pods, p.own)
		var rules []any
		for _, o := range objects {
			if r := rulesIn(o); r != nil {
				rules = append(rules, *r)
			}
		}
		Expect(rules).To(HaveExactElements(role, clusterRole))
	}, SpecTimeout(patience))
})

// issued puts a certificate where cert-manager would.
func issued(live func(context.Context, *play, *rest.Config) error) func(context.Context, *play, *rest.Config) error {
	return func(ctx context.Context, p *play, config *rest.Config) error {
		_, err := clients().CoreV1().Secrets(p.own).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "webhook-cert"}, Type: corev1.SecretTypeTLS, Data: p.signer().issue(),
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		return live(ctx, p, config)
	}
}

// signed plays approver and signer. Where the request may not be watched, it signs once the program has noticed that: a
// request that is signed before its watch begins needs none.
func signed(live func(context.Context, *play, *rest.Config) error) func(context.Context, *play, *rest.Config) error {
	return func(ctx context.Context, p *play, config *rest.Config) error {
		signing, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(done)
			for signing.Err() == nil {
				if p.hasFallenBack() {
					p.signer().signAll(signing, "example.org/"+p.pods)
				}
				time.Sleep(50 * time.Millisecond)
			}
		}()
		defer func() { stop(); <-done }()
		return live(ctx, p, config)
	}
}

// throughService has the API server call loopback through a Service.
func throughService(live func(context.Context, *play, *rest.Config) error) func(context.Context, *play, *rest.Config) error {
	return func(ctx context.Context, p *play, config *rest.Config) error {
		_, err := clients().CoreV1().Services(p.own).Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: p.options.ServiceName},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		return live(ctx, p, config)
	}
}
