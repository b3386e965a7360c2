package webhookconf_test

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("A race for one configuration", func() {
	var (
		time0    *clock
		c        *cluster
		webhooks []admissionregistrationv1.MutatingWebhook
	)

	start := func(in *cluster) *process { return time0.start(in, step("volumes", isolated)) }

	BeforeEach(func() { time0, c, webhooks = &clock{now: noon}, newCluster(), build(urlOptions()) })

	// older has an older process register other steps.
	older := func(ctx context.Context) {
		GinkgoHelper()
		time0.start(c, step("older", isolated)).register(ctx)
		time0.pass(time.Minute)
		c.ClearActions()
	}

	Describe("that is lost", func() {
		It("reads again and writes again after a conflict", func(ctx SpecContext) {
			older(ctx)
			c.once("update", conflict)
			Expect(start(c).register(ctx).Outcome).To(Equal(webhookconf.Updated))
			Expect(c.verbs()).To(Equal([]string{"get", "update", "get", "update"}))
			Expect(c.stored().Webhooks).To(Equal(webhooks))
		})

		It("keeps what the winner of the conflict wrote, and asks again what is to be trusted", func(ctx SpecContext) {
			older(ctx)
			c.once("update", func() error {
				c.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) {
					m.Labels["winner"] = "was here"
					m.Webhooks[0].ClientConfig.CABundle = []byte("the winner's bundle")
				})
				return conflict()
			})
			p := start(c)
			p.register(ctx)
			Expect(p.asked).To(Equal(2))
			Expect(p.live).To(Equal([]string{"the winner's bundle"}))
			Expect(c.stored().Labels).To(HaveKeyWithValue("winner", "was here"))
			Expect(c.stored().Webhooks).To(Equal(webhooks))
		})

		It("adopts what another replica has created meanwhile, without writing it again", func(ctx SpecContext) {
			elsewhere := newCluster()
			start(elsewhere).register(ctx)
			c.once("create", func() error {
				c.behindTheScenes(func(t clienttesting.ObjectTracker) error { return t.Add(elsewhere.stored()) })
				return apierrors.NewAlreadyExists(groupResource, configurationName)
			})
			Expect(start(c).register(ctx).Outcome).To(Equal(webhookconf.Unchanged))
			Expect(c.verbs()).To(Equal([]string{"get", "create", "get"}))
			Expect(c.stored()).To(Equal(elsewhere.stored()))
		})

		It("creates what was deleted before the update arrived", func(ctx SpecContext) {
			older(ctx)
			c.once("update", func() error {
				c.lose()
				return apierrors.NewNotFound(groupResource, configurationName)
			})
			Expect(start(c).register(ctx).Outcome).To(Equal(webhookconf.Created))
			Expect(c.stored().Webhooks).To(Equal(webhooks))
		})

		It("decides again whose steps are to stand there", func(ctx SpecContext) {
			older(ctx)
			p := start(c)
			time0.pass(time.Minute)
			elsewhere := newCluster()
			time0.start(elsewhere, step("newest", isolated)).register(ctx)
			c.once("update", func() error {
				c.replace(elsewhere.stored())
				return conflict()
			})
			Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Yielded))
			Expect(c.names()).To(ConsistOf("newest.eirini-x.eirinix.cloudfoundry.org"))
		})

		It("gives up with the conflict when it is lost every time, and remembers no write", func(ctx SpecContext) {
			older(ctx)
			lost := 0
			c.PrependReactor("update", resourceName, func(clienttesting.Action) (bool, runtime.Object, error) {
				lost++
				return lost <= 4, nil, conflict()
			})
			p := start(c)
			_, err := p.Register(ctx, p.trusts)
			Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring(configurationName)))
			Expect(p.survey(ctx).Due).To(BeTrue())
			Expect(p.register(ctx)).To(And(HaveField("Outcome", webhookconf.Updated), HaveField("Contest", BeNil())))
		})
	})

	It("is won by one of many replicas that start together", func(ctx SpecContext) {
		const replicas = 50
		var (
			running, looked sync.WaitGroup
			mu              sync.Mutex
		)
		outcomes, failures := map[webhookconf.Outcome]int{}, []error{}
		looked.Add(replicas)
		for range replicas {
			p := start(c)
			running.Go(func() {
				written, err := p.Register(ctx, func(live [][]byte) ([]byte, error) {
					if len(live) == 0 { // nobody writes before everybody has found that there is nothing
						looked.Done()
						looked.Wait()
					}
					return p.trusts(live)
				})
				mu.Lock()
				defer mu.Unlock()
				outcomes[written.Outcome]++
				if err != nil {
					failures = append(failures, err)
				}
			})
		}
		running.Wait()
		Expect(failures).To(BeEmpty())
		Expect(outcomes).To(Equal(map[webhookconf.Outcome]int{webhookconf.Created: 1, webhookconf.Unchanged: replicas - 1}))
		Expect(c.stored().Webhooks).To(Equal(webhooks))
	})

	It("is none within a process, which may look and write on many goroutines", func(ctx SpecContext) {
		p := start(c)
		var running sync.WaitGroup
		failures := make(chan error, 100)
		for range 20 {
			running.Go(func() {
				if _, err := p.Register(ctx, p.trusts); err != nil {
					failures <- err
				}
			})
			running.Go(func() {
				if _, err := p.Survey(ctx); err != nil {
					failures <- err
				}
			})
		}
		running.Wait()
		Expect(failures).To(BeEmpty())
		Expect(p.asked).To(Equal(20), "one at a time")
		Expect(c.writes()).To(Equal([]string{"create"}))
	})
})
