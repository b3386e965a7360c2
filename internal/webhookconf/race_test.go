package webhookconf_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	clienttesting "k8s.io/client-go/testing"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("A race for one configuration", func() {
	var c *cluster
	BeforeEach(func() { c = newCluster() })

	Describe("that is lost", func() {
		older := func(ctx context.Context) {
			GinkgoHelper()
			registers(ctx, mutatingIn(c), desired(urlOptions(), step("older", isolated)), "bundle")
			c.ClearActions()
		}

		It("is decided again on the winner's write", func(ctx SpecContext) {
			older(ctx)
			c.once("update", func() error {
				c.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
					m.Labels["winner"] = "was here"
					m.Webhooks[0].ClientConfig.CABundle = []byte("the winner's bundle")
				})
				return nil // the reactor behind finds the conflict
			})
			var seen [][]string
			_, outcome, err := register(ctx, mutatingIn(c), func(f webhookconf.Found) webhookconf.Change {
				seen = append(seen, texts(f.Bundles))
				return trusting(volumes(), "bundle")
			})
			Expect(err).NotTo(HaveOccurred())
			Expect(outcome).To(Equal(webhookconf.Updated))
			Expect(c.verbs()).To(Equal([]string{"get", "update", "get", "update"}))
			Expect(seen).To(Equal([][]string{{"bundle"}, {"the winner's bundle"}}))
			Expect(c.stored().Labels).To(HaveKeyWithValue("winner", "was here"))
			Expect(c.stored().Webhooks).To(Equal(build(urlOptions())))
		})

		It("adopts the configuration that another replica created, without writing it again", func(ctx SpecContext) {
			elsewhere := newCluster()
			registers(ctx, mutatingIn(elsewhere), volumes(), "bundle")
			c.once("create", func() error {
				c.behindTheScenes(func(t clienttesting.ObjectTracker) error { return t.Add(elsewhere.tree()) })
				return apierrors.NewAlreadyExists(groupResource, configurationName)
			})
			Expect(registers(ctx, mutatingIn(c), volumes(), "bundle")).To(Equal(webhookconf.Unchanged))
			Expect(c.verbs()).To(Equal([]string{"get", "create", "get"}))
			Expect(c.tree()).To(Equal(elsewhere.tree()))
		})

		It("creates the configuration that was deleted before the update arrived", func(ctx SpecContext) {
			older(ctx)
			c.once("update", func() error { c.lose(); return nil })
			Expect(registers(ctx, mutatingIn(c), volumes(), "bundle")).To(Equal(webhookconf.Created))
			Expect(c.stored().Webhooks).To(Equal(build(urlOptions())))
		})
	})

	It("is won by one of 200 replicas that start together", func(ctx SpecContext) {
		raceToCreate(ctx, c, urlOptions(), 200)
		Expect(c.stored().Webhooks).To(Equal(build(urlOptions())))
	})

	It("loses nothing that one of 200 replicas adds", func(ctx SpecContext) {
		raceToAdd(ctx, c, urlOptions(), 200)
	})
})

// The same on the real lock.
var _ = Describe("A race through the API server", Label("api-server"), Ordered, func() {
	var (
		clients dynamic.Interface
		o       webhookconf.Options
	)
	BeforeAll(func() {
		config := controlPlane().config
		config.QPS = -1
		clients = Must(dynamic.NewForConfig(config))
	})
	BeforeEach(func() {
		o = urlOptions()
		o.Fingerprint = fmt.Sprint("race-", time.Now().UnixNano())
		DeferCleanup(func(ctx SpecContext) error {
			m, _ := both(clients, o)
			_, err := m.Delete(ctx)
			return err
		})
	})

	It("is won by one of 200 replicas that start together", func(ctx SpecContext) { raceToCreate(ctx, clients, o, 200) })

	It("loses nothing that one of 20 replicas adds", func(ctx SpecContext) { raceToAdd(ctx, clients, o, 20) })
})

// raceToCreate has replicas register the same when all have found that there is nothing.
func raceToCreate(ctx context.Context, in dynamic.Interface, o webhookconf.Options, replicas int) {
	GinkgoHelper()
	var running, looked sync.WaitGroup
	var mu sync.Mutex
	outcomes, failures := map[webhookconf.Outcome]int{}, []error{}
	looked.Add(replicas)
	for range replicas {
		c, _ := both(in, o)
		d := desired(o, step("volumes", isolated))
		running.Go(func() {
			_, outcome, err := register(ctx, c, func(f webhookconf.Found) webhookconf.Change {
				if !f.Exists {
					looked.Done()
					looked.Wait()
				}
				return trusting(d, "bundle")
			})
			mu.Lock()
			defer mu.Unlock()
			outcomes[outcome]++
			if err != nil {
				failures = append(failures, err)
			}
		})
	}
	running.Wait()
	Expect(failures).To(BeEmpty())
	Expect(outcomes).To(Equal(map[webhookconf.Outcome]int{webhookconf.Created: 1, webhookconf.Unchanged: replicas - 1}))
}

// raceToAdd has each replica add a line to the caBundle that all share. A write that overtakes another would lose one.
func raceToAdd(ctx context.Context, in dynamic.Interface, o webhookconf.Options, replicas int) {
	GinkgoHelper()
	first, _ := both(in, o)
	registers(ctx, first, desired(o, step("volumes", isolated)), "#\n")
	var running sync.WaitGroup
	failures := make(chan error, replicas)
	for i := range replicas {
		running.Go(func() {
			_, _, err := register(ctx, first, func(f webhookconf.Found) webhookconf.Change {
				return webhookconf.Change{Bundle: fmt.Append(f.Bundles[0], "# ", i, "\n")}
			})
			failures <- err
		})
	}
	running.Wait()
	close(failures)
	for err := range failures {
		Expect(err).NotTo(HaveOccurred())
	}
	bundle := texts(get(ctx, first).Bundles)
	Expect(bundle).To(HaveLen(1))
	for i := range replicas {
		Expect(bundle[0]).To(ContainSubstring(fmt.Sprint("# ", i, "\n")))
	}
}
