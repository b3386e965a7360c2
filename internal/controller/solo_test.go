package controller_test

// This file is a world with one process, which is not held up: for specs of single rules.

import (
	"context"
	"time"

	"code.cloudfoundry.org/eirinix/internal/spectest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/go-logr/logr"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	"code.cloudfoundry.org/eirinix/internal/controller"
	"code.cloudfoundry.org/eirinix/internal/serving"
)

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
		Certificates: &controller.OwnCA{
			Store: store, Leaf: serving.NewLeaf([]string{host}, time.Hour, p.now), SetUp: true, Log: logr.Discard(), Now: p.now,
		},
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
		next, err := c.Reconcile(context.Background())
		Expect(err).NotTo(HaveOccurred())
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
