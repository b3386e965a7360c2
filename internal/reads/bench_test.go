package reads

import (
	"context"
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func BenchmarkLookup(b *testing.B) {
	set, err := New(clientgoscheme.Scheme, []Step{{"hosts", []Declaration{{
		Object: &networkingv1.Ingress{}, Kind: networkingv1.SchemeGroupVersion.WithKind("Ingress"),
		Index: map[string]client.IndexerFunc{"host": hosts},
		Keep: func(o client.Object) {
			i := o.(*networkingv1.Ingress)
			*i = networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: i.Name}, Spec: networkingv1.IngressSpec{Rules: i.Spec.Rules}}
		},
	}}}}, logr.Discard(), nil)
	if err != nil {
		b.Fatal(err)
	}
	src := set.sources[0]
	var all []any
	for i := range 100_000 {
		all = append(all, &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("team-", i%100), Name: fmt.Sprint("shop-", i)}, Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: fmt.Sprint("shop-", i, ".example.com")}}}})
	}
	if err := src.Replace(all, "1"); err != nil {
		b.Fatal(err)
	}
	r := set.Snapshot(nil).Reader("hosts")
	fieldsOf := make([]client.ListOption, 1024)
	for i := range fieldsOf {
		fieldsOf[i] = client.MatchingFields{"host": fmt.Sprint("shop-", i*97, ".example.com")}
	}
	b.Run("List", func(b *testing.B) {
		b.ReportAllocs()
		var list networkingv1.IngressList
		for i := 0; b.Loop(); i++ {
			if err := r.List(context.Background(), &list, fieldsOf[i%1024]); err != nil || len(list.Items) != 1 {
				b.Fatal(err, len(list.Items))
			}
		}
	})
	b.Run("Nothing", func(b *testing.B) {
		b.ReportAllocs()
		var list networkingv1.IngressList
		for b.Loop() {
			if err := r.List(context.Background(), &list, client.MatchingFields{"host": "none.example.com"}); err != nil || len(list.Items) != 0 {
				b.Fatal(err, len(list.Items))
			}
		}
	})
	b.Run("DeepCopy", func(b *testing.B) {
		b.ReportAllocs()
		o := all[7]
		_ = o
		i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "team-1", Name: "shop-1"}, Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "shop"}}}}
		for b.Loop() {
			_ = i.DeepCopy()
		}
	})
}

func hosts(o client.Object) (all []string) {
	for _, r := range o.(*networkingv1.Ingress).Spec.Rules {
		all = append(all, r.Host)
	}
	return all
}
