package eirinix

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"code.cloudfoundry.org/eirinix/internal/certsecret"
	"code.cloudfoundry.org/eirinix/internal/serving"
)

var _ = Describe("Following the certificate Secret", func() {
	var (
		cluster *fake.Clientset
		certs   *certificates
		served  func() []byte
	)
	published := func(context.Context, *certsecret.State) error { return nil }
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
		Expect(certs.follow(ctx, published)).To(Succeed())
		Expect(newReplica().store.Load(ctx)).To(HaveField("Bundle()", Equal(before)))
	})

	It("signs with another CA only after the API server trusts it", func(ctx SpecContext) {
		other := newReplica()
		other.store.Name = "other"
		Expect(other.obtain(ctx, false)).To(Succeed())
		theirs, err := cluster.CoreV1().Secrets("ns").Get(ctx, "other", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		ours, err := cluster.CoreV1().Secrets("ns").Get(ctx, "crt", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		ours.Data = theirs.Data
		_, err = cluster.CoreV1().Secrets("ns").Update(ctx, ours, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())

		before := served()
		notYet := errors.New("not published")
		Expect(certs.follow(ctx, func(context.Context, *certsecret.State) error {
			Expect(served()).To(Equal(before), "signed before it is trusted")
			return notYet
		})).To(MatchError(notYet))
		Expect(served()).To(Equal(before))

		Expect(certs.follow(ctx, published)).To(Succeed())
		Expect(served()).NotTo(Equal(before))
	})
})
