package rotation_test

import (
	"fmt"
	"os"
	"path/filepath"
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
