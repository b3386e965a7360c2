package reads

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// model is the naive twin of a view: the objects by namespace and name.
type model map[[2]string]*unstructured.Unstructured

// question is a List, or a Get if name is set. Empty fields do not restrict a List.
type question struct {
	namespace, name   string
	host, zone, label string
	limit             int
}

// hosts and zones are the values of an object in the indexes. An object has any number of hosts.
func hostsOf(o client.Object) []string {
	return strings.FieldsFunc(o.GetLabels()["hosts"], func(r rune) bool { return r == '.' })
}

func zonesOf(o client.Object) []string { return []string{o.GetLabels()["zone"]} }

// answer returns the objects that a question is about, in the order of a List.
func (m model) answer(q question) []string {
	all := slices.SortedFunc(maps.Values(m), func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	found := []string{}
	for _, o := range all {
		switch {
		case q.namespace != "" && o.GetNamespace() != q.namespace, q.name != "" && o.GetName() != q.name,
			q.host != "" && !slices.Contains(hostsOf(o), q.host), q.zone != "" && !slices.Contains(zonesOf(o), q.zone),
			q.label != "" && o.GetLabels()["color"] != q.label, q.limit > 0 && len(found) == q.limit:
			continue
		}
		found = append(found, described(o))
	}
	return found
}

// described is all that a spec looks at. Each state of an object has a resource version of its own.
func described(o client.Object) string {
	return fmt.Sprintf("%s/%s at %s with %v", o.GetNamespace(), o.GetName(), o.GetResourceVersion(), o.GetLabels())
}

// play makes random changes to a Set with one declaration, and to its model.
type play struct {
	*rand.Rand
	set        *Set
	example    client.Object
	namespaces []string // declared; empty for all
	model      model
	version    int
}

func newPlay(example client.Object, namespaces ...string) *play {
	GinkgoHelper()
	p := &play{Rand: rand.New(rand.NewSource(GinkgoRandomSeed())), example: example, namespaces: namespaces, model: model{}}
	set, err := New(clientgoscheme.Scheme, []Step{{"step", []Declaration{{
		Object: example, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespaces: namespaces,
		Index: map[string]client.IndexerFunc{"host": hostsOf, "zone": zonesOf},
	}}}}, logr.Discard(), nil)
	Expect(err).NotTo(HaveOccurred())
	p.set = set
	for _, src := range set.sources {
		p.replace(src)
	}
	return p
}

func (p *play) one(of ...string) string { return of[p.Intn(len(of))] }

// object returns a new state of some object of a source.
func (p *play) object(src *source) *unstructured.Unstructured {
	p.version++
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	o.SetNamespace(cmp.Or(src.namespace, p.one("a", "b", "c")))
	o.SetName(p.one("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"))
	o.SetResourceVersion(fmt.Sprint(p.version))
	o.SetLabels(map[string]string{
		"hosts": p.one("", "x", "y", "x.y", "y.x.x", "x.yy"), "zone": p.one("x", "y"), "color": p.one("red", "green"),
	})
	return o
}

// sent returns a copy of an object as a watch delivers it: in the declared type.
func (p *play) sent(o *unstructured.Unstructured) client.Object {
	GinkgoHelper()
	made, err := p.set.views[0].convert(o)
	Expect(err).NotTo(HaveOccurred())
	return made
}

func (p *play) put(m model, o *unstructured.Unstructured) {
	m[[2]string{o.GetNamespace(), o.GetName()}] = o
}

func (p *play) replace(src *source) {
	GinkgoHelper()
	maps.DeleteFunc(p.model, func(_ [2]string, o *unstructured.Unstructured) bool {
		return src.namespace == "" || o.GetNamespace() == src.namespace
	})
	listed := model{}
	for range p.Intn(20) {
		p.put(listed, p.object(src))
	}
	var sent []any
	for _, o := range listed {
		p.put(p.model, o)
		sent = append(sent, p.sent(o))
	}
	Expect(src.Replace(sent, "1")).To(Succeed())
}

// change makes one random change.
func (p *play) change() {
	GinkgoHelper()
	src := p.set.sources[p.Intn(len(p.set.sources))]
	o := p.object(src)
	switch p.Intn(12) {
	case 0:
		p.replace(src)
	case 1, 2, 3, 4:
		delete(p.model, [2]string{o.GetNamespace(), o.GetName()})
		Expect(src.Delete(p.sent(o))).To(Succeed()) // also of an object that is not there
	default:
		p.put(p.model, o)
		Expect(src.Update(p.sent(o))).To(Succeed())
	}
}

// question returns a random question.
func (p *play) question() question {
	q := question{
		namespace: p.one("", "a", "b", "c"), host: p.one("", "", "x", "y", "yy", "none"), zone: p.one("", "", "x", "y"),
		label: p.one("", "", "red", "green"), limit: p.Intn(6),
	}
	if p.Intn(3) == 0 {
		q = question{namespace: p.one("a", "b", "c"), name: p.one("one", "two", "three")}
	}
	return q
}

// ask returns the answer of a Snapshot, and writes into the objects that it was given.
func (p *play) ask(ctx context.Context, t *Snapshot, q question) ([]string, error) {
	GinkgoHelper()
	r, found := t.Reader("step"), []string{}
	take := func(o client.Object) {
		found = append(found, described(o))
		o.GetLabels()["hosts"] = "scribbled"
		o.SetResourceVersion("scribbled")
	}
	if q.name != "" {
		o, _ := p.example.DeepCopyObject().(client.Object)
		err := r.Get(ctx, client.ObjectKey{Namespace: q.namespace, Name: q.name}, o)
		if apierrors.IsNotFound(err) {
			Expect(r.Err()).NotTo(HaveOccurred())
			return found, nil
		} else if err == nil {
			take(o)
		}
		return found, err
	}
	list, err := newList(clientgoscheme.Scheme, p.set.views[0].declaration)
	Expect(err).NotTo(HaveOccurred())
	var options []client.ListOption
	if q.namespace != "" {
		options = append(options, client.InNamespace(q.namespace))
	}
	fields := client.MatchingFields{}
	if q.host != "" {
		fields["host"] = q.host
	}
	if q.zone != "" {
		fields["zone"] = q.zone
	}
	if len(fields) > 0 {
		options = append(options, fields)
	}
	if q.label != "" {
		options = append(options, client.MatchingLabels{"color": q.label})
	}
	if q.limit > 0 {
		options = append(options, client.Limit(q.limit))
	}
	p.Shuffle(len(options), func(i, j int) { options[i], options[j] = options[j], options[i] })
	if err := r.List(ctx, list, options...); err != nil {
		return found, err
	}
	Expect(meta.EachListItem(list, func(o runtime.Object) error {
		take(o.(client.Object))
		return nil
	})).To(Succeed())
	return found, nil
}

// check compares the answers of a Snapshot with those of a model.
func (p *play) check(ctx context.Context, t *Snapshot, m model, step int, moment string) {
	GinkgoHelper()
	for range 8 {
		q := p.question()
		got, err := p.ask(ctx, t, q)
		if len(p.namespaces) > 0 && q.namespace != "" && !slices.Contains(p.namespaces, q.namespace) {
			Expect(err).To(MatchError(ContainSubstring("add eirinix.Read{")), "%+v after %d changes", q, step)
			continue
		}
		Expect(err).NotTo(HaveOccurred(), "%+v after %d changes", q, step)
		Expect(got).To(Equal(m.answer(q)), "%s: %+v after %d changes", moment, q, step)
	}
}

var _ = Describe("A step's Reader", func() {
	untyped := &unstructured.Unstructured{}
	untyped.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	partial := &metav1.PartialObjectMetadata{}
	partial.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))

	DescribeTable("answers like a map, of one moment, whatever happens to the objects", func(ctx SpecContext, example client.Object, namespaces ...string) {
		p := newPlay(example, namespaces...)
		var before *Snapshot
		was, since := model{}, 0
		for step := range 400 {
			if step%20 == 0 {
				before, was, since = p.set.Snapshot(ctx), maps.Clone(p.model), step
			}
			p.change()
			p.check(ctx, p.set.Snapshot(ctx), p.model, step+1, "now")
			p.check(ctx, before, was, since, "a Snapshot of an earlier moment")
		}
		var objects []*unstructured.Unstructured
		for _, o := range p.model {
			objects = append(objects, o)
		}
		p.check(ctx, p.set.Fill(ctx, objects, nil), p.model, 400, "the same objects in a test")
	},
		Entry("of a Go type", &corev1.ConfigMap{}),
		Entry("of a Go type, in some namespaces", &corev1.ConfigMap{}, "a", "b"),
		Entry("unstructured", untyped),
		Entry("unstructured, in one namespace", untyped, "b"),
		Entry("metadata", partial),
		Entry("metadata, in some namespaces", partial, "c", "a"),
	)
})
