package rotation_test

// This file holds a kind that is stored in v1 and asked for in v2, and the program's conversion of it.

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"reflect"

	"code.cloudfoundry.org/eirinix/conversion"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// The versions of shops. In v1 a price is one text, "12 EUR"; in v2 it is a number and a currency. The remark exists in
// v2 alone.
const (
	stored = "v1"
	asked  = "v2"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// shops is the definition of a deployment's kind.
type shops struct {
	deployment *deployment
	group      string
	clients    []dynamic.Interface // of each API server
}

// dynamicOf returns a client of one API server, which does not slow itself down.
func dynamicOf(server int) dynamic.Interface {
	GinkgoHelper()
	config := servers[server].Config()
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return client
}

// deployShops starts a program that converts shops, with that many replicas.
func deployShops(ctx context.Context, replicas int, rotation lifetimes) *shops {
	GinkgoHelper()
	d := deploy(ctx, 0, rotation)
	s := &shops{deployment: d, group: d.namespace + ".example.com"}
	for n := range servers {
		s.clients = append(s.clients, dynamicOf(n))
	}
	crds := s.clients[0].Resource(definitions)
	_, err := crds.Create(ctx, s.definition(), metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		Expect(crds.Delete(ctx, s.name(), metav1.DeleteOptions{})).To(Succeed())
	})
	d.more = []any{s.conversion()}
	for n := range replicas {
		d.start(ctx, n%len(servers))
	}
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
	crd := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": s.group, "scope": "Namespaced",
		"names": map[string]any{"kind": "Shop", "plural": "shops", "singular": "shop", "listKind": "ShopList"},
		"versions": []any{
			version(stored, map[string]any{"price": text, "note": text}),
			version(asked, map[string]any{"amount": map[string]any{"type": "integer"}, "currency": text, "note": text, "remark": text}),
		},
	}}}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName(s.name())
	return crd
}

// conversion loses the remark on the way to v1, so that the library keeps it.
func (s *shops) conversion() conversion.Of[*unstructured.Unstructured] {
	return conversion.Of[*unstructured.Unstructured]{
		CRD: s.name(), Version: stored,
		Spokes: []conversion.Spoke[*unstructured.Unstructured]{conversion.NewSpoke(asked,
			func(_ context.Context, from *unstructured.Unstructured) (*unstructured.Unstructured, error) {
				s.deployment.calls.Add(1)
				from.Object["price"] = fmt.Sprintf("%v %v", from.Object["amount"], from.Object["currency"])
				delete(from.Object, "amount")
				delete(from.Object, "currency")
				delete(from.Object, "remark")
				return from, nil
			},
			func(_ context.Context, from *unstructured.Unstructured) (*unstructured.Unstructured, error) {
				s.deployment.calls.Add(1)
				amount, currency, err := priceOf(from)
				if err != nil {
					return nil, err
				}
				delete(from.Object, "price")
				from.Object["amount"], from.Object["currency"] = amount, currency
				return from, nil
			},
		)},
	}
}

func priceOf(o *unstructured.Unstructured) (amount int64, currency string, err error) {
	price, _, err := unstructured.NestedString(o.Object, "price")
	if err != nil {
		return 0, "", err
	}
	if _, err := fmt.Sscanf(price, "%d %s", &amount, &currency); err != nil {
		return 0, "", fmt.Errorf("price %q is no amount with a currency", price)
	}
	return amount, currency, nil
}

// at returns a client of the shops of one version.
func (s *shops) at(server int, version string) dynamic.ResourceInterface {
	return s.clients[server].Resource(schema.GroupVersionResource{Group: s.group, Version: version, Resource: "shops"}).Namespace(s.deployment.objects)
}

// generation is the number of writes after which a shop that comes and goes is deleted and created anew.
const generation = 10

// comesAndGoes reports whether a shop is deleted now and then.
func comesAndGoes(name string) bool { return name[0] == 'p' }

// writtenIn returns the version in which a shop is written the nth time.
func writtenIn(n int64) string {
	if n%2 == 0 {
		return stored
	}
	return asked
}

// content returns the members that a shop has in a version after n writes. Each write in v2 sets the remark.
func content(version, name string, n int64) map[string]any {
	note := fmt.Sprintf("%s, write %d", name, n)
	if version == stored {
		return map[string]any{"price": fmt.Sprintf("%d EUR", n), "note": note}
	}
	c := map[string]any{"amount": n, "currency": "EUR", "note": note}
	first := int64(0)
	if comesAndGoes(name) {
		first = n - n%generation
	}
	if last := n - (n+1)%2; last > first {
		c["remark"] = fmt.Sprintf("of write %d", last)
	}
	return c
}

// shop returns a shop as its first write leaves it.
func (s *shops) shop(name string, n int64) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: content(stored, name, n)}
	o.SetAPIVersion(s.group + "/" + stored)
	o.SetKind("Shop")
	o.SetName(name)
	return o
}

// complete returns how often a shop was written, or an error if it is not what that write leaves in this version.
func (s *shops) complete(o *unstructured.Unstructured, version string) (n int64, err error) {
	if o.GetAPIVersion() != s.group+"/"+version || o.GetKind() != "Shop" {
		return 0, fmt.Errorf("%s is a %s of %s", o.GetName(), o.GetKind(), o.GetAPIVersion())
	}
	if version == stored {
		n, _, err = priceOf(o)
	} else {
		n, _, err = unstructured.NestedInt64(o.Object, "amount")
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", o.GetName(), err)
	}
	found := maps.Clone(o.Object)
	for _, member := range []string{"apiVersion", "kind", "metadata"} {
		delete(found, member)
	}
	if expected := content(version, o.GetName(), n); !reflect.DeepEqual(found, expected) {
		return 0, fmt.Errorf("%s is %v instead of %v", o.GetName(), found, expected)
	}
	return n, nil
}

// read returns the definition through an API server.
func (s *shops) read(ctx context.Context) (*unstructured.Unstructured, error) {
	return s.clients[0].Resource(definitions).Get(ctx, s.name(), metav1.GetOptions{})
}

// registered returns spec.conversion.
func (s *shops) registered(ctx context.Context) (map[string]any, error) {
	crd, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	c, _, err := unstructured.NestedMap(crd.Object, "spec", "conversion")
	return c, err
}

// writes is how often the spec of the definition was written.
func (s *shops) writes(ctx context.Context) int64 {
	GinkgoHelper()
	crd, err := s.read(ctx)
	Expect(err).NotTo(HaveOccurred())
	return crd.GetGeneration()
}

// bundleIn returns the caBundle in a spec.conversion.
func bundleIn(conversion map[string]any) ([]byte, error) {
	text, _, err := unstructured.NestedString(conversion, "webhook", "clientConfig", "caBundle")
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(text)
}

// patch changes the definition.
func (s *shops) patch(ctx context.Context, patch string) {
	GinkgoHelper()
	_, err := s.clients[0].Resource(definitions).Patch(ctx, s.name(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// settle waits until one CA stands everywhere and nothing is due.
func (s *shops) settle(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		state := s.deployment.settle(ctx, clientsOf(0))
		registered, err := s.registered(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		bundle, err := bundleIn(registered)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(ca.EqualBundles(bundle, state.Bundle())).To(BeTrue(), "the caBundle holds %d CAs", len(ca.SplitBundle(bundle)))
	}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
}

// mayBeGone reports whether the error is that a shop that comes and goes is not there.
func mayBeGone(name string, err error) bool { return comesAndGoes(name) && apierrors.IsNotFound(err) }
