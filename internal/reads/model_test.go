package reads_test

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

	"code.cloudfoundry.org/eirinix/internal/reads"
	"code.cloudfoundry.org/eirinix/internal/snapshots"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// model is the naive twin of a view: the objects by namespace and name.
type model map[[2]string]*unstructured.Unstructured

// question is a List, or a Get if name is set. Empty fields do not restrict a List.
type question struct {
	namespace, name   string
	host, zone, label string
	limit             int
}

// hostsOf returns the values of an object in the index host: any number of them, in any order, also twice.
func hostsOf(o client.Object) []string {
	return strings.FieldsFunc(o.GetLabels()["hosts"], func(r rune) bool { return r == '.' })
}

// zonesOf returns the value of an object in the index zone.
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

// play makes random changes to a Set with one step, and to its model.
type play struct {
	*rand.Rand
	set        *reads.Set
	example    client.Object
	declared   reads.Declaration
	namespaces []string // that a declaration reaches
	model      model
	version    int
}

// newPlay returns the play of a step that declares the same objects several times, in these namespaces.
func newPlay(example client.Object, declared ...[]string) *play {
	GinkgoHelper()
	p := &play{Rand: rand.New(rand.NewSource(GinkgoRandomSeed())), example: example, model: model{}}
	step := reads.Step{Name: "step"}
	p.declared = reads.Declaration{Object: example, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}
	for _, namespaces := range declared {
		step.Reads = append(step.Reads, reads.Declaration{
			Object: example, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespaces: namespaces,
			Index: map[string]client.IndexerFunc{"host": hostsOf, "zone": zonesOf},
		})
		if p.namespaces = append(p.namespaces, namespaces...); len(namespaces) == 0 {
			p.namespaces = []string{"a", "b", "c"}
		}
	}
	var err error
	p.set, err = reads.New(clientgoscheme.Scheme, []reads.Step{step}, logr.Discard(), nil)
	Expect(err).NotTo(HaveOccurred())
	for _, src := range p.set.Sources() {
		p.list(src)
	}
	return p
}

func (p *play) one(of ...string) string { return of[p.Intn(len(of))] }

// object returns a new state of some object.
func (p *play) object(namespace string) *unstructured.Unstructured {
	p.version++
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	o.SetNamespace(namespace)
	o.SetName(p.one("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"))
	o.SetResourceVersion(fmt.Sprint(p.version))
	o.SetLabels(map[string]string{"hosts": p.one("", "x", "y", "x.y", "y.x.x", "x.yy"), "zone": p.one("x", "y"), "color": p.one("red", "green")})
	return o
}

// sent returns a copy of an object as a watch delivers it: in the declared type.
func (p *play) sent(o *unstructured.Unstructured) client.Object {
	GinkgoHelper()
	made, _ := p.example.DeepCopyObject().(client.Object)
	if tree, untyped := made.(*unstructured.Unstructured); untyped {
		tree.Object = o.DeepCopy().Object
	} else {
		Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, made)).To(Succeed())
	}
	return made
}

func (m model) put(o *unstructured.Unstructured) { m[[2]string{o.GetNamespace(), o.GetName()}] = o }

// list sends a source the objects that it follows.
func (p *play) list(src *reads.Source) {
	GinkgoHelper()
	var sent []client.Object
	for _, o := range p.model {
		if src.Namespace() == "" || src.Namespace() == o.GetNamespace() {
			sent = append(sent, p.sent(o))
		}
	}
	src.Listed(sent...)
}

// change makes one random change, which all sources learn of.
func (p *play) change() {
	GinkgoHelper()
	o, kind := p.object(p.one(p.namespaces...)), p.Intn(12)
	switch {
	case kind == 0:
		maps.DeleteFunc(p.model, func(_ [2]string, old *unstructured.Unstructured) bool { return old.GetNamespace() == o.GetNamespace() })
		for range p.Intn(10) {
			p.model.put(p.object(o.GetNamespace()))
		}
	case kind < 5:
		delete(p.model, [2]string{o.GetNamespace(), o.GetName()})
	default:
		p.model.put(o)
	}
	for _, src := range p.set.Sources() {
		switch {
		case src.Namespace() != "" && src.Namespace() != o.GetNamespace():
		case kind == 0:
			p.list(src)
		case kind < 5:
			src.Remove(p.sent(o)) // also of an object that is not there
		default:
			src.Update(p.sent(o))
		}
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
func (p *play) ask(ctx context.Context, t *reads.Snapshot, q question) ([]string, error) {
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
	list := Must(reads.NewList(clientgoscheme.Scheme, p.declared))
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
func (p *play) check(ctx context.Context, t *reads.Snapshot, m model, step int, moment string) {
	GinkgoHelper()
	for range 8 {
		q := p.question()
		got, err := p.ask(ctx, t, q)
		if q.namespace != "" && !slices.Contains(p.namespaces, q.namespace) {
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

	DescribeTable("answers like a map, of one moment, whatever happens to the objects", func(ctx SpecContext, example client.Object, declared ...[]string) {
		p := newPlay(example, declared...)
		var before *reads.Snapshot
		was, since := model{}, 0
		for step := range 200 {
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
		p.check(ctx, snapshots.Fill(ctx, p.set, objects, nil), p.model, 200, "the same objects in a test")
	},
		Entry("of a Go type", &corev1.ConfigMap{}, nil),
		Entry("of a Go type, in some namespaces", &corev1.ConfigMap{}, []string{"a", "b"}),
		Entry("of a Go type, in all namespaces and once more in one", &corev1.ConfigMap{}, nil, []string{"b"}),
		Entry("of a Go type, in one namespace and once more in all", &corev1.ConfigMap{}, []string{"b"}, nil),
		Entry("of a Go type, in two pairs of namespaces", &corev1.ConfigMap{}, []string{"c", "b"}, []string{"b", "a"}),
		Entry("unstructured", untyped, nil),
		Entry("unstructured, in one namespace", untyped, []string{"b"}),
		Entry("metadata", partial, nil),
		Entry("metadata, in some namespaces", partial, []string{"c", "a"}),
	)
})
