package controller_test

// This file is about single rules of the loop: who registers, which CAs stay, when a write is put off, and what is logged. Their
// world has one process, which is not held up.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	"code.cloudfoundry.org/eirinix/internal/certsource"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/controller"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/serving"
	"code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/wait"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

func once(c *controller.Config) {
	c.Once, c.Serving = true, false
	direct(c)
}

func direct(c *controller.Config) {
	cache := c.Cache.(copies)
	cache.direct = true
	c.Cache = cache
	c.Certificates.(*controller.OwnCA).Store.Cached = nil
}

func fixed(c *controller.Config) { c.Certificates = authority }

func foreign() []byte { return must(ca.New("another program", 100*time.Hour, dawn)).CertificatePEM }

var _ = Describe("RegisterExtensions, which knows nothing of the past", func() {
	register := func(s *solo) {
		GinkgoHelper()
		Expect(controller.New(s.config(once)).Register(context.Background())).To(Succeed())
	}

	It("takes away a CA that is not needed, late, and writes nothing else", func() {
		s := newSolo()
		register(s)
		ours, old := s.state().Bundle(), foreign()
		Expect(s.caBundles()).To(HaveEach(Equal(ours)))
		for _, o := range []*object{s.mutating, s.validating} {
			s.edit(o, trusts(ours, old))
		}
		By("noting since when it is not needed")
		register(s)
		Expect(s.caBundles()).To(HaveEach(Equal(ca.Bundle(ours, old))))
		By("writing nothing the second time")
		writes := s.writes
		s.pass(59 * time.Minute)
		register(s)
		Expect(s.writes).To(Equal(writes))
		By("taking it away when its time is over")
		s.pass(2 * time.Minute)
		register(s)
		Expect(s.caBundles()).To(HaveEach(Equal(ours)))
		writes = s.writes
		register(s)
		Expect(s.writes).To(Equal(writes))
	})
})

var _ = It("A configuration that an earlier version has emptied keeps none unready, and is written no more", func() {
	s := newSolo()
	s.replica()
	for _, version := range []string{"two", "three", "three"} {
		ready := errors.New("not yet")
		s.replica(func(c *controller.Config) {
			c.Registration = desired(version, "logger")
			c.Registration.Steps = slices.DeleteFunc(c.Registration.Steps, func(s webhookconf.Step) bool { return !s.Validating })
			c.Ready = func(err error) { ready = err }
		})
		Expect(ready).NotTo(HaveOccurred(), version)
		Expect(webhooks(s.mutating.latest().object)).To(BeEmpty())
		first, _ := registered(s.mutating.latest())
		Expect(first).To(Equal("two"))
		first, _ = registered(s.validating.latest())
		Expect(first).To(Equal(version))
	}
})

var _ = It("A client that may write the Secret and no configuration does not get a CA into a caBundle", func() {
	s := newSolo()
	c := s.replica()
	theirs := must(ca.New(secretName, 100*time.Hour, dawn))
	for _, start := range []func() *controller.Controller{
		func() *controller.Controller { return c },
		func() *controller.Controller { return s.replica() }, // which knows nothing of the past
	} {
		s.edit(s.secret, func(object client.Object) {
			secret, state := object.(*corev1.Secret), s.state()
			state.Generations = []certsecret.Generation{{ID: 90, CertificatePEM: theirs.CertificatePEM, PrivateKeyPEM: theirs.PrivateKeyPEM}}
			state.CurrentID, state.Counter = 90, state.Counter+100
			secret.Data = state.Encode(secret.Data)
		})
		s.works(start(), 3*time.Hour)
		for _, o := range []*object{s.mutating, s.validating} {
			for _, v := range o.past {
				for _, conf := range clientConfigs(v.object) {
					Expect(ca.Contains(conf.bundle(), theirs.CertificatePEM)).To(BeFalse())
				}
			}
		}
		Expect(ca.Contains(s.state().Bundle(), theirs.CertificatePEM)).To(BeFalse(), "it is thrown out of the Secret")
	}
})

var _ = It("A process that only sees to the trust mends a caBundle and leaves alone all entries", func() {
	s := newSolo()
	s.replica()
	ours := s.state().Bundle()
	s.edit(s.mutating, func(object client.Object) {
		trusts()(object)
		webhooks(object)[0]["timeoutSeconds"] = int64(29)
	})
	s.put(s.validating, nil, true)
	s.replica(direct, func(c *controller.Config) {
		c.OnlyTrust, c.Serving, c.Lease, c.Registration = true, false, nil, desired("two", "other")
	})
	m := s.mutating.latest().object
	Expect(clientConfigs(m)[0].bundle()).To(Equal(ours))
	Expect(webhooks(m)[0]).To(HaveKeyWithValue("timeoutSeconds", BeEquivalentTo(29)))
	version, _ := registered(s.mutating.latest())
	Expect(version).To(Equal("one"))
	Expect(s.validating.latest().object).To(BeNil())
})

// refused is a configuration that is not taken; the zero error takes it.
type refused struct {
	webhookconf.Configuration
	err    error
	ended  func() // is called before it is refused
	delete func(context.Context)
}

func (r refused) Put(ctx context.Context, from webhookconf.Found, c webhookconf.Change) (webhookconf.Found, webhookconf.Outcome, error) {
	if r.err != nil {
		r.ended()
		return from, "", r.err
	}
	return r.Configuration.Put(ctx, from, c)
}

func (r refused) Delete(ctx context.Context, _ func(string) bool) (webhookconf.Outcome, error) {
	r.delete(ctx)
	return webhookconf.Deleted, nil
}

var _ = Describe("A registration that is refused halfway", func() {
	refusing := func(s *solo, refusal error, ended func()) func(*controller.Config) {
		return func(c *controller.Config) {
			for i, o := range []*object{s.mutating, s.validating} {
				taken := func(ctx context.Context) { Expect(ctx.Err()).NotTo(HaveOccurred()); s.put(o, nil, false) }
				c.Configurations[i] = refused{c.Configurations[i], map[*object]error{s.validating: refusal}[o], ended, taken}
			}
		}
	}
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "ValidatingWebhookConfiguration"}, "validating", nil)

	start := func(s *solo, refusal error) error {
		ctx, cancel := context.WithCancel(context.Background())
		c := controller.New(s.config(refusing(s, refusal, cancel))) // the process ends meanwhile
		Expect(c.Obtain(ctx)).To(Succeed())
		for {
			next, err := c.Reconcile(ctx)
			if err != nil {
				return err
			}
			s.pass(next)
		}
	}

	It("leaves no half behind, which would refuse all objects", func() {
		s := newSolo()
		Expect(start(s, invalid)).To(MatchError(invalid))
		Expect(s.mutating.past).To(HaveLen(2))
		Expect(s.mutating.latest().object).To(BeNil())
	})

	It("keeps the half where the other one follows soon", func() {
		s := newSolo()
		Expect(start(s, apierrors.NewServiceUnavailable("for a moment"))).To(MatchError(ContainSubstring("for a moment")))
		Expect(s.mutating.latest().object).NotTo(BeNil())
	})

	It("keeps the half that was there before", func() {
		s := newSolo()
		s.replica()
		s.edit(s.mutating, trusts())
		s.edit(s.validating, trusts())
		Expect(start(s, invalid)).To(MatchError(invalid))
		Expect(s.mutating.latest().object).NotTo(BeNil())
	})
})

var _ = It("A version whose configurations are not taken answers in the Lease in time all the same", func() {
	s := newSolo()
	c := controller.New(s.config(func(c *controller.Config) {
		c.Configurations[0] = refused{c.Configurations[0], apierrors.NewForbidden(schema.GroupResource{}, "mutating", nil), func() {}, nil}
		c.Random = func() float64 { return 0 } // which makes pauses long
	}))
	Expect(c.Obtain(context.Background())).To(Succeed())
	failures := 0
	look := func() {
		next, _ := s.process.reconcile(c, &failures)
		s.pass(next)
	}
	for failures < 10 { // so that the next try is half a minute later
		look()
	}
	Expect(c.Lease.Change(context.Background(), func(found rollout.Versions) rollout.Versions {
		asked := found["one"]
		asked.Probed++
		return rollout.Versions{"one": asked}
	})).To(Succeed())
	s.pass(time.Second)
	for began := s.now; recordsIn(s.object(newLease(leaseName)).latest())["one"].Answered == 0; look() {
		Expect(s.now).To(BeTemporally("<", began.Add(5*time.Second)))
	}
})

// unread is a Lease that may be followed and not read.
type unread struct{ dynamic.ResourceInterface }

func (unread) Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error) {
	return nil, apierrors.NewForbidden(rollout.Resource.GroupResource(), leaseName, nil)
}

var _ = It("A replica that may follow the Lease and not get it registers by its copy", func() {
	s := newSolo()
	s.replica(func(c *controller.Config) { c.Lease.Client = unread{c.Lease.Client} })
	version, _ := registered(s.mutating.latest())
	Expect(version).To(Equal("one"))
})

// unwritable are Leases that no write comes through to.
type unwritable struct {
	dynamic.ResourceInterface
	err   error
	tried *int
}

func (u unwritable) Update(context.Context, *unstructured.Unstructured, metav1.UpdateOptions, ...string) (*unstructured.Unstructured, error) {
	*u.tried++
	return nil, u.err
}

var _ = Describe("A version that cannot write the Lease", func() {
	DescribeTable("of which another version has the registration", func(err error, takes bool) {
		s := newSolo()
		s.replica()
		tried := 0
		c := controller.New(s.config(func(c *controller.Config) {
			c.Registration, c.Lease.Client = desired("two", "other"), unwritable{ResourceInterface: c.Lease.Client, err: err, tried: &tried}
		}))
		Expect(c.Obtain(context.Background())).To(Succeed())
		for tried < 10 {
			next, _ := c.Reconcile(context.Background())
			s.pass(min(next, time.Second) + time.Second)
			version, _ := registered(s.mutating.latest())
			if takes && version == "two" {
				return
			}
			Expect(version).To(Equal("one"), "after %d tries", tried)
		}
		Expect(takes).To(BeFalse(), "it has not registered")
	},
		Entry("takes its place when the registration itself refuses the Lease, and leads nowhere",
			apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: connection refused", webhookconf.Options{Fingerprint: fingerprint}.WebhookName("logger"))), true),
		Entry("leaves it when it loses races", apierrors.NewConflict(rollout.Resource.GroupResource(), leaseName, nil), false),
		Entry("leaves it when another webhook refuses the Lease",
			apierrors.NewInternalError(errors.New(`failed calling webhook "policy.example.org": connection refused`)), false),
		Entry("leaves it when the API server does not answer", apierrors.NewServiceUnavailable("for a moment"), false),
	)
})

var _ = DescribeTable("A version that can read the Lease no more waits for the one that stands", func(blindFor, then time.Duration) {
	s, blind := newSolo(), false
	s.replica()
	c := controller.New(s.config(func(c *controller.Config) {
		c.Registration, c.Cache = desired("two", "other"), copies{process: s.process, blind: &blind}
	}))
	Expect(c.Obtain(context.Background())).To(Succeed())
	s.works(c, time.Second)
	for began := s.now; s.now.Before(began.Add(blindFor + then)); s.works(c, 6*time.Second) {
		blind = s.now.Before(began.Add(blindFor))
		version, _ := registered(s.mutating.latest())
		Expect(version).To(Equal("one"), "after %s", s.now.Sub(began))
	}
	s.works(c, 40*time.Second)
	version, _ := registered(s.mutating.latest())
	Expect(version).To(Equal("two"))
},
	Entry("for a quarter of an hour", 15*time.Minute, time.Duration(0)),
	Entry("until others can read it again, too", time.Minute, cluster.LastPause),
)

var _ = Describe("A write that all replicas see to be due", func() {
	It("is put off once for each reason, and not at all by a short process", func() {
		now, random := dawn, 0.5
		c := controller.New(controller.Config{Now: func() time.Time { return now }, Random: func() float64 { return random }})
		pause := c.Hesitate("kind", "reason", time.Second)
		Expect(pause).To(BeNumerically("~", 900*time.Millisecond, 10*time.Millisecond))
		now, random = now.Add(100*time.Millisecond), 0
		Expect(c.Hesitate("kind", "reason", time.Second)).To(Equal(pause - 100*time.Millisecond))
		Expect(c.Hesitate("other", "reason", time.Second)).To(Equal(time.Second))
		Expect(c.Hesitate("kind", "another reason", time.Second)).To(Equal(time.Second))
		now = now.Add(time.Second)
		Expect(c.Hesitate("kind", "another reason", time.Second)).To(BeZero())
		Expect(c.Hesitate("kind", "another reason", time.Second)).To(BeZero(), "after a failure, whose retries come later and later")
		Expect(controller.New(controller.Config{Once: true}).Hesitate("kind", "reason", time.Second)).To(BeZero())
	})
})

var _ = Describe("A configuration that another tool edits again and again", func() {
	It("is repaired at once at first, later less and less often, and at once again after a quiet time", func() {
		s := newSolo()
		c := s.replica(fixed)
		repair := func() time.Duration {
			GinkgoHelper()
			s.edit(s.mutating, func(object client.Object) { webhooks(object)[0]["timeoutSeconds"] = int64(29) })
			began, edited := s.now, len(s.mutating.past)
			for len(s.mutating.past) == edited {
				next := spectest.Must(c.Reconcile(context.Background()))
				if len(s.mutating.past) == edited {
					s.pass(next)
				}
				Expect(s.now.Sub(began)).To(BeNumerically("<", time.Hour))
			}
			defer s.works(c, 2*time.Second) // it sees that it is in order
			return s.now.Sub(began)
		}
		for range 3 {
			Expect(repair()).To(BeNumerically("<", 800*time.Millisecond))
		}
		for range 7 {
			repair()
		}
		eleventh := repair()
		Expect(eleventh).To(BeNumerically(">", 30*time.Second))
		Expect(repair()).To(BeNumerically(">", eleventh))
		for range 5 {
			repair()
		}
		Expect(repair()).To(BeNumerically("~", 10*time.Minute, 3*time.Second))
		Expect(c.Replace(context.Background(), program, false, func(map[string]rollout.Route) error { return nil })).To(Succeed())
		Expect(repair()).To(BeNumerically("<", 800*time.Millisecond), "this program has changed something")
		s.works(c, 17*time.Minute)
		Expect(repair()).To(BeNumerically("<", 800*time.Millisecond))
	})
})

var _ = DescribeTable("An object that is larger than can be stored is explained", func(err error, explained bool) {
	is := webhookconf.ExplainSize(err, ca.Bundle(foreign(), foreign()), 4)
	Expect(is).To(MatchError(err))
	Expect(is.Error()).To(HavePrefix(map[bool]string{
		true:  "a caBundle of 2 CAs (1 KB) in each of up to 4 webhooks is too large to be stored; give the certificate source a ca.crt that holds only",
		false: err.Error(),
	}[explained]))
},
	Entry("by the API server", apierrors.NewRequestEntityTooLargeError("limit is 3145728"), true),
	Entry("by etcd", apierrors.NewInternalError(errors.New("etcdserver: request is too large")), true),
	Entry("by the client of etcd", errors.New("rpc error: trying to send message larger than max (2097200 vs. 2097152)"), true),
	Entry("unless it is another error", apierrors.NewBadRequest("nonsense"), false),
)

var _ = It("A replica that stops registers nothing any more, also where its steps have just changed", func() {
	s := newSolo()
	c := s.replica(fixed)
	Expect(c.Leave(context.Background(), true)).To(Succeed())
	served := false
	Expect(c.Replace(context.Background(), desired("two", "other"), true, func(map[string]rollout.Route) error {
		served = true
		return nil
	})).To(Succeed())
	Expect(served).To(BeFalse())
	c.Stop(context.Background())
	s.put(s.mutating, nil, true)
	s.put(s.validating, nil, true)
	s.pass(time.Second)
	s.works(c, time.Minute)
	Expect(s.mutating.latest().object).To(BeNil())
	Expect(s.validating.latest().object).To(BeNil())
})

var _ = Describe("Another program under the same fingerprint", func() {
	const theirs = "Service eirinix/other"
	records := func(s *solo, r rollout.Record) {
		s.edit(s.object(newLease(leaseName)), func(lease client.Object) {
			found := rollout.Read(lease.GetAnnotations())
			r.Ordinal, r.Target, r.Probed = 2, theirs, 1
			found["two"] = r
			lease.SetAnnotations(found.Write(lease.GetAnnotations()))
		})
	}
	stands := func(object client.Object) {
		annotations := object.GetAnnotations()
		annotations[webhookconf.VersionAnnotation] = "two"
		object.SetAnnotations(annotations)
	}
	meets := func(standing bool) (ready, reconciled error) {
		s := newSolo()
		c := s.replica(fixed, func(c *controller.Config) { c.Ready = func(err error) { ready = err } })
		Expect(ready).NotTo(HaveOccurred())
		records(s, rollout.Record{})
		spectest.Must(c.Reconcile(context.Background()))
		if standing {
			s.edit(s.mutating, stands)
		}
		records(s, rollout.Record{Answered: 1})
		_, reconciled = c.Reconcile(context.Background())
		return ready, reconciled
	}

	It("holds a replica back while its entries stand, although it has gone and another version is first", func() {
		s, ready := newSolo(), errors.New("never ready")
		s.replica(fixed)
		records(s, rollout.Record{Removed: true})
		s.edit(s.mutating, stands)
		third := s.config(fixed)
		third.Registration, third.Ready = desired("three", "logger"), func(err error) { ready = err }
		s.works(controller.New(third), 5*time.Second)
		Expect(ready).To(MatchError(ContainSubstring("whose process has gone")))
	})

	It("ends this one, although it is ready, once that program's registration stands", func() {
		last, err := meets(true)
		other := &controller.AnotherProgramError{}
		Expect(errors.As(err, &other)).To(BeTrue(), "%v", err)
		Expect(other.Theirs).To(Equal(theirs))
		Expect(errors.As(last, &other)).To(BeTrue(), "%v", last)
	})

	It("does not end the one whose registration stands", func() {
		Expect(errors.Join(meets(false))).NotTo(HaveOccurred())
	})
})

var _ = DescribeTable("CAs that leave caBundles", func(all string, times int) { Expect(controller.Repairs(strings.Fields(all)...)).To(Equal(times)) },
	Entry("are no repairs", "a b c d e f", 0), Entry("are repairs where the same comes back", "a a a a b a", 4))

// RotateCA waits between its passes, so this is a plain test in a bubble.
func TestAProcessTakesTheStepsOfTheRotationThatItWasAskedForAndOfNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		RegisterTestingT(t)
		s := newSolo()
		s.replica()
		first := s.state().CurrentID
		c := s.replica(func(c *controller.Config) { c.Certificates.(*controller.OwnCA).SetUp = false })
		Expect(c.Rotate(t.Context(), false)).To(Succeed())
		Expect(s.state().CurrentID).To(Equal(first + 1))
		asked := 0
		s.process.yield = func(d time.Duration) bool { asked++; s.pass(d); return true }
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		Expect(c.Rotate(ctx, false)).To(MatchError(context.DeadlineExceeded), "the first one goes on for days")
		Expect(asked).To(BeNumerically("<", 150), "600 with one a second")
		s.works(c, 2*time.Hour)
		Expect(s.state().Phase).To(Equal(ca.Steady), "the old CA is pruned")
		s.edit(s.secret, func(secret client.Object) {
			secret.SetAnnotations(map[string]string{"eirinix.cloudfoundry.org/rotate-ca": "again"})
		})
		s.works(c, 2*time.Hour)
		Expect(s.state().CurrentID).To(Equal(first + 1))
		Expect(s.state().Phase).To(Equal(ca.Steady))
	})
}

// unreadable are copies, some of which fail to be read: those of names with this end. It counts these reads.
type unreadable struct {
	copies
	end   string
	err   error
	reads int
}

func (u *unreadable) Get(ctx context.Context, into client.Object) error {
	if !strings.HasSuffix(into.GetName(), u.end) {
		return u.copies.Get(ctx, into)
	}
	u.reads++
	return u.err
}

var _ = It("A loop whose passes fail logs the failure at once, and then once a minute", func() {
	s, cache := newSolo(), &unreadable{err: errors.New("no connection")}
	var logged []string
	log := funcr.New(func(_, line string) {
		if strings.Contains(line, "could not reconcile") {
			logged = append(logged, line)
		}
	}, funcr.Options{})
	bubble(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		loop := controller.New(s.config(func(c *controller.Config) {
			c.Cache, c.Log = cache, log
			c.Report = controller.NewReport(ctx, namespace, secretName, prometheus.NewRegistry(), nil, logr.Discard())
		}))
		loop.Run(ctx, must(cluster.NewObjects(&rest.Config{}, logr.Discard())))
		return nil
	})
	Expect(cache.reads).To(BeNumerically(">=", 20), "the passes go on")
	Expect(len(logged)).To(And(BeNumerically(">", 5), BeNumerically("<", 11)))
	Expect(logged).To(HaveEach(ContainSubstring("no connection")))
})

var _ = It("The report of a replica says that it waits while an earlier version lives, and for nothing else", func() {
	s, registry := newSolo(), prometheus.NewRegistry()
	var said []string
	reports := func(c *controller.Config) {
		c.Report = controller.NewReport(context.Background(), namespace, secretName, registry, nil, logr.Discard())
		c.Log = funcr.New(func(_, line string) {
			if !strings.Contains(line, `"msg"="registered"`) {
				said = append(said, line)
			}
		}, funcr.Options{})
	}
	s.replica(fixed, reports)
	Expect(said).To(BeEmpty())
	s.replica(fixed, reports, func(c *controller.Config) { c.Registration = desired("two", "logger") })
	Expect(said).To(HaveExactElements(ContainSubstring("stays registered"), ContainSubstring("is left, so this version registers")))
	Expect(spectest.Shown(registry, "eirinix_registration_waiting")).To(
		And(ContainSubstring(`reason="definition"`), Not(ContainSubstring("} 1"))))
})

// issuer is a source whose certificates the spec delivers.
type issuer struct {
	certsource.Source
	deliver func(certsource.Material)
}

func (i *issuer) Run(_ context.Context, deliver func(certsource.Material), _ func(error)) error {
	i.deliver = deliver
	return nil
}

func (*issuer) String() string { return "the issuer" }

var _ = It("A certificate of another issuer is served once every caBundle trusts it", func() {
	s, from := newSolo(), &issuer{}
	served := certsource.NewServed(from)
	served.Hosts, served.Now = []string{host}, s.process.now
	served.Run(context.Background())
	issue := func() []byte {
		by := must(ca.New("issuer", 100*time.Hour, s.now))
		made := must(by.SignServing([]string{host}, 50*time.Hour, s.now))
		from.deliver(certsource.Material{Certificate: made, Bundle: by.CertificatePEM})
		return by.CertificatePEM
	}
	first := issue()
	c := s.replica(func(c *controller.Config) { c.Certificates = &controller.Issued{Served: served} })
	Expect(s.caBundles()).To(HaveEach(Equal(first)))
	second := issue()
	s.works(c, 5*time.Second)
	Expect(s.caBundles()).To(HaveEach(Equal(ca.Bundle(first, second))))
	Expect(served.Verify(first)).To(Succeed(), "not all API servers may know yet")
	s.works(c, time.Minute)
	Expect(served.Verify(second)).To(Succeed())
	Expect(s.caBundles()).To(HaveEach(Equal(ca.Bundle(first, second))))
	s.works(c, 2*time.Hour)
	Expect(s.caBundles()).To(HaveEach(Equal(second)))
})

var _ = It("Before a CA of another replica leaves the caBundles, all are asked, and it stays for one that needs it", func() {
	s := newSolo()
	c := s.replica(func(c *controller.Config) { c.Ready, c.Resync = func(error) {}, time.Hour })
	ours, both := s.state().Bundle(), ca.Bundle(s.state().Bundle(), foreign())
	after := func(of *controller.Controller, d time.Duration, bundle []byte, notes int) {
		GinkgoHelper()
		s.works(of, d)
		Expect(s.caBundles()).To(HaveEach(Equal(bundle)))
		Expect(strings.Count(s.mutating.latest().object.GetAnnotations()[webhookconf.UnneededAnnotation], "Z")).To(Equal(notes))
	}
	s.edit(s.mutating, trusts(both))
	s.edit(s.validating, trusts(both))
	after(c, 59*time.Minute, both, 0)
	s.put(s.mutating, nil, true)
	s.pass(time.Second)
	after(c, 30*time.Second, both, 0)
	after(c, 90*time.Second, both, 1)
	writes := s.writes
	after(s.replica(), 90*time.Second, both, 1)
	Expect(s.writes).To(Equal(writes))
	after(controller.New(s.config(func(c *controller.Config) { c.Certificates = controller.Fixed(both) })), time.Second, both, 0)
	after(c, 59*time.Minute, both, 0)
	after(c, 2*time.Minute, both, 1)
	after(c, 3*time.Minute, ours, 0)
	s.edit(s.mutating, trusts(foreign())) // in place of ours
	after(c, 5*time.Second, ours, 0)
	s.edit(s.validating, trusts(both))
	s.put(s.mutating, nil, true)
	Expect(controller.New(s.config(func(c *controller.Config) { c.Once = true })).Register(context.Background())).To(Succeed())
	Expect(s.caBundles()).To(HaveEach(Equal(both)))
})

var _ = It("A replica whose CA no caBundle held is ready once the calls that had begun are over", func() {
	s, ready := newSolo(), error(nil)
	s.replica(fixed)
	c := controller.New(s.config(func(c *controller.Config) { c.Ready = func(err error) { ready = err } }))
	Expect(c.Obtain(context.Background())).To(Succeed())
	s.works(c, 10*time.Second)
	Expect(ready).To(MatchError(ContainSubstring("observed a caBundle")))
	s.works(c, 5*time.Second)
	Expect(ready).NotTo(HaveOccurred())
})

var _ = DescribeTable("A new version, of whose entries a configuration holds none of the earlier one", func(loses func(*solo), why string) {
	s := newSolo()
	earlier := s.replica(fixed).State().First
	loses(s)
	starts := func(serves bool) (c *controller.Controller, ready *error) {
		ready = new(errors.New("never ready"))
		c = controller.New(s.config(fixed, func(c *controller.Config) {
			c.Registration, c.Registers, c.Serving, c.Ready = desired("two", "logger"), serves, serves, func(err error) { *ready = err }
		}))
		s.works(c, 5*time.Second)
		return c, ready
	}
	c, ready := starts(true)
	Expect(*ready).To(MatchError(ContainSubstring(why)), "no replica of the earlier one has answered")
	_, half := starts(false)
	Expect(*half).NotTo(HaveOccurred(), "RegisterExtensions comes after a serving half")
	s.edit(s.object(newLease(leaseName)), func(lease client.Object) {
		found := rollout.Read(lease.GetAnnotations())
		found[earlier] = rollout.Record{Ordinal: found[earlier].Ordinal, Target: found[earlier].Target, Probed: 1, Answered: 1}
		lease.SetAnnotations(found.Write(lease.GetAnnotations()))
	})
	s.works(c, time.Second)
	Expect(*ready).NotTo(HaveOccurred())
},
	Entry("because it was deleted", func(s *solo) { s.put(s.mutating, nil, true) }, "does not exist yet"),
	Entry("because it was emptied", func(s *solo) { s.edit(s.mutating, empties) }, "does not hold the entries"))

func empties(o client.Object) { delete(o.(*unstructured.Unstructured).Object, "webhooks") }

var _ = It("A replica that registers is not ready before it has seen the configurations", func() {
	s, ready := newSolo(), error(nil)
	config := s.config(fixed)
	config.Cache, config.Ready = &unreadable{copies: copies{process: s.process}, end: "-hook", err: cluster.ErrUnseen}, func(err error) { ready = err }
	s.works(controller.New(config), time.Minute)
	Expect(ready).To(MatchError(ContainSubstring("have not been read yet")))
})

type solo struct {
	*world
	process                      *process
	secret, mutating, validating *object
}

func newSolo() *solo {
	s := &solo{world: newWorld(pace{longest: time.Millisecond}, 1)}
	s.secret = s.object(newSecret(secretName))
	s.object(newLease(leaseName))
	all := (configurationsOf{}).all()
	s.mutating, s.validating = s.object(all[0].Object()), s.object(all[1].Object())
	s.process = s.newProcess("solo", 0)
	s.process.alive = true
	s.process.list()
	s.processes = append(s.processes, s.process)
	s.process.yield = func(d time.Duration) bool {
		s.pass(d)
		return true
	}
	return s
}

// pass lets time pass, in which watches deliver.
func (s *solo) pass(d time.Duration) {
	s.now = s.now.Add(d)
	s.process.hear()
}

// config is that of a replica with a CA of its own.
func (s *solo) config(changes ...func(*controller.Config)) controller.Config {
	p := s.process
	store := &certsecret.Store{
		Secrets:   secretsOf{requests: requests[*corev1.Secret]{p: p, of: newSecret}},
		Namespace: namespace, Name: secretName, Lifetime: 10 * 365 * 24 * time.Hour, Now: p.now,
		Cached: func(ctx context.Context) (*corev1.Secret, error) {
			secret := newSecret(secretName)
			return secret, copies{process: p}.Get(ctx, secret)
		},
	}
	c := controller.Config{
		Cache: copies{process: p}, Configurations: configurationsOf{p: p}.all(), Lease: leaseOf(p),
		Certificates: &controller.OwnCA{Store: store, Leaf: serving.NewLeaf([]string{host}, time.Hour, p.now), SetUp: true, Log: logr.Discard(), Now: p.now},
		Registration: program,
		Registers:    true, Serving: true, Retain: time.Hour, Now: p.now, Random: s.rng.Float64,
	}
	for _, change := range changes {
		change(&c)
	}
	return c
}

// replica starts one, and lets it work until nothing is due.
func (s *solo) replica(changes ...func(*controller.Config)) *controller.Controller {
	GinkgoHelper()
	c := controller.New(s.config(changes...))
	Expect(c.Obtain(context.Background())).To(Succeed())
	s.works(c, time.Minute)
	return c
}

// works lets a replica make its passes for so long.
func (s *solo) works(c *controller.Controller, d time.Duration) {
	GinkgoHelper()
	for until := s.now.Add(d); s.now.Before(until); {
		next := spectest.Must(c.Reconcile(context.Background()))
		s.pass(min(next, max(until.Sub(s.now), time.Millisecond)))
	}
}

// edit changes an object behind the replica's back.
func (s *solo) edit(o *object, change func(client.Object)) {
	next := o.latest().object.DeepCopyObject().(client.Object)
	change(next)
	s.put(o, next, true)
	s.pass(time.Second)
}

// trusts has a configuration hold these CAs.
func trusts(texts ...[]byte) func(client.Object) {
	return func(object client.Object) {
		for _, c := range clientConfigs(object) {
			c.trust(ca.Bundle(texts...))
		}
	}
}

// caBundles are all that configurations hold.
func (s *solo) caBundles() (all [][]byte) {
	for _, o := range []*object{s.mutating, s.validating} {
		for _, c := range clientConfigs(o.latest().object) {
			all = append(all, c.bundle())
		}
	}
	return all
}

// state is the one in the Secret.
func (s *solo) state() *certsecret.State {
	GinkgoHelper()
	return must(spectest.DecodeState(s.secret.latest().object.(*corev1.Secret).Data, s.now))
}

var _ = It("A replica that stops removes what no living version registers, by what the API server has and not by a late copy", func() {
	s := newSolo()
	c := s.replica(func(c *controller.Config) { c.Cache = copies{process: s.process} })
	first := c.State().First
	Expect(c.Replace(context.Background(), desired("two", "other"), false, func(map[string]rollout.Route) error { return nil })).To(Succeed())
	Expect(c.Remove(context.Background())).To(BeTrue(), "other replicas may still be of the version that it has left")
	Expect(s.mutating.latest().object).NotTo(BeNil())
	lease := s.object(newLease(leaseName))
	gone := lease.latest().object.DeepCopyObject().(*unstructured.Unstructured)
	gone.SetAnnotations(rollout.Read(gone.GetAnnotations()).Leave(first, true).Write(gone.GetAnnotations()))
	s.put(lease, gone, true)
	Expect(c.Remove(context.Background())).To(BeFalse(), "no watch has delivered that yet")
	Expect(s.mutating.latest().object).To(BeNil())
})

var _ = It("A replica that learns late that its CA is distrusted does not have it trusted again", func() {
	s := newSolo()
	var late *corev1.Secret
	behind := s.replica(func(c *controller.Config) {
		store := c.Certificates.(*controller.OwnCA).Store
		cached := store.Cached
		store.Cached = func(ctx context.Context) (*corev1.Secret, error) {
			if late != nil {
				return late, nil
			}
			return cached(ctx)
		}
	})
	other, leaked := s.replica(), s.state()
	late = s.secret.latest().object.DeepCopyObject().(*corev1.Secret)
	s.edit(s.secret, func(secret client.Object) {
		secret.SetAnnotations(map[string]string{certsecret.DistrustAnnotation: fmt.Sprint(leaked.CurrentID)})
	})
	s.works(other, time.Minute)
	Expect(s.state().CurrentID).To(BeNumerically(">", leaked.CurrentID))
	s.works(behind, time.Minute)
	for _, bundle := range s.caBundles() {
		Expect(ca.Contains(bundle, s.state().Bundle())).To(BeTrue())
		Expect(ca.Contains(bundle, leaked.Bundle())).To(BeFalse(), "its key has leaked")
	}
})

var _ = DescribeTable("A replica that starts amid a rotation that it may not write goes on", func(hold func(*corev1.Secret)) {
	s := newSolo()
	s.replica()
	s.edit(s.secret, func(object client.Object) {
		object.SetAnnotations(map[string]string{certsecret.RotateAnnotation: "now"})
		hold(object.(*corev1.Secret))
	})
	c := controller.New(s.config())
	Expect(c.Obtain(context.Background())).To(Succeed())
	for range 20 {
		again, err := c.Reconcile(context.Background())
		_, ends := errors.AsType[*wait.RefusedError](err)
		Expect(ends).To(BeFalse(), "%v", err)
		s.pass(again)
	}
},
	Entry("a Secret of a newer version", func(s *corev1.Secret) {
		s.Data[certsecret.StateKey] = bytes.Replace(s.Data[certsecret.StateKey], []byte(`"formatVersion": 1`), []byte(`"formatVersion": 2`), 1)
	}),
	Entry("an immutable Secret", func(s *corev1.Secret) { s.Immutable = new(true) }),
)

var _ = It("A replica waits for a moment of the certificates' clock, which may be behind its own for ever", func() {
	s := newSolo()
	behind := func() time.Time { return s.process.now().Add(-30 * time.Minute) }
	c := s.replica(func(c *controller.Config) {
		own := c.Certificates.(*controller.OwnCA)
		own.Now, own.Store.Now, own.Leaf = behind, behind, serving.NewLeaf([]string{host}, time.Hour, behind)
	})
	s.edit(s.secret, func(secret client.Object) {
		secret.SetAnnotations(map[string]string{certsecret.RotateAnnotation: "now"})
	})
	s.works(c, 25*time.Minute)
	s.pass(15 * time.Minute) // by its own clock, the hour for which the old CA is retained is over; by that of the certificates, it is not
	passes := 0
	for until := s.now.Add(15 * time.Minute); s.now.Before(until) && passes < 1000; passes++ {
		s.pass(spectest.Must(c.Reconcile(context.Background())))
	}
	Expect(passes).To(BeNumerically("<", 30))
	Expect(s.state().Phase).To(Equal(ca.Retaining))
})
