package rotation_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// maxWrites is how often an object may be written for one fault.
const maxWrites = 3

// foreignState is that of another deployment's Secret.
func foreignState() *certsecret.State {
	GinkgoHelper()
	authority := Must(ca.New("another program", time.Hour, time.Now()))
	return &certsecret.State{
		FormatVersion: certsecret.FormatVersion, Lineage: "foreign", Phase: ca.Steady, CurrentID: 1, Counter: 30,
		Generations: []certsecret.Generation{{ID: 1, CertificatePEM: authority.CertificatePEM, PrivateKeyPEM: authority.PrivateKeyPEM}},
	}
}

// fault is harm that another client does.
type fault struct {
	name    string
	inflict func() error
}

var _ = Describe("Damage under load", func() {
	const replicas = 10
	lives := lifetimes{CA: time.Hour, Leaf: 30 * time.Second, Retain: 2 * time.Second}

	// heals inflicts faults on a program, and sees after each that it is as before, and that few replicas wrote.
	heals := func(ctx context.Context, d *deployment, j *journal, faults []fault, after func(fault)) {
		GinkgoHelper()
		var slowest time.Duration
		for _, f := range faults {
			By(f.name)
			before := d.settle(ctx)
			bundles := Must(d.bundles(ctx))
			Expect(f.inflict()).To(Succeed())
			began := time.Now()
			Eventually(d.bundles).WithArguments(ctx).WithContext(ctx).WithPolling(10*time.Millisecond).Should(Equal(bundles), f.name)
			Expect(d.settle(ctx)).To(And(HaveField("Bundle()", before.Bundle()), HaveField("Lineage", before.Lineage)), "no CA is lost")
			slowest = max(slowest, time.Since(began))
			after(f)
		}
		AddReportEntry(fmt.Sprintf("%d faults, healed in %s at most", len(faults), slowest.Round(time.Millisecond)), ReportEntryVisibilityAlways)
		for _, kind := range []string{secretKind, mutatingKind, validatingKind} {
			Expect(j.written(kind)).To(BeNumerically("<=", maxWrites*len(faults)), "writes of the %s by %d replicas, and of the faults", kind, replicas)
		}
	}

	It("to the Secret fails no admission and costs no CA", func(ctx SpecContext) {
		d := deploy(ctx, replicas, lives)
		l := d.startLoad(ctx, few)
		j := d.keepJournal(ctx)
		secrets := clientsOf(0).CoreV1().Secrets(d.namespace)
		remove := func() error { return secrets.Delete(ctx, d.secret(), metav1.DeleteOptions{}) }
		change := func(change func(*corev1.Secret)) func() error {
			return func() error {
				s := Must(secrets.Get(ctx, d.secret(), metav1.GetOptions{}))
				change(s)
				_, err := secrets.Update(ctx, s, metav1.UpdateOptions{})
				return err
			}
		}
		heals(ctx, d, j, []fault{
			{"deleted", remove},
			{"emptied", change(func(s *corev1.Secret) { s.Data = nil })},
			{"another deployment's", change(func(s *corev1.Secret) { s.Data = foreignState().Encode(nil) })},
			{"immutable", change(func(s *corev1.Secret) { s.Immutable = new(true) })},
			{"immutable, and deleted", remove},
		}, func(f fault) { Expect(l.Failures()).To(BeEmpty(), f.name) })
		l.expectNoFailure("faults of the Secret under %d replicas", replicas)
	}, SpecTimeout(10*patience))

	It("to the configurations is healed, and not by every replica", func(ctx SpecContext) {
		d := deploy(ctx, replicas, lives)
		hooks := clientsOf(0).AdmissionregistrationV1()
		j := d.keepJournal(ctx)
		bundle := func(bundle []byte) func() error {
			return func() error {
				m := Must(hooks.MutatingWebhookConfigurations().Get(ctx, d.mutating(), metav1.GetOptions{}))
				for n := range m.Webhooks {
					m.Webhooks[n].ClientConfig.CABundle = bundle
				}
				v := Must(hooks.ValidatingWebhookConfigurations().Get(ctx, d.validating(), metav1.GetOptions{}))
				v.Webhooks[0].ClientConfig.CABundle = bundle
				_, ofMutating := hooks.MutatingWebhookConfigurations().Update(ctx, m, metav1.UpdateOptions{})
				_, ofValidating := hooks.ValidatingWebhookConfigurations().Update(ctx, v, metav1.UpdateOptions{})
				return errors.Join(ofMutating, ofValidating)
			}
		}
		counter := d.settle(ctx).Counter
		heals(ctx, d, j, []fault{
			{"caBundles blanked", bundle(nil)},
			{"caBundles of another program", bundle(foreignState().Bundle())},
			{"all entries removed", func() error {
				v := Must(hooks.ValidatingWebhookConfigurations().Get(ctx, d.validating(), metav1.GetOptions{}))
				v.Webhooks = nil
				_, err := hooks.ValidatingWebhookConfigurations().Update(ctx, v, metav1.UpdateOptions{})
				return err
			}},
			{"deleted", func() error {
				return hooks.MutatingWebhookConfigurations().Delete(ctx, d.mutating(), metav1.DeleteOptions{})
			}},
		}, func(fault) { d.obeyed(ctx, nil) })
		Expect(d.settle(ctx).Counter).To(Equal(counter), "the Secret has nothing to do with it")
	}, SpecTimeout(10*patience))
})
