package rotation_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/ca"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// issued returns an issuer's serving certificate, key and CA, by the names that cert-manager has for them.
func (d *deployment) issued(authority *ca.Authority) map[string][]byte {
	GinkgoHelper()
	service := serviceName + "." + d.namespace + ".svc"
	certificate := Must(authority.SignServing([]string{service, service + ".cluster.local"}, time.Hour, time.Now()))
	return map[string][]byte{
		"tls.crt": ca.EncodeCertificate(certificate.Leaf),
		"tls.key": PKCS8(certificate.PrivateKey),
		"ca.crt":  authority.CertificatePEM,
	}
}

func newIssuer(name string) *ca.Authority {
	GinkgoHelper()
	return Must(ca.New(name, time.Hour, time.Now()))
}

var _ = Describe("Certificates from elsewhere", func() {
	// A CA that another replica may still use stays trusted for longer than any rollout here takes.
	rotation := lifetimes{CA: time.Hour, Leaf: time.Minute, Retain: 15 * time.Second}
	const secretName = "issued"

	put := func(ctx context.Context, d *deployment, data map[string][]byte) {
		GinkgoHelper()
		secrets := clientsOf(0).CoreV1().Secrets(d.namespace)
		wanted := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName}, Type: corev1.SecretTypeTLS, Data: data}
		_, err := secrets.Update(ctx, wanted, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = secrets.Create(ctx, wanted, metav1.CreateOptions{})
		}
		Expect(err).NotTo(HaveOccurred())
	}
	// mount replaces all files at once, as the kubelet does.
	mount := func(dir string, n int, data map[string][]byte) {
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
	// trusts waits until the caBundles hold these CAs, and no others.
	trusts := func(ctx context.Context, d *deployment, authorities ...*ca.Authority) {
		GinkgoHelper()
		var wanted []byte
		for _, a := range authorities {
			wanted = ca.Bundle(wanted, a.CertificatePEM)
		}
		Eventually(func(g Gomega) {
			bundles, err := d.bundles(ctx, clientsOf(0))
			g.Expect(err).NotTo(HaveOccurred())
			for _, bundle := range bundles {
				g.Expect(ca.EqualBundles(bundle, wanted)).To(BeTrue(), "the caBundle holds %d CAs", len(ca.SplitBundle(bundle)))
			}
		}).WithContext(ctx).WithPolling(50 * time.Millisecond).Should(Succeed())
	}

	It("may be renewed by another CA each time without a failed admission", func(ctx SpecContext) {
		d := deploy(ctx, 0, rotation)
		last := newIssuer("issuer-0")
		put(ctx, d, d.issued(last))
		d.source = eirinix.FromSecret("", secretName)
		for n := range 3 {
			d.start(ctx, n%len(servers))
		}
		l := startLoad(ctx, d, few)
		const renewals = 6
		for n := range renewals {
			next := newIssuer(fmt.Sprintf("issuer-%d", n+1))
			put(ctx, d, d.issued(next))
			for _, r := range d.replicas {
				Eventually(func() ([]byte, error) { return IssuerAt(r.Addr()) }).WithContext(ctx).Should(Equal(next.Certificate.SubjectKeyId), r.name)
			}
			Expect(l.failing()).To(BeEmpty(), "after %d renewals", n+1)
			last = next
		}
		trusts(ctx, d, last)
		d.expectNoFailure(l, fmt.Sprintf("%d renewals by another CA", renewals))
	}, SpecTimeout(10*patience))

	It("may take the place of our own, and of each other, in rollouts", func(ctx SpecContext) {
		d := deploy(ctx, 3, rotation)
		l := startLoad(ctx, d, few)
		files, secret := newIssuer("files"), newIssuer("secret")
		dir := GinkgoT().TempDir()
		mount(dir, 0, d.issued(files))
		put(ctx, d, d.issued(secret))
		rollout := func(source eirinix.CertificateSource) {
			GinkgoHelper()
			By(fmt.Sprintf("rolling out %v", source))
			d.source = source
			for range d.replicas {
				d.replace(ctx, d.replicas[0])
			}
			Expect(l.failing()).To(BeEmpty(), "after the rollout of %v", source)
		}
		rollout(eirinix.FromFiles(dir, "", "", ""))
		rollout(nil)
		rollout(eirinix.FromSecret(d.namespace, secretName))
		rollout(eirinix.FromFiles(dir, "", "", ""))

		By("remounting")
		renewed := newIssuer("files-2")
		mount(dir, 1, d.issued(renewed))
		trusts(ctx, d, renewed)
		for _, r := range d.replicas {
			Expect(IssuerAt(r.Addr())).To(Equal(renewed.Certificate.SubjectKeyId))
		}
		d.expectNoFailure(l, "4 rollouts from one source of certificates to another")
	}, SpecTimeout(10*patience))
})
