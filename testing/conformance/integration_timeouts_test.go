package conformance_test

import (
	"context"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"code.cloudfoundry.org/eirinix"
)

// timed makes a step that takes its time over every config map.
func timed(id string, validating bool, takes time.Duration, timeout time.Duration, policy admissionregistrationv1.FailurePolicyType, left *deadlines) any {
	settings := eirinix.Settings{Isolated: true, Timeout: timeout, FailurePolicy: policy}
	handle := func(ctx context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
		left.note(ctx, id)
		if takes > 0 {
			select { // the scenario is about the time that is consumed
			case <-time.After(takes):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	if validating {
		return eirinix.Validation[*corev1.ConfigMap]{ID: id, Settings: settings, Create: handle}
	}
	return eirinix.Mutation[*corev1.ConfigMap]{ID: id, Settings: settings, Apply: handle}
}

// deadlines notes how long the context of each step lets it work.
type deadlines struct{ callLog }

func (d *deadlines) note(ctx context.Context, id string) {
	end, ok := ctx.Deadline()
	if !ok {
		d.add(id, "forever")
		return
	}
	d.add(id, time.Until(end).Round(time.Second).String())
}

// createFor creates a config map with that much time for all of it, on the API server's clock.
func createFor(ctx context.Context, namespace, name string, timeout time.Duration) error {
	return clients().CoreV1().RESTClient().Post().Resource("configmaps").Namespace(namespace).
		Param("timeout", timeout.String()).Body(newConfigMap(name, nil)).Do(ctx).Error()
}

var _ = Describe("S25 Timeouts", Label("S25"), func() {
	const fail, ignore = admissionregistrationv1.Fail, admissionregistrationv1.Ignore

	eachMode(func(mode mode) {
		var (
			namespace string
			tap       *wiretap
			left      *deadlines
		)
		BeforeEach(func(ctx SpecContext) {
			namespace, tap, left = newNamespace(ctx), newWiretap(), &deadlines{}
		})
		// told returns the timeout in the URL by step: validators run in parallel, so in no order.
		told := func(name string) []string {
			var all []string
			for _, h := range tap.about(name) {
				all = append(all, h.path[strings.LastIndexByte(h.path, '/')+1:]+" "+h.timeout)
			}
			slices.Sort(all)
			return all
		}

		It("is the shorter one of request and webhook, and the step's context ends before", func(ctx SpecContext) {
			serve(ctx, mode, namespace, tap.options,
				timed("m1", false, 0, 20*time.Second, fail, left), timed("m2", false, 0, 5*time.Second, fail, left),
				timed("v3", true, 0, 20*time.Second, fail, left), timed("v4", true, 0, 5*time.Second, fail, left))
			Expect(createFor(ctx, namespace, "short", 10*time.Second)).To(Succeed())
			Expect(told("short")).To(Equal([]string{"m1 10s", "m2 5s", "v3 10s", "v4 5s"}))
			calls := left.list()
			slices.Sort(calls)
			// The margin is for the answer's way back.
			Expect(calls).To(HaveExactElements(
				BeElementOf("m1 9s", "m1 10s"), BeElementOf("m2 4s", "m2 5s"), BeElementOf("v3 9s", "v3 10s"), BeElementOf("v4 4s", "v4 5s")))
		}, SpecTimeout(2*patience))

		It("spends the request's time, not the webhook's", func(ctx SpecContext) {
			const second = time.Second
			serve(ctx, mode, namespace, tap.options,
				timed("m1", false, second, 20*second, fail, left), timed("m2", false, second, 5*second, fail, left), timed("m3", false, second, 20*second, fail, left),
				timed("v4", true, second, 5*second, fail, left), timed("v5", true, second, 10*second, fail, left), timed("v6", true, second, 20*second, fail, left))
			Expect(createFor(ctx, namespace, "spent", 12*second)).To(Succeed())
			// Remainders are rounded up: 12 s less 2 s of others are a little less than 10 s. A slow
			// machine may have spent a second more.
			Expect(told("spent")).To(HaveExactElements(
				Equal("m1 12s"), Equal("m2 5s"), BeElementOf("m3 10s", "m3 9s"),
				Equal("v4 5s"), BeElementOf("v5 9s", "v5 8s"), BeElementOf("v6 9s", "v6 8s")))
		}, SpecTimeout(2*patience))

		It("fails the request whose time is up, without calling later webhooks, under Ignore too", func(ctx SpecContext) {
			serve(ctx, mode, namespace, tap.options,
				timed("m1", false, 0, 4*time.Second, ignore, left), timed("m2", false, 0, 5*time.Second, ignore, left), timed("m3", false, 0, 5*time.Second, ignore, left))
			tap.holdWhere(func(h heard) <-chan struct{} { // the network is to blame
				if strings.HasSuffix(h.path, "/m1") && h.name == "late" {
					return make(chan struct{})
				}
				return nil
			})
			err := createFor(ctx, namespace, "late", 3*time.Second)
			Expect(err).To(Or(MatchError(ContainSubstring("stream error")), Satisfy(apierrors.IsTimeout),
				MatchError(ContainSubstring("unable to return a response in the time allotted"))))
			Expect(told("late")).To(Equal([]string{"m1 3s"}))
			Expect(left.list()).To(BeEmpty())
		}, SpecTimeout(2*patience))

		It("leaves time for later webhooks where it is the step that hangs: the library answers for it", func(ctx SpecContext) {
			serve(ctx, mode, namespace, tap.options,
				timed("m1", false, time.Hour, 7*time.Second, ignore, left), timed("m2", false, 0, 7*time.Second, ignore, left))
			Expect(createFor(ctx, namespace, "hanging", 6*time.Second)).To(Succeed())
			Expect(told("hanging")).To(Equal([]string{"m1 6s", "m2 1s"}))
		}, SpecTimeout(2*patience))
	})
})
