package eirinix_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

var _ = Describe("The client that may change the trusted CAs", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	manager := func(change ...func(*eirinix.ManagerOptions)) *eirinix.ExtensionManager {
		GinkgoHelper()
		o := urlOptions(namespace)
		for _, c := range change {
			c(&o)
		}
		m := addEnvManager(o)
		return m
	}
	secret := func(ctx context.Context, namespace string) *corev1.Secret {
		GinkgoHelper()
		s, err := clients().CoreV1().Secrets(namespace).Get(ctx, namespace+"-setupcertificate", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return s
	}
	// foreign holds a CA of another program: bare, and with every key that a Secret of ours has.
	foreign := func(ctx context.Context) []map[string][]byte {
		GinkgoHelper()
		certificate, key := newCA(time.Now().Add(365 * 24 * time.Hour))
		other := newNamespace(ctx)
		theirs := addEnvManager(urlOptionsAt(other, 8443))
		Expect(theirs.RegisterExtensions()).To(Succeed())
		Expect(theirs.Unregister(ctx)).To(Succeed())
		return []map[string][]byte{{"ca.crt": certificate, "tls.crt": certificate, "tls.key": key}, secret(ctx, other).Data}
	}
	// blindly replaces the Secret as a client does that may write it, and not read it.
	blindly := func(ctx context.Context, data map[string][]byte) {
		GinkgoHelper()
		config := userWith(ctx, namespace, []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"update"}, ResourceNames: []string{namespace + "-setupcertificate"},
		}}, nil)
		Eventually(func() error {
			_, err := Clients(config).CoreV1().Secrets(namespace).Update(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-setupcertificate"}, Data: data}, metav1.UpdateOptions{})
			return err
		}).WithTimeout(patience).Should(Succeed())
	}
	// published collects every caBundle that is registered from now on.
	published := func(ctx context.Context) func() string {
		GinkgoHelper()
		w, err := clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + namespace + "-mutating-hook"})
		Expect(err).NotTo(HaveOccurred())
		var mu sync.Mutex
		var all strings.Builder
		go func() {
			for event := range w.ResultChan() {
				if c, ok := event.Object.(*admissionregistrationv1.MutatingWebhookConfiguration); ok {
					mu.Lock()
					for _, hook := range c.Webhooks {
						all.Write(hook.ClientConfig.CABundle)
					}
					mu.Unlock()
				}
			}
		}()
		DeferCleanup(w.Stop)
		return func() string {
			mu.Lock()
			defer mu.Unlock()
			return all.String()
		}
	}

	It("is not a client that may write the Secret alone, while the program runs", func(ctx SpecContext) {
		m := manager()
		runManager(ctx, m)
		own, bundles := secret(ctx, namespace).Data["ca.crt"], published(ctx)
		all := foreign(ctx)
		for _, data := range all {
			blindly(ctx, data)
			Eventually(func() []byte { return secret(ctx, namespace).Data["ca.crt"] }).WithTimeout(patience).Should(Equal(own))
		}
		Expect(m.RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed())
		// A bundle with the next CA is published after every reaction to those writes.
		Eventually(bundles).WithTimeout(patience).Should(ContainSubstring(string(secret(ctx, namespace).Data["ca.crt"])))
		for _, data := range all {
			Expect(bundles()).NotTo(ContainSubstring(string(data["ca.crt"])))
		}
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
	}, SpecTimeout(4*patience))

	It("is not that client before the program starts either, where a configuration stands", func(ctx SpecContext) {
		first := manager()
		done := startManager(ctx, first)
		Eventually(first.Ready()).WithTimeout(patience).Should(BeClosed())
		first.Stop()
		Eventually(done).WithTimeout(patience).Should(Receive(BeNil()))
		bundles := published(ctx)
		for _, data := range foreign(ctx) {
			blindly(ctx, data)
			m := manager()
			done := startManager(ctx, m)
			Eventually(m.Ready()).WithTimeout(patience).Should(BeClosed())
			Expect(createPod(ctx, namespace, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"}, Spec: NewPod("", nil).Spec})).To(beMutated())
			m.Stop()
			Eventually(done).WithTimeout(patience).Should(Receive(BeNil()))
			Eventually(bundles).WithTimeout(patience).Should(ContainSubstring(string(secret(ctx, namespace).Data["ca.crt"])))
			Expect(bundles()).NotTo(ContainSubstring(string(data["ca.crt"])))
		}
	}, SpecTimeout(4*patience))

	It("is RotateCA of a program without steps, which changes nothing else", func(ctx SpecContext) {
		m := manager()
		runManager(ctx, m)
		before := configuration(ctx, m)
		o := urlOptionsAt(namespace, 8443)
		Expect(eirinix.NewManager(o).RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed())
		after := configuration(ctx, m)
		for i := range after.Webhooks {
			Expect(after.Webhooks[i].ClientConfig.CABundle).NotTo(Equal(before.Webhooks[i].ClientConfig.CABundle))
			after.Webhooks[i].ClientConfig.CABundle = before.Webhooks[i].ClientConfig.CABundle
		}
		Expect(after.Webhooks).To(Equal(before.Webhooks))
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
	}, SpecTimeout(2*patience))

	It("is one that marks the CA that signs as distrusted: any replica rotates, and the old CA leaves at once", func(ctx SpecContext) {
		m := manager()
		runManager(ctx, m)
		old := secret(ctx, namespace).Data["ca.crt"]
		_, err := clients().CoreV1().Secrets(namespace).Patch(ctx, namespace+"-setupcertificate", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"eirinix.cloudfoundry.org/distrust":"1"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func(g Gomega) {
			s := secret(ctx, namespace)
			g.Expect(s.Data["ca.crt"]).NotTo(Equal(old))
			g.Expect(s.Data["state.json"]).To(ContainSubstring(`"phase": "steady"`))
			for _, hook := range configuration(ctx, m).Webhooks {
				g.Expect(hook.ClientConfig.CABundle).To(Equal(s.Data["ca.crt"]))
			}
		}).WithTimeout(patience).Should(Succeed())
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
	}, SpecTimeout(2*patience))

	It("is RotateCA with Distrust, which rotates once although a replica is faster", func(ctx SpecContext) {
		runManager(ctx, manager())
		Expect(eirinix.NewManager(urlOptionsAt(namespace, 8443)).RotateCA(ctx, eirinix.RotateOptions{Distrust: true})).To(Succeed())
		s := secret(ctx, namespace)
		Expect(s.Annotations).To(HaveKeyWithValue("eirinix.cloudfoundry.org/distrust", "1"))
		Expect(s.Data["state.json"]).To(ContainSubstring(`"current": 2,`))
	}, SpecTimeout(2*patience))

	It("is followed in the lifetimes that a test has set", func(ctx SpecContext) {
		set := func(m *eirinix.ExtensionManager) *eirinix.ExtensionManager {
			eirinixtest.SetLifetimes(m, eirinixtest.Lifetimes{Leaf: time.Hour, Retain: 1500 * time.Millisecond})
			return m
		}
		m := set(manager())
		runManager(ctx, m)
		trusted := func() int {
			return strings.Count(string(configuration(ctx, m).Webhooks[0].ClientConfig.CABundle), "BEGIN")
		}
		conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", m.Addr().String())
		Expect(err).NotTo(HaveOccurred())
		Expect(time.Until(conn.(*tls.Conn).ConnectionState().PeerCertificates[0].NotAfter)).To(BeNumerically("~", time.Hour, 10*time.Minute))
		Expect(conn.Close()).To(Succeed())
		Expect(m.RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed())
		Expect(trusted()).To(Equal(2), "the old one is retained")
		Eventually(trusted).WithContext(ctx).WithTimeout(patience).Should(Equal(1))
		m.Stop()

		Expect(set(manager()).RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed(), "by a tool")
		Expect(trusted()).To(Equal(2), "the old one is retained")
		Eventually(func() int { // what nothing serves is pruned by RegisterExtensions
			Expect(set(manager(func(o *eirinix.ManagerOptions) { o.Port = 8443 })).RegisterExtensions()).To(Succeed())
			return trusted()
		}).WithContext(ctx).WithTimeout(patience).Should(Equal(1))
	}, SpecTimeout(3*patience))

	It("are several calls of RotateCA at a time, while the program is busy", func(ctx SpecContext) {
		m := manager()
		eirinixtest.SetLifetimes(m, eirinixtest.Lifetimes{Retain: time.Second})
		runManager(ctx, m)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				defer GinkgoRecover()
				Expect(m.RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed())
			})
		}
		rotated := make(chan struct{})
		go func() { all.Wait(); close(rotated) }()
		Eventually(func(g Gomega) {
			_, err := clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(ctx, configurationName(m), types.MergePatchType,
				fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, time.Now().UnixNano()), metav1.PatchOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(rotated).To(BeClosed())
		}).WithPolling(100 * time.Millisecond).WithTimeout(2 * patience).Should(Succeed())
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
	}, SpecTimeout(4*patience))
})

var _ = Describe("A trust store as ca.crt", Label("api-server"), func() {
	const others = 140
	var (
		namespace string
		options   eirinix.ManagerOptions
		issuer    issuer
	)
	BeforeEach(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		dir := GinkgoT().TempDir()
		issuer = newIssuer()
		files := issuer.issue()
		for range others {
			files["ca.crt"] = append(files["ca.crt"], newIssuer().CertificatePEM...)
		}
		write(dir, files)
		options = urlOptions(namespace)
		options.Certificates = eirinix.FromFiles(dir, "", "", "")
	})
	manager := func(steps int) *eirinix.ExtensionManager {
		GinkgoHelper()
		m := eirinix.NewManager(options)
		for n := range steps {
			Expect(m.AddExtension(eirinix.Mutation[*corev1.Pod]{
				ID: "step-" + fmt.Sprint(n), Settings: eirinix.Settings{Isolated: true},
				Apply: func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
					pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: mutated, Value: "was here"}}
					return nil
				},
			})).To(Succeed())
		}
		return m
	}

	It("gives the caBundle only the CA that verifies the served certificate", func(ctx SpecContext) {
		m := manager(12)
		runManager(ctx, m)
		for _, hook := range configuration(ctx, m).Webhooks {
			Expect(hook.ClientConfig.CABundle).To(Equal(issuer.CertificatePEM))
		}
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
	}, SpecTimeout(2*patience))

	It("is refused by RegisterExtensions, with size and remedy, where it is more than can be stored", func(ctx SpecContext) {
		options.Port = 8443
		Expect(manager(40).RegisterExtensions()).To(MatchError(And(ContainSubstring("141 CAs"), ContainSubstring("KB"), ContainSubstring("ca.crt"))))
	}, SpecTimeout(2*patience))
})
