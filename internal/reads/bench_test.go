package reads

// This file holds what a lookup by an index costs.

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hosts are the values of the index in specs.
func hosts(o client.Object) (all []string) {
	ingress, ok := o.(*networkingv1.Ingress)
	if !ok {
		return nil
	}
	for _, r := range ingress.Spec.Rules {
		all = append(all, r.Host)
	}
	return all
}

func hostOf(n int) string { return fmt.Sprintf("shop-%d.example.com", n) }

func newIngress(n int) *networkingv1.Ingress {
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("team-", n%100), Name: fmt.Sprint("shop-", n)},
		Spec:       networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: hostOf(n)}}},
	}
}

// readerOfIngresses returns a Reader of that many Ingresses, with an index.
func readerOfIngresses(count int) *Reader {
	set := setOf(Declaration{
		Object: &networkingv1.Ingress{}, Kind: networkingv1.SchemeGroupVersion.WithKind("Ingress"), Index: map[string]client.IndexerFunc{"host": hosts},
	})
	all := make([]client.Object, 0, count)
	for n := range count {
		all = append(all, newIngress(n))
	}
	listed(set.sources[0], all...)
	return set.Snapshot(context.Background()).Reader("step")
}

// leastAllocations returns the allocations of the cheapest of many runs. A sync.Pool is emptied by the garbage collector,
// and under the race detector it drops a part of what it is given, at random.
func leastAllocations(f func()) float64 {
	least := testing.AllocsPerRun(1, f)
	for range 100 {
		least = min(least, testing.AllocsPerRun(1, f))
	}
	return least
}

var _ = Describe("A lookup", func() {
	It("takes no memory but that of its result", func() {
		r := readerOfIngresses(1000)
		var list networkingv1.IngressList
		ctx := context.Background()
		allocations := func(options ...client.ListOption) float64 {
			return leastAllocations(func() { _ = r.List(ctx, &list, options...) })
		}
		Expect(allocations(client.MatchingFields{"host": "none.example.com"})).To(BeZero())
		Expect(allocations(client.MatchingFields{"host": hostOf(7)}, client.InNamespace("team-8"))).To(BeZero())

		var one networkingv1.Ingress
		text, err := newIngress(7).Marshal()
		Expect(err).NotTo(HaveOccurred())
		decoding := leastAllocations(func() {
			one = networkingv1.Ingress{}
			_ = one.Unmarshal(text)
		})
		Expect(allocations(client.MatchingFields{"host": hostOf(7)})).To(Equal(decoding + 1)) // the list's Items
		Expect(list.Items).To(HaveExactElements(HaveField("Name", "shop-7")))
		Expect(leastAllocations(func() {
			_ = r.Get(ctx, client.ObjectKey{Namespace: "team-7", Name: "shop-7"}, &one)
		})).To(Equal(decoding))
	})
})
