package rotation_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"time"

	"code.cloudfoundry.org/eirinix/internal/spectest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

const (
	secretHealed  = 2 * time.Second
	bundlesHealed = 3 * time.Second

	// quiet is longer than a replica hesitates before it heals a fault that all see: any other that would write has done so.
	quiet = 1500 * time.Millisecond

	// maxWrites is how often a configuration may be written for one fault.
	maxWrites = 3
)

var _ = Describe("Damage under load", func() {
	const replicas = 20
	lives := lifetimes{CA: time.Hour, Leaf: 30 * time.Second, Retain: 2 * time.Second}

	It("to the Secret fails no admission and costs no CA", func(ctx SpecContext) {
		d := deploy(ctx, replicas, lives)
		clients := clientsOf(0)
		secrets := clients.CoreV1().Secrets(d.namespace)
		l := startLoad(ctx, d, few)

		read := func() *corev1.Secret {
			GinkgoHelper()
			s, err := secrets.Get(ctx, d.secret(), metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			return s
		}
		change := func(change func(map[string][]byte)) func() {
			return func() {
				GinkgoHelper()
				Eventually(func() error {
					s := read()
					if s.Data == nil {
						s.Data = map[string][]byte{}
					}
					change(s.Data)
					_, err := secrets.Update(ctx, s, metav1.UpdateOptions{})
					return err
				}).Should(Succeed())
			}
		}
		extra := false // the Secret holds a key of another program
		replace := func(data map[string][]byte) func() {
			return change(func(old map[string][]byte) {
				extra = false
				clear(old)
				maps.Copy(old, data)
			})
		}
		foreign := foreignSecret(ctx)
		older := read().Data
		d.request(ctx, clients, "the CA after the older copy")
		d.settle(ctx, clients)
		Expect(read().Data[corev1.TLSCertKey]).NotTo(Equal(older[corev1.TLSCertKey]))

		damage := []struct {
			name    string
			inflict func()
		}{
			{"deleted", func() { Expect(secrets.Delete(ctx, d.secret(), metav1.DeleteOptions{})).To(Succeed()) }},
			{"emptied", replace(nil)},
			{"every value emptied", change(func(data map[string][]byte) {
				for key := range data {
					data[key] = nil
				}
			})},
			{"a key of another program", change(func(data map[string][]byte) {
				data["extra"] = []byte("kept")
				extra = true
			})},
			{"truncated", change(func(data map[string][]byte) {
				for key, value := range data {
					data[key] = value[:len(value)/2]
				}
			})},
			{"the state truncated", change(func(data map[string][]byte) {
				data[certsecret.StateKey] = data[certsecret.StateKey][:len(data[certsecret.StateKey])/2]
			})},
			{"the state lost", change(func(data map[string][]byte) { delete(data, certsecret.StateKey) })},
			{"the registered bundle lost", change(func(data map[string][]byte) { register(data, nil) })},
			{"the registered bundle wrong", change(func(data map[string][]byte) { register(data, foreign[corev1.TLSCertKey]) })},
			{"another's private key", change(func(data map[string][]byte) { data[corev1.TLSPrivateKeyKey] = foreign[corev1.TLSPrivateKeyKey] })},
			{"another's private key everywhere", change(func(data map[string][]byte) {
				state, err := spectest.DecodeState(data, time.Now())
				Expect(err).NotTo(HaveOccurred())
				for n := range state.Generations {
					state.Generations[n].PrivateKeyPEM = foreign[corev1.TLSPrivateKeyKey]
				}
				maps.Copy(data, state.Encode(data))
			})},
			{"rolled back", replace(older)},
			{"another's CA beside the state", change(func(data map[string][]byte) {
				data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey] = foreign[corev1.TLSCertKey], foreign[corev1.TLSPrivateKeyKey]
			})},
			{"another's CA alone", replace(map[string][]byte{
				corev1.TLSCertKey: foreign[corev1.TLSCertKey], corev1.TLSPrivateKeyKey: foreign[corev1.TLSPrivateKeyKey],
			})},
			{"another deployment's", replace(foreign)},
			{"immutable", func() {
				s := read()
				s.Immutable = new(true)
				_, err := secrets.Update(ctx, s, metav1.UpdateOptions{})
				Expect(err).NotTo(HaveOccurred())
			}},
			{"immutable, and deleted", func() { Expect(secrets.Delete(ctx, d.secret(), metav1.DeleteOptions{})).To(Succeed()) }},
		}
		j := d.keepJournal(ctx, clients)
		var slowest time.Duration
		writes := 0
		for _, fault := range damage {
			By(fault.name)
			d.settle(ctx, clients)
			held, lineage := read().Data[corev1.TLSCertKey], d.state(ctx, clients).Lineage
			mutating, validating := j.written(mutatingKind), j.written(validatingKind)
			fault.inflict()
			began := time.Now()
			Eventually(func(g Gomega) {
				s, err := secrets.Get(ctx, d.secret(), metav1.GetOptions{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(bytes.Equal(s.Data[corev1.TLSCertKey], held)).To(BeTrue(), "the CA is back")
				state, err := spectest.DecodeState(s.Data, time.Now())
				g.Expect(err).NotTo(HaveOccurred())
				current, err := state.Current()
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(ca.EqualBundles(current.CertificatePEM, held)).To(BeTrue(), "and signs")
				g.Expect(state.Reason).To(BeEmpty(), "and nothing is wrong with the Secret")
				g.Expect(state.Lineage).To(Equal(lineage))
			}).WithContext(ctx).WithTimeout(secretHealed).WithPolling(10*time.Millisecond).Should(Succeed(), fault.name)
			slowest = max(slowest, time.Since(began))
			d.settle(ctx, clients)
			Expect(l.failing()).To(BeEmpty(), fault.name)
			for kind, before := range map[string]int{mutatingKind: mutating, validatingKind: validating} {
				Expect(j.written(kind)-before).To(BeNumerically("<=", maxWrites), "writes of the %s: %s", kind, fault.name)
				writes = max(writes, j.written(kind)-before)
			}
			if extra {
				Expect(read().Data).To(HaveKey("extra"), fault.name)
			}
		}
		d.expectNoFailure(l, fmt.Sprintf("%d faults of the Secret, %d replicas, healed in %s at most, a configuration written %d times at most",
			len(damage), replicas, slowest.Round(time.Millisecond), writes))
	}, SpecTimeout(10*patience))

	It("to the configurations is healed, and not by every replica", func(ctx SpecContext) {
		d := deploy(ctx, replicas, lives)
		clients := clientsOf(0)
		hooks := clients.AdmissionregistrationV1()
		l := startLoad(ctx, d, few)
		foreign := foreignSecret(ctx)

		inMutating := func(change func(*admissionregistrationv1.MutatingWebhookConfiguration)) func() int {
			return func() int {
				GinkgoHelper()
				c, err := hooks.MutatingWebhookConfigurations().Get(ctx, d.mutating(), metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				change(c)
				_, err = hooks.MutatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{})
				Expect(err).NotTo(HaveOccurred())
				return 1
			}
		}
		inValidating := func(change func(*admissionregistrationv1.ValidatingWebhookConfiguration)) func() int {
			return func() int {
				GinkgoHelper()
				c, err := hooks.ValidatingWebhookConfigurations().Get(ctx, d.validating(), metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				change(c)
				_, err = hooks.ValidatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{})
				Expect(err).NotTo(HaveOccurred())
				return 1
			}
		}
		bundle := func(bundle []byte) func() int {
			return func() int {
				return inMutating(func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
					for n := range c.Webhooks {
						c.Webhooks[n].ClientConfig.CABundle = bundle
					}
				})() + inValidating(func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
					c.Webhooks[0].ClientConfig.CABundle = bundle
				})()
			}
		}
		damage := []struct {
			name    string
			inflict func() (writes int)
		}{
			{"caBundle blanked", bundle(nil)},
			{"caBundle blanked in one entry", inMutating(func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
				c.Webhooks[0].ClientConfig.CABundle = nil
			})},
			{"caBundle garbage", bundle([]byte("garbage"))},
			{"caBundle of another program", bundle(foreign[corev1.TLSCertKey])},
			{"caBundle of another program in one configuration", inValidating(func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
				c.Webhooks[0].ClientConfig.CABundle = foreign[corev1.TLSCertKey]
			})},
			{"an entry removed", inMutating(func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
				c.Webhooks = c.Webhooks[1:]
			})},
			{"all entries removed", inValidating(func(c *admissionregistrationv1.ValidatingWebhookConfiguration) { c.Webhooks = nil })},
			{"deleted", func() int {
				Expect(hooks.MutatingWebhookConfigurations().Delete(ctx, d.mutating(), metav1.DeleteOptions{})).To(Succeed())
				return 1
			}},
		}
		j := d.keepJournal(ctx, clients)
		var slowest time.Duration
		most, failed := 0, 0
		for _, fault := range damage {
			By(fault.name)
			bundles, err := d.bundles(ctx, clients)
			Expect(err).NotTo(HaveOccurred())
			Expect(l.failing()).To(HaveLen(failed), "before the fault: %s", fault.name)
			state, before := d.settle(ctx, clients), j.all()
			own := fault.inflict()
			began := time.Now()
			Eventually(d.bundles).WithArguments(ctx, clients).WithContext(ctx).WithTimeout(bundlesHealed).
				WithPolling(10*time.Millisecond).Should(Equal(bundles), fault.name)
			slowest = max(slowest, time.Since(began))
			for n := range servers {
				Eventually(admit).WithArguments(ctx, clientsOf(n), d.objects).WithContext(ctx).Should(Succeed(), fault.name)
			}
			Eventually(j.all).Should(BeNumerically(">", before+own), fault.name)
			Consistently(func() int { return j.all() - before - own }).WithContext(ctx).WithTimeout(quiet).
				Should(BeNumerically("<=", maxWrites), "writes: %s", fault.name)
			most = max(most, j.all()-before-own)
			Expect(d.state(ctx, clients).Counter).To(Equal(state.Counter), "the Secret has nothing to do with it")
			failed = len(l.failing())
		}
		l.end()
		d.report(l, fmt.Sprintf("%d faults of the configurations, %d replicas, healed in %s at most, %d writes at most",
			len(damage), replicas, slowest.Round(time.Millisecond), most))
	}, SpecTimeout(10*patience))
})

// register records in the Secret that this bundle was registered.
func register(data map[string][]byte, bundle []byte) {
	GinkgoHelper()
	state, err := spectest.DecodeState(data, time.Now())
	Expect(err).NotTo(HaveOccurred())
	state.RegisteredBundle = bundle
	maps.Copy(data, state.Encode(data))
}

// foreignSecret returns the data of another deployment's Secret.
func foreignSecret(ctx context.Context) map[string][]byte {
	GinkgoHelper()
	namespace := newNamespace(ctx)
	store := &certsecret.Store{Secrets: clientsOf(0).CoreV1().Secrets(namespace), Namespace: namespace, Name: "foreign", Lifetime: time.Hour, Now: time.Now}
	_, _, err := store.Restore(ctx, nil, nil)
	Expect(err).NotTo(HaveOccurred())
	s, err := store.Secrets.Get(ctx, "foreign", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return s.Data
}

var _ = Describe("Replicas at rest", func() {
	It("write nothing, also when others change fields of their own", func(ctx SpecContext) {
		d := deploy(ctx, 2, lifetimes{Leaf: 8 * time.Second}) // renewals need no write
		clients := clientsOf(0)
		l := startLoad(ctx, d, few)
		d.settle(ctx, clients)
		d.more = []any{mark("later", "yes", eirinix.Settings{})} // other versions have lived before
		d.rollOut(ctx, d.keepJournal(ctx, clients))
		d.start(ctx, 0)
		d.settle(ctx, clients)
		j := d.keepJournal(ctx, clients)
		// Longer than any question or pause.
		Consistently(func() int { return j.all() + j.written(leaseKind) }).WithContext(ctx).WithTimeout(15 * time.Second).Should(BeZero())

		s, err := clients.CoreV1().Secrets(d.namespace).Get(ctx, d.secret(), metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, "example.com/touched", "yes")
		_, err = clients.CoreV1().Secrets(d.namespace).Update(ctx, s, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		hooks := clients.AdmissionregistrationV1()
		m, err := hooks.MutatingWebhookConfigurations().Get(ctx, d.mutating(), metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, "example.com/touched", "yes")
		_, err = hooks.MutatingWebhookConfigurations().Update(ctx, m, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(j.all).Should(Equal(2))
		Consistently(j.all).WithContext(ctx).WithTimeout(5 * time.Second).Should(Equal(2))
		Expect(j.written(leaseKind)).To(BeZero())
		Expect(d.renewals.Load()).To(BeNumerically(">=", 3))
		d.expectNoFailure(l, "3 replicas at rest")
	}, SpecTimeout(5*patience))
})
