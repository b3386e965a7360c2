package eirinix

import (
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2/dsl/core"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	"code.cloudfoundry.org/eirinix/internal/serving"
)

var _ = Describe("Following the certificate Secret", func() {
	var (
		cluster *fake.Clientset
		certs   *certificates
		served  func() []byte
	)
	newReplica := func() *certificates {
		return &certificates{
			store: &certsecret.Store{Secrets: cluster.CoreV1().Secrets("ns"), Namespace: "ns", Name: "crt"},
			leaf:  serving.NewLeaf([]string{"localhost"}, time.Hour, nil),
			setUp: true,
			log:   logr.Discard(),
		}
	}

	BeforeEach(func(ctx SpecContext) {
		cluster = fake.NewClientset()
		certs = newReplica()
		Expect(certs.obtain(ctx, false)).To(Succeed())
		served = func() []byte { return certs.leaf.Certificate().AuthorityKeyId }
	})

	It("puts the CA back that it holds when the Secret is gone", func(ctx SpecContext) {
		before := certs.state.Bundle()
		Expect(cluster.CoreV1().Secrets("ns").Delete(ctx, "crt", metav1.DeleteOptions{})).To(Succeed())
		Expect(certs.reread(ctx)).To(HaveField("Bundle()", Equal(before)))
		Expect(newReplica().store.Load(ctx)).To(HaveField("Bundle()", Equal(before)))
	})

	It("signs with the next CA only where the API server trusts it", func(ctx SpecContext) {
		first := certs.state
		registered := func(bundle []byte) []ca.Registered { return []ca.Registered{{Name: "hook", Bundle: bundle}} }
		staged, err := certs.store.Stage(ctx, first)
		Expect(err).NotTo(HaveOccurred())
		Expect(certs.adoptIfTrusted(staged, registered(first.Bundle()), time.Now())).To(Succeed())
		old := served()
		active, err := certs.store.Activate(ctx, staged)
		Expect(err).NotTo(HaveOccurred())

		stranger := newReplica()
		stranger.store.Name = "other"
		Expect(stranger.obtain(ctx, false)).To(Succeed())
		mixed := append(registered(active.Bundle()), registered(ca.Bundle(first.Bundle(), stranger.state.Bundle()))...)
		Expect(certs.adoptIfTrusted(stranger.state, mixed, time.Now())).To(Succeed())
		Expect(served()).To(Equal(old), "one configuration does not trust it")

		Expect(certs.adoptIfTrusted(active, registered(first.Bundle()), time.Now())).To(Succeed())
		Expect(served()).NotTo(Equal(old), "the old CA has signed the new one, so that its certificates are good already")
	})
})
