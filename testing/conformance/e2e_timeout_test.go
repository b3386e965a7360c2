package conformance_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
)

// slowness is how long the slow step takes: more than the shortest timeout there is. The project's own takes 5 s.
const slowness = 1500 * time.Millisecond

// slow admits every config map after its time. If it heeds its context, it gives up at the end of that.
func slow(settings eirinix.Settings, heeds bool) eirinix.Validation[*corev1.ConfigMap] {
	return eirinix.Validation[*corev1.ConfigMap]{ID: "slow", Settings: settings, Create: func(ctx context.Context, _ *eirinix.Call, _ *corev1.ConfigMap) error {
		if !heeds {
			ctx = context.WithoutCancel(ctx)
		}
		done := time.NewTimer(slowness)
		defer done.Stop()
		select {
		case <-done.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
}

var _ = Describe("A slow webhook", Label("S13"), func() {
	eachMode(func(mode mode) {
		DescribeTable("is waited for during its timeout",
			func(ctx SpecContext, timeout time.Duration, heeds bool, policy admissionregistrationv1.FailurePolicyType, outcome OmegaMatcher) {
				namespace := newNamespace(ctx)
				serve(ctx, mode, namespace, nil, slow(eirinix.Settings{
					Timeout: timeout, FailurePolicy: policy, Rules: rules("", "v1", "configmaps", created),
				}, heeds))
				_, err := createConfigMap(ctx, namespace, newConfigMap("slow", nil))
				Expect(err).To(outcome)
			},
			Entry("too short, under Fail", time.Second, true, admissionregistrationv1.Fail, MatchError(ContainSubstring("?timeout=1s")), SpecTimeout(2*patience)),
			Entry("too short, under Fail, for a step that does not heed its context", time.Second, false, admissionregistrationv1.Fail, MatchError(ContainSubstring("?timeout=1s")), SpecTimeout(2*patience)),
			Entry("too short, under Ignore", time.Second, true, admissionregistrationv1.Ignore, BeNil(), SpecTimeout(2*patience)),
			Entry("too short, under Ignore, for a step that does not heed its context", time.Second, false, admissionregistrationv1.Ignore, BeNil(), SpecTimeout(2*patience)),
			Entry("long enough", 10*time.Second, true, admissionregistrationv1.Fail, BeNil(), SpecTimeout(2*patience)),
			Entry("left to the library", time.Duration(0), true, admissionregistrationv1.Fail, BeNil(), SpecTimeout(2*patience)),
		)

		It("is waited for 10 s where a configuration has no timeout", func(ctx SpecContext) {
			namespace, elsewhere := newNamespace(ctx), newNamespace(ctx)
			m := serve(ctx, mode, namespace, nil, slow(eirinix.Settings{Rules: rules("", "v1", "configmaps", created)}, true))
			f := foreignTo(ctx, m, validating, namespace, elsewhere)
			f.Webhook.TimeoutSeconds = nil
			f.mustCreate(ctx)
			Expect(f.timeout(ctx)).To(BeEquivalentTo(10))
			Eventually(func() time.Duration { // until the API server acts on it
				before := time.Now()
				_, err := createConfigMap(ctx, elsewhere, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "slow-"}})
				Expect(err).NotTo(HaveOccurred())
				return time.Since(before)
			}).Should(BeNumerically(">=", slowness))
		}, SpecTimeout(2*patience))
	})
})
