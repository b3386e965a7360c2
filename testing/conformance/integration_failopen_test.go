package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("S34 The audit log of calls that failed open", Label("S34"), func() {
	// ignored makes both kinds of steps, which fail while fail is set, or count.
	ignored := func(calls *callLog, fail *atomic.Bool) []any {
		handle := func(_ context.Context, c *eirinix.Call, _ *corev1.ConfigMap) error {
			calls.add(string(c.Operation))
			c.Annotate("said", "this")
			if fail.Load() {
				return errors.New("no database")
			}
			return nil
		}
		settings := eirinix.Settings{FailurePolicy: admissionregistrationv1.Ignore}
		return []any{
			eirinix.Mutation[*corev1.ConfigMap]{ID: "mutating", Settings: settings, Apply: handle},
			eirinix.Validation[*corev1.ConfigMap]{ID: "validating", Settings: settings, Create: handle},
		}
	}
	// failedOpen returns the annotations that name a webhook that failed open.
	failedOpen := func(annotations map[string]string) (keys []string) {
		for key := range annotations {
			if strings.HasPrefix(key, "failed-open.") {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		return keys
	}
	both := []string{"failed-open.mutation.webhook.admission.k8s.io/round_0_index_0", "failed-open.validating.webhook.admission.k8s.io/round_0_index_0"}

	var (
		namespace string
		calls     *callLog
		fail      *atomic.Bool
		server    *audited
		m         *eirinix.ExtensionManager
	)
	create := func(ctx SpecContext, name string) map[string]string {
		GinkgoHelper()
		_, err := Clients(server.Config()).CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap(name, nil), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		return server.annotations(ctx, namespace, name)
	}
	BeforeEach(func(ctx SpecContext) {
		namespace, calls, fail, server = newNamespace(ctx), &callLog{}, &atomic.Bool{}, auditedServer(ctx)
		m = serve(ctx, urlMode, namespace, nil, ignored(calls, fail)...)
		server.await(ctx, namespace, "configmaps", calls)
		Eventually(func() []string { // the validating configuration has an informer of its own
			server.await(ctx, namespace, "configmaps", calls)
			_, _ = Clients(server.Config()).CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("probe", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return calls.take()
		}).WithContext(ctx).Should(HaveLen(2))
	})

	It("is silent where nothing failed, and holds the annotations of steps", func(ctx SpecContext) {
		annotations := create(ctx, "fine")
		Expect(failedOpen(annotations)).To(BeEmpty())
		hook := "." + namespace + ".eirinix.cloudfoundry.org/said"
		var said []string
		for key, value := range annotations {
			if strings.HasSuffix(key, hook) {
				said = append(said, value)
			}
		}
		Expect(said).To(Equal([]string{"this", "this"}), "one of each webhook: %v", annotations)
	}, SpecTimeout(4*patience))

	It("names the webhooks without a server", func(ctx SpecContext) {
		m.Stop()
		tries := 0
		Eventually(func() []string {
			calls.take()
			tries++
			return failedOpen(create(ctx, fmt.Sprintf("gone-%d", tries)))
		}).WithContext(ctx).Should(Equal(both))
		Expect(calls.list()).To(BeEmpty())
	}, SpecTimeout(4*patience))

	// The API server knows a failure only by the answer: HTTP 500 is one, and a step that was skipped is none.
	It("names the webhooks whose steps fail", func(ctx SpecContext) {
		fail.Store(true)
		Expect(failedOpen(create(ctx, "failing"))).To(Equal(both))
		Expect(calls.list()).To(HaveLen(2))
	}, SpecTimeout(4*patience))
})
