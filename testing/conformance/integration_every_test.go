package conformance_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix"
)

// reviewsOf has the API server send this Manager reviews of that version. The library registers for v1 first, which
// every API server of today knows, so that the other one is only sent if the configuration is edited by hand. A Manager
// that registers would undo that, so another one goes on serving in its place, which does not register.
func reviewsOf(ctx context.Context, m *eirinix.ExtensionManager, version string, steps []any) {
	GinkgoHelper()
	m.Stop()
	o := m.GetManagerOptions()
	o.RegisterWebHook = new(false)
	Eventually(func() error {
		l, err := net.Listen("tcp", o.ListenAddress)
		if err == nil {
			err = l.Close()
		}
		return err
	}).WithContext(ctx).Should(Succeed(), "its port is free again")
	successor := eirinix.NewManager(o)
	for _, s := range append(slices.Clone(steps), markerSteps(o.OperatorFingerprint, steps)...) {
		Expect(successor.AddExtension(s)).To(Succeed())
	}
	start(ctx, successor)
	hooks := clients().AdmissionregistrationV1()
	mutating, validating := mutatingConfiguration(ctx, m), validatingConfiguration(ctx, m)
	for i := range mutating.Webhooks {
		Expect(mutating.Webhooks[i].AdmissionReviewVersions).To(Equal([]string{"v1", "v1beta1"}))
		mutating.Webhooks[i].AdmissionReviewVersions = []string{version}
	}
	for i := range validating.Webhooks {
		validating.Webhooks[i].AdmissionReviewVersions = []string{version}
	}
	_, err := hooks.MutatingWebhookConfigurations().Update(ctx, mutating, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = hooks.ValidatingWebhookConfigurations().Update(ctx, validating, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("S23 Every resource", Label("S23"), func() {
	It("is sent for every verb, mutating and validating, as v1 and v1beta1, Exact and Equivalent", func(ctx SpecContext) {
		e := newEveryResource(ctx)
		taps := map[string]*wiretap{}
		for version, mode := range map[string]mode{"v1": serviceMode, "v1beta1": urlMode} {
			taps[version] = newWiretap()
			m := serve(ctx, mode, e.namespace, func(o *eirinix.ManagerOptions) {
				o.OperatorFingerprint += "-" + version
				taps[version].options(o)
			}, e.steps(version)...)
			if version == "v1beta1" {
				reviewsOf(ctx, m, version, e.steps(version))
			}
		}
		tap := taps["v1beta1"]
		Eventually(func() (versions []string) { // informers, again
			name := fmt.Sprintf("probe-%d", len(tap.all()))
			_, _ = e.clients.CoreV1().ConfigMaps(e.namespace).Create(ctx, newConfigMap(name, nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			for _, h := range tap.about(name) {
				versions = append(versions, h.version)
			}
			return versions
		}).WithContext(ctx).WithPolling(pollMarker).Should(And(HaveLen(4), HaveEach("admission.k8s.io/v1beta1")))
		tap.forget()

		played, faults := 0, []string{}
		began := time.Now()
		for _, r := range e.sorted() {
			for _, verb := range []string{"create", "update", "patch", "delete", "deletecollection"} {
				if !slices.Contains(e.resources[r].Verbs, verb) {
					continue
				}
				played++
				if err := e.play(ctx, r, verb); err != nil {
					faults = append(faults, fmt.Sprintf("%s %s: %v", verb, name(r), err))
				}
			}
		}
		GinkgoWriter.Printf("%d verbs in %s\n", played, time.Since(began))
		Expect(faults).To(BeEmpty(), strings.Join(faults, "\n"))
		Expect(played).To(BeNumerically(">", 350), "discovery is complete")
		for version, tap := range taps {
			Expect(tap.all()).NotTo(BeEmpty())
			for _, h := range tap.all() {
				Expect(h.version).To(Equal("admission.k8s.io/" + version))
			}
		}
	}, SpecTimeout(6*patience))
})

func name(r schema.GroupVersionResource) string {
	return r.Resource + " of " + r.GroupVersion().String()
}
