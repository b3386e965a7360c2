package rotation_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/ca"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/testing/internal/load"
)

var _ = Describe("Objects that are stored in one version and asked for in another", func() {
	It("are read, written and watched without a failure while CAs rotate, replicas go and API servers freeze", Label("soak"), func(ctx SpecContext) {
		// A request converts with the caBundle that it began with. So the old CA stays trusted for longer than a request
		// takes, also on a busy machine and while its API server is frozen. A rotation waits for most of its time, so
		// several programs rotate their CAs at once.
		lives := lifetimes{CA: time.Hour, Leaf: time.Minute, Retain: 20 * time.Second}
		all := rotations(2)
		var loads []*traffic
		for range min(all, 5) {
			loads = append(loads, startTraffic(ctx, deployShops(ctx, lives), time.Second))
		}
		var rotating sync.WaitGroup
		var still sync.RWMutex // no replica goes while an API server is frozen
		for i, t := range loads {
			rotating.Go(func() {
				defer GinkgoRecover()
				s := t.shops
				for n := i; n < all; n += len(loads) {
					Expect(s.replicas[n%len(s.replicas)].RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed())
					still.RLock()
					old := s.replicas[0]
					s.start(ctx, old.server)
					if n%2 == 0 {
						s.retire(old)
					} else {
						s.kill(ctx, old)
					}
					still.RUnlock()
					s.settle(ctx)
					Expect(t.Failures()).To(BeEmpty())
				}
			})
		}
		ended := make(chan struct{})
		go func() { rotating.Wait(); close(ended) }()
		for server := 0; ; server = (server + 1) % len(servers) {
			still.Lock()
			freeze(server, func() { loads[0].ExpectMore(ctx, 5) }) // briefly: a handshake waits for ten seconds at most
			still.Unlock()
			for _, t := range loads {
				t.ExpectMore(ctx, 20)
				Expect(t.Failures()).To(BeEmpty())
			}
			select {
			case <-ended:
				for _, t := range loads {
					t.finish(ctx)
					Expect(t.Failures()).To(BeEmpty())
					Expect(t.writes.Failures()).To(BeEmpty())
					Expect(t.shops.balancer.Unserved.Load()).To(BeZero(), "connections without a replica")
				}
				return
			default:
			}
		}
	}, SpecTimeout(4*time.Hour))
})

var _ = Describe("Damage under the load of conversions", func() {
	It("is healed, and fails no read where the API server can still call the webhook", func(ctx SpecContext) {
		s := deployShops(ctx, lifetimes{CA: time.Hour, Leaf: 30 * time.Second, Retain: 2 * time.Second})
		t := startTraffic(ctx, s, 5*every)
		foreign := base64.StdEncoding.EncodeToString(foreignState().Bundle())
		for _, f := range []struct {
			fault
			calls bool // the API server can still call the webhook
		}{
			{calls: true, fault: fault{"the Secret deleted", func() error {
				return clientsOf(0).CoreV1().Secrets(s.namespace).Delete(ctx, s.secret(), metav1.DeleteOptions{})
			}}},
			{fault: fault{"the caBundle of another program", func() error {
				return s.patch(ctx, `{"webhook":{"clientConfig":{"caBundle":"`+foreign+`"}}}`)
			}}},
			{fault: fault{"another address", func() error {
				return s.patch(ctx, `{"webhook":{"clientConfig":{"service":null,"url":"https://127.0.0.1:1/convert"}}}`)
			}}},
		} {
			By(f.name)
			s.settle(ctx)
			whole, before, err := s.registered(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(f.inflict()).To(Succeed())
			Eventually(func() (map[string]any, error) {
				now, _, err := s.registered(ctx)
				return now, err
			}).WithContext(ctx).Should(Equal(whole), f.name)
			s.settle(ctx)
			t.expectReads(ctx)
			t.writes.ExpectMore(ctx, 2*shopsPerServer)
			_, writes, err := s.registered(ctx)
			Expect(err).NotTo(HaveOccurred())
			if f.calls {
				Expect(t.Failures()).To(BeEmpty(), f.name)
				Expect(writes).To(Equal(before), "writes of the definition")
			} else {
				Expect(writes-before).To(BeNumerically("<=", 1+maxWrites), "writes of the definition, with the damage: %s", f.name)
			}
		}
		t.finish(ctx)
	}, SpecTimeout(10*patience))
})

// issued returns an issuer's serving certificate, key and CA, by the names that cert-manager has for them.
func (d *deployment) issued(authority *ca.Authority) map[string][]byte {
	GinkgoHelper()
	service := load.ServiceName + "." + d.namespace + ".svc"
	certificate := Must(authority.SignServing([]string{service, service + ".cluster.local"}, time.Hour, time.Now()))
	return map[string][]byte{
		"tls.crt": ca.EncodeCertificate(certificate.Leaf),
		"tls.key": PKCS8(certificate.PrivateKey),
		"ca.crt":  authority.CertificatePEM,
	}
}

// mount replaces all files at once, as the kubelet does.
func mount(dir string, n int, data map[string][]byte) {
	GinkgoHelper()
	version := fmt.Sprintf("..version-%d", n)
	Expect(os.Mkdir(filepath.Join(dir, version), 0o700)).To(Succeed())
	for name, text := range data {
		Expect(os.WriteFile(filepath.Join(dir, version, name), text, 0o600)).To(Succeed())
		if link := filepath.Join(dir, name); n == 0 {
			Expect(os.Symlink(filepath.Join("..data", name), link)).To(Succeed())
		}
	}
	Expect(os.Symlink(version, filepath.Join(dir, "..data_tmp"))).To(Succeed())
	Expect(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))).To(Succeed())
}

var _ = Describe("Certificates from elsewhere", func() {
	It("may take the place of our own, and of each other, in rollouts and renewals by another CA", func(ctx SpecContext) {
		// A CA that another replica may still use stays trusted for longer than any rollout here takes.
		d := deploy(ctx, 2, lifetimes{CA: time.Hour, Leaf: time.Minute, Retain: 15 * time.Second})
		l := d.startLoad(ctx, few)
		issuer := func(name string) *ca.Authority { return Must(ca.New(name, time.Hour, time.Now())) }
		// serves waits until all replicas have a certificate of the issuer.
		serves := func(from *ca.Authority) {
			GinkgoHelper()
			for _, r := range d.replicas {
				Eventually(IssuerAt).WithArguments(r.Addr()).WithContext(ctx).Should(Equal(from.Certificate.SubjectKeyId), r.Name)
			}
			Expect(l.Failures()).To(BeEmpty())
		}
		dir := GinkgoT().TempDir()
		files, inSecret := issuer("files"), issuer("secret")
		mount(dir, 0, d.issued(files))
		secrets := clientsOf(0).CoreV1().Secrets(d.namespace)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "issued"}, Type: corev1.SecretTypeTLS, Data: d.issued(inSecret)}
		Must(secrets.Create(ctx, secret, metav1.CreateOptions{}))

		By("rolling out files, our own and a Secret")
		d.source = eirinix.FromFiles(dir, "", "", "")
		d.replace(ctx)
		serves(files)
		d.source = nil
		d.replace(ctx)
		serves(Must(Must(d.store().Load(ctx)).Current()))
		d.source = eirinix.FromSecret(d.namespace, secret.Name)
		d.replace(ctx)
		serves(inSecret)

		By("renewing the Secret, each time by another CA")
		for n := range 2 {
			next := issuer(fmt.Sprint("secret-", n))
			secret.Data = d.issued(next)
			Must(secrets.Update(ctx, secret, metav1.UpdateOptions{}))
			serves(next)
		}

		By("rolling out files, and remounting them")
		d.source = eirinix.FromFiles(dir, "", "", "")
		d.replace(ctx)
		renewed := issuer("files-2")
		mount(dir, 1, d.issued(renewed))
		serves(renewed)
		d.trusts(ctx, renewed.CertificatePEM)
		l.expectNoFailure("4 rollouts from one source of certificates to another")
	}, SpecTimeout(10*patience))
})
