package rotation_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
)

var _ = Describe("Objects that are stored in one version and asked for in another", func() {
	It("are read, written and watched without a failure while CAs rotate, replicas go and API servers freeze", Label("soak"), func(ctx SpecContext) {
		// A request converts with the caBundle that it began with. So the old CA stays trusted for longer than a request
		// takes, also on a busy machine and while its API server is frozen. A rotation waits for most of its time, so
		// several programs rotate their CAs at once.
		const programs = 5
		lives := lifetimes{CA: time.Hour, Leaf: time.Minute, Retain: 20 * time.Second}
		var all []*shops
		for range programs {
			all = append(all, deployShops(ctx, 2, lives))
		}
		var loads []*traffic
		for _, s := range all {
			loads = append(loads, startTraffic(ctx, s, 3*programs*every))
		}

		var rotating sync.WaitGroup
		ended := make(chan struct{})
		var mu sync.Mutex
		var still sync.RWMutex // no replica goes while an API server is frozen
		rotated, replaced, written := 0, 0, int64(0)
		began := time.Now()
		for i, s := range all {
			rotating.Go(func() {
				defer GinkgoRecover()
				before := s.writes(ctx)
				for n := range (rotations(10) + programs - 1) / programs {
					d := s.deployment
					Expect(d.replicas[n%len(d.replicas)].RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed())
					still.RLock()
					done := d.replaceOne(ctx, n)
					still.RUnlock()
					Expect(loads[i].failing()).To(BeEmpty(), "after %d rotations of program %d", n+1, i)
					mu.Lock()
					rotated, replaced = rotated+1, replaced+done
					mu.Unlock()
				}
				s.settle(ctx)
				mu.Lock()
				written += s.writes(ctx) - before
				mu.Unlock()
			})
		}
		go func() { rotating.Wait(); close(ended) }()
		frozen := freezeUntil(ctx, ended, &still, loads)
		took := time.Since(began)
		for _, t := range loads {
			t.finish(ctx)
		}
		report(fmt.Sprintf("%d rotations of %d programs in %s, %d writes of their definitions, %d replicas replaced, API servers frozen %d times",
			rotated, programs, took.Round(time.Second), written, replaced, frozen), loads)
		for _, t := range loads {
			t.expectNoFailure()
		}
	}, SpecTimeout(4*time.Hour))
})

// replaceOne replaces a replica, in half of the turns: with a shutdown, or without one. It returns how many it replaced.
func (d *deployment) replaceOne(ctx context.Context, turn int) int {
	GinkgoHelper()
	old := d.replicas[0]
	switch turn % 4 {
	case 0:
		d.replace(ctx, old)
	case 2:
		d.start(ctx, old.server)
		d.kill(ctx, old)
	default:
		return 0
	}
	return 1
}

// freezeUntil freezes one API server after the other until the channel is closed. In between, both answer.
func freezeUntil(ctx context.Context, ended <-chan struct{}, still sync.Locker, loads []*traffic) (times int) {
	GinkgoHelper()
	for {
		server := times % len(servers)
		answers := func() (n int64) {
			for _, t := range loads {
				n += t.admitted[server].Load()
			}
			return n
		}
		still.Lock()
		freeze(server)()
		still.Unlock()
		times++
		before := answers()
		const between = 60
		Eventually(func() bool {
			select {
			case <-ended:
				return true
			default:
				return answers() > before+between
			}
		}).WithContext(ctx).WithTimeout(patience).Should(BeTrue(), "API server %d answers again", server)
		select {
		case <-ended:
			return times
		default:
		}
	}
}

var _ = Describe("Damage under the load of conversions", func() {
	It("is healed, and fails no read where the API server can still call the webhook", func(ctx SpecContext) {
		s := deployShops(ctx, 2, lifetimes{CA: time.Hour, Leaf: 30 * time.Second, Retain: 2 * time.Second})
		d := s.deployment
		t := startTraffic(ctx, s, every)
		secrets := clientsOf(0).CoreV1().Secrets(d.namespace)
		foreign := base64.StdEncoding.EncodeToString(foreignSecret(ctx)[corev1.TLSCertKey])
		patch := func(conversion string) func() {
			return func() { s.patch(ctx, `{"spec":{"conversion":`+conversion+`}}`) }
		}
		damage := []struct {
			name    string
			inflict func()
			calls   bool // the API server can still call the webhook
			pauses  bool // writes in v2 would lose their fields, and no webhook can prevent that
		}{
			{name: "a replica killed, and replaced", calls: true, inflict: func() {
				old := d.replicas[0]
				d.kill(ctx, old)
				d.start(ctx, old.server)
			}},
			{name: "the Secret deleted", calls: true, inflict: func() { Expect(secrets.Delete(ctx, d.secret(), metav1.DeleteOptions{})).To(Succeed()) }},
			{name: "the CA removed from the Secret", calls: true, inflict: func() {
				secret, err := secrets.Get(ctx, d.secret(), metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				clear(secret.Data)
				_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
				Expect(err).NotTo(HaveOccurred())
			}},
			{name: "the caBundle emptied", inflict: patch(`{"webhook":{"clientConfig":{"caBundle":null}}}`)},
			{name: "the caBundle of another program", inflict: patch(`{"webhook":{"clientConfig":{"caBundle":"` + foreign + `"}}}`)},
			{name: "another address", inflict: patch(`{"webhook":{"clientConfig":{"service":null,"url":"https://127.0.0.1:1/convert"}}}`)},
			{name: "the strategy None", pauses: true, inflict: patch(`{"strategy":"None","webhook":null}`)},
		}
		var counts []string
		for _, fault := range damage {
			By(fault.name)
			s.settle(ctx)
			whole, err := s.registered(ctx)
			Expect(err).NotTo(HaveOccurred())
			failed, writes := len(t.failing()), s.writes(ctx)
			if fault.pauses {
				t.writing.Lock()
			}
			fault.inflict()
			Eventually(s.registered).WithArguments(ctx).WithContext(ctx).WithTimeout(patience).Should(Equal(whole), fault.name)
			s.settle(ctx)
			for server := range servers {
				t.expectReads(ctx, server)
			}
			if fault.pauses {
				t.writing.Unlock()
			}
			t.expectProgress(ctx)
			writes = s.writes(ctx) - writes
			if fault.calls {
				Expect(t.failing()).To(HaveLen(failed), fault.name)
				Expect(writes).To(BeZero(), "writes of the definition: %s", fault.name)
			} else {
				Expect(writes).To(And(BeNumerically(">", 1), BeNumerically("<=", 1+maxWrites)), "writes of the definition, with the damage: %s", fault.name)
			}
			counts = append(counts, fmt.Sprintf("%s %d", fault.name, len(t.failing())-failed))
		}
		t.finish(ctx)
		report("failures by fault: "+strings.Join(counts, ", "), []*traffic{t})
		Expect(d.balancer.resumed.Load()).To(BeZero(), "handshakes without a certificate")
	}, SpecTimeout(10*patience))
})
