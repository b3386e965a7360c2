package rotation_test

// This file is about conversions under load. It holds a kind that is stored in v1 and asked for in v2, the program's
// conversion of it, and the load: reads, writes and watches of shops, through every API server.

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"code.cloudfoundry.org/eirinix/conversion"
	"code.cloudfoundry.org/eirinix/internal/ca"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/testing/internal/load"
)

var _ = Describe("Objects that are stored in one version and asked for in another", func() {
	It("are read, written and watched without a failure while CAs rotate, replicas go and API servers freeze", Label("soak"), func(ctx SpecContext) {
		// A request converts with the caBundle that it began with. So the old CA stays trusted for longer than a request
		// takes, also on a busy machine and while its API server is frozen.
		s := deployShops(ctx, lifetimes{CA: time.Hour, Leaf: time.Minute, Retain: 20 * time.Second})
		t := startTraffic(ctx, s, time.Second)
		for n := range max(1, rotations(5)/5) {
			s.request(ctx, fmt.Sprint("request ", n))
			for server := range servers {
				freeze(server, func() { t.ExpectMore(ctx, 5) }) // briefly: a handshake waits for ten seconds at most
			}
			s.replace(ctx, func(first *replica) { s.kill(ctx, first) })
			s.settle(ctx)
			t.ExpectMore(ctx, 20)
			Expect(t.Failures()).To(BeEmpty())
		}
		t.finish(ctx)
		Expect(t.Failures()).To(BeEmpty())
		Expect(t.writes.Failures()).To(BeEmpty())
		Expect(s.balancer.Unserved.Load()).To(BeZero(), "connections without a replica")
	}, SpecTimeout(4*time.Hour))
})

// The versions of shops. In v1 a price is one text, "12 EUR"; in v2 it is a number and a currency. The remark exists in
// v2 alone.
const (
	stored = "v1"
	asked  = "v2"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// shops is the definition of a deployment's kind.
type shops struct {
	*deployment
	group   string
	clients []dynamic.Interface // of each API server
}

// deployShops starts a program that converts shops.
func deployShops(ctx context.Context, rotation lifetimes) *shops {
	GinkgoHelper()
	d := deploy(ctx, 0, rotation)
	s := &shops{deployment: d, group: d.namespace + ".example.com"}
	for _, server := range servers {
		config := server.Config()
		config.QPS = -1
		s.clients = append(s.clients, Must(dynamic.NewForConfig(config)))
	}
	crds := s.clients[0].Resource(definitions)
	Must(crds.Create(ctx, s.definition(), metav1.CreateOptions{}))
	DeferCleanup(func(ctx context.Context) error { return crds.Delete(ctx, s.name(), metav1.DeleteOptions{}) })
	d.more = []any{s.conversion()}
	d.scale(ctx, 2)
	s.settle(ctx)
	return s
}

func (s *shops) name() string { return "shops." + s.group }

func (s *shops) definition() *unstructured.Unstructured {
	version := func(name string, properties map[string]any) map[string]any {
		return map[string]any{
			"name": name, "served": true, "storage": name == stored,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": properties}},
		}
	}
	text := map[string]any{"type": "string"}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": s.name()},
		"spec": map[string]any{
			"group": s.group, "scope": "Namespaced",
			"names": map[string]any{"kind": "Shop", "plural": "shops", "singular": "shop", "listKind": "ShopList"},
			"versions": []any{
				version(stored, map[string]any{"price": text, "note": text}),
				version(asked, map[string]any{"amount": map[string]any{"type": "integer"}, "currency": text, "note": text, "remark": text}),
			},
		},
	}}
}

// conversion loses the remark on the way to v1, so that the library keeps it.
func (s *shops) conversion() conversion.Of[*unstructured.Unstructured] {
	return conversion.Of[*unstructured.Unstructured]{
		CRD: s.name(), Version: stored,
		Spokes: []conversion.Spoke[*unstructured.Unstructured]{conversion.NewSpoke(asked,
			func(ctx context.Context, from *unstructured.Unstructured) (*unstructured.Unstructured, error) {
				s.called(ctx)
				from.Object["price"] = fmt.Sprintf("%v %v", from.Object["amount"], from.Object["currency"])
				for _, member := range []string{"amount", "currency", "remark"} {
					delete(from.Object, member)
				}
				return from, nil
			},
			func(ctx context.Context, from *unstructured.Unstructured) (*unstructured.Unstructured, error) {
				s.called(ctx)
				var amount int64
				var currency string
				if _, err := fmt.Sscanf(fmt.Sprint(from.Object["price"]), "%d %s", &amount, &currency); err != nil {
					return nil, err
				}
				delete(from.Object, "price")
				from.Object["amount"], from.Object["currency"] = amount, currency
				return from, nil
			},
		)},
	}
}

// at returns a client of the shops of one version.
func (s *shops) at(server int, version string) dynamic.ResourceInterface {
	return s.clients[server].Resource(schema.GroupVersionResource{Group: s.group, Version: version, Resource: "shops"}).Namespace(s.objects)
}

// settle waits until one CA stands everywhere and nothing is due.
func (s *shops) settle(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		state := s.deployment.settle(ctx)
		crd, err := s.clients[0].Resource(definitions).Get(ctx, s.name(), metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		text, _, err := unstructured.NestedString(crd.Object, "spec", "conversion", "webhook", "clientConfig", "caBundle")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(ca.EqualBundles(Must(base64.StdEncoding.DecodeString(text)), state.Bundle())).To(BeTrue())
	}).WithContext(ctx).Should(Succeed())
}

// content returns the members that a shop has in a version after n writes. Each write in v2, every other, sets the remark.
func content(version, name string, n int64) map[string]any {
	note := fmt.Sprintf("%s, write %d", name, n)
	if version == stored {
		return map[string]any{"price": fmt.Sprintf("%d EUR", n), "note": note}
	}
	c := map[string]any{"amount": n, "currency": "EUR", "note": note}
	if n > 0 {
		c["remark"] = fmt.Sprintf("of write %d", n-(n+1)%2)
	}
	return c
}

// complete returns how often a shop was written, or an error if it is not as that write leaves it in this version.
func complete(o *unstructured.Unstructured, version string) (n int64, err error) {
	found := maps.Clone(o.Object)
	for _, member := range []string{"apiVersion", "kind", "metadata"} {
		delete(found, member)
	}
	if _, err := fmt.Sscanf(fmt.Sprint(found["note"]), o.GetName()+", write %d", &n); err != nil {
		return 0, fmt.Errorf("%s: %w", o.GetName(), err)
	}
	if expected := content(version, o.GetName(), n); !equality.Semantic.DeepEqual(found, expected) || o.GroupVersionKind().Version != version {
		return 0, fmt.Errorf("%s is %v instead of %v of %s", o.GetName(), o.Object, expected, version)
	}
	return n, nil
}

// shopsPerServer is how many shops are written through one API server.
const shopsPerServer = 3

func shopName(server, i int) string {
	return fmt.Sprintf("shop-%d-%d", server%len(servers), i%shopsPerServer)
}

// readings are the kinds of reads. Each sees that all that it reads is complete.
var readings = []struct {
	name string
	read func(ctx context.Context, s *shops, server, turn int) error
}{
	{"GET", func(ctx context.Context, s *shops, server, turn int) error { return s.get(ctx, server, turn, asked) }},
	{"GET in the stored version", func(ctx context.Context, s *shops, server, turn int) error { return s.get(ctx, server, turn, stored) }},
	{"LIST", func(ctx context.Context, s *shops, server, _ int) error { return s.list(ctx, server) }},
}

func (s *shops) get(ctx context.Context, server, turn int, version string) error {
	o, err := s.at(server, version).Get(ctx, shopName(turn, turn/len(servers)), metav1.GetOptions{})
	if err != nil {
		return err
	}
	_, err = complete(o, version)
	return err
}

// list reads all shops in v2.
func (s *shops) list(ctx context.Context, server int) error {
	all, err := s.at(server, asked).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range all.Items {
		if _, err := complete(&all.Items[i], asked); err != nil {
			return err
		}
	}
	if want := len(servers) * shopsPerServer; len(all.Items) != want {
		return fmt.Errorf("%d shops were read instead of %d", len(all.Items), want)
	}
	return nil
}

// traffic reads, writes and watches shops. A watch is that of an informer, which must end up with the last write of each.
type traffic struct {
	*load.Stream // of the reads
	shops        *shops
	writes       *load.Stream
	stores       []cache.Store

	mu    sync.Mutex
	wrote map[string]int64 // by shop: the writes so far
}

// startTraffic has so much time between two calls of one kind through one API server.
func startTraffic(ctx context.Context, s *shops, pace time.Duration) *traffic {
	GinkgoHelper()
	t := &traffic{Stream: load.NewStream(), writes: load.NewStream(), shops: s, wrote: map[string]int64{}}
	for server := range servers {
		for i := range shopsPerServer {
			o := &unstructured.Unstructured{Object: content(stored, shopName(server, i), 0)}
			o.SetAPIVersion(s.group + "/" + stored)
			o.SetKind("Shop")
			o.SetName(shopName(server, i))
			Eventually(func() error {
				_, err := s.at(server, stored).Create(ctx, o, metav1.CreateOptions{})
				return err
			}).WithContext(ctx).Should(Succeed())
			t.wrote[o.GetName()] = 0
		}
	}
	for server := range servers {
		for _, r := range readings {
			Eventually(r.read).WithArguments(ctx, s, server, 0).WithContext(ctx).Should(Succeed(), r.name)
		}
	}
	s.balancer.Unserved.Store(0) // the canary of the first replica may have come before its endpoint
	for server := range servers {
		client := s.at(server, asked)
		store := cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)
		t.stores = append(t.stores, store)
		source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return client.Watch(ctx, o) },
		}, client)
		t.Run(func(ctx context.Context) {
			cache.NewReflector(source, &unstructured.Unstructured{}, store, 0).RunWithContext(ctx)
		})
		for _, r := range readings {
			t.Send(r.name+" "+serverName(server), pace, few, func(ctx context.Context, turn int) error { return r.read(ctx, s, server, turn) })
		}
		t.writes.Send("write "+serverName(server), pace/2, 1, func(ctx context.Context, turn int) error {
			return t.write(ctx, server, shopName(server, turn))
		})
	}
	return t
}

// write writes a shop once more, in the versions by turns. A write that failed may have been done.
func (t *traffic) write(ctx context.Context, server int, name string) error {
	n := t.allWrites()[name] + 1
	version := []string{stored, asked}[n%2]
	client := t.shops.at(server, version)
	o, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	found, err := complete(o, version)
	if err != nil {
		return err
	}
	if found == n-1 {
		maps.Copy(o.Object, content(version, name, n))
		_, err = client.Update(ctx, o, metav1.UpdateOptions{})
	} else if found != n {
		err = fmt.Errorf("it is of write %d instead of %d", found, n-1)
	}
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wrote[name] = n
	return nil
}

// allWrites is how often each shop was written.
func (t *traffic) allWrites() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.wrote)
}

// finish ends the load, after every watch has seen the last writes.
func (t *traffic) finish(ctx context.Context) {
	GinkgoHelper()
	t.writes.End()
	for _, store := range t.stores {
		Eventually(func() (map[string]int64, error) {
			seen := map[string]int64{}
			var all []error
			for _, o := range store.List() {
				n, err := complete(o.(*unstructured.Unstructured), asked)
				seen[o.(*unstructured.Unstructured).GetName()] = n
				all = append(all, err)
			}
			return seen, errors.Join(all...)
		}).WithContext(ctx).Should(Equal(t.allWrites()))
	}
	t.End()
	b := t.shops.balancer
	AddReportEntry(fmt.Sprintf("%d reads and %d writes, %d and %d failed; %d conversions, %d handshakes",
		t.Total(), t.writes.Total(), len(t.Failures()), len(t.writes.Failures()), t.shops.calls.Load(), b.Handshakes.Load()), ReportEntryVisibilityAlways)
	Expect(b.Resumed.Load()).To(BeZero(), "handshakes without a certificate")
	Expect(b.Handshakes.Load()).To(BeNumerically(">", t.writes.Total()), "calls without a handshake of their own")
}
