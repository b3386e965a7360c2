package patch_test

// This file specifies, with random objects, that a patch makes the wanted object, and that each item keeps what only raw knows.

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/patch"
)

// tally counts members that only raw knew, over many patches.
type tally struct{ patched, kept, lost, misplaced int }

// try makes a random pod, has it edited, and checks everything that must be true of the patch.
func try(seed uint64, script []byte, sum *tally) error {
	r := newPotter(seed)
	raw, planted := r.arrive(r.pod())
	before, err := decode[corev1.Pod](raw)
	if err != nil {
		return err
	}
	after := before.DeepCopy()
	for _, kind := range script {
		r.edit(after, kind)
	}
	ops, err := patch.Diff(raw, &before, after)
	if err != nil {
		return fmt.Errorf("diff: %w", err)
	}
	text := patch.AppendJSON(nil, ops)
	applied, err := apply(raw, text)
	if err != nil {
		return fmt.Errorf("apply: %w\n%s", err, text)
	}
	made, err := patch.Compare(raw, jsontext.Index{}, &before, after)
	if err != nil {
		return err
	}
	if !made.Is(ops) {
		return fmt.Errorf("two patches of one change differ: %s", text)
	}
	if seed%2 == 0 {
		if err := agrees(raw, text, made.Apply); err != nil {
			return err
		}
	}
	want, err := becomes(applied, after, text)
	if err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(before, want) && ops != nil {
		return fmt.Errorf("operations without a change: %s", text)
	}
	if len(ops) > 0 {
		sum.patched++
	}
	var tree map[string]any
	if err := json.Unmarshal(applied, &tree); err != nil {
		return err
	}
	return survey(tree, treeOf(after), planted, sum, string(text))
}

// becomes compares the result of a patch with the wanted pod as an API server stores it, which it returns.
func becomes(applied []byte, wanted *corev1.Pod, text []byte) (want corev1.Pod, err error) {
	have, err := decode[corev1.Pod](applied)
	if err != nil {
		return want, err
	}
	plain, err := json.Marshal(wanted)
	if err != nil {
		return want, err
	}
	if want, err = decode[corev1.Pod](plain); err == nil && !equality.Semantic.DeepEqual(have, want) {
		err = fmt.Errorf("the patch\n%s\ngives\n%s\ninstead of\n%s", text, applied, plain)
	}
	return want, err
}

// survey looks for the planted members: each must stand where its object is now.
func survey(applied, after map[string]any, planted map[string]bool, sum *tally, text string) error {
	survivors := map[string]bool{}
	visit(after, "", func(path string, _ map[string]any) { survivors[path] = planted[path] })
	seen := map[string]bool{}
	var problems []string
	visit(applied, "", func(path string, object map[string]any) {
		origin, ok := object["x-unknown"].(string)
		switch {
		case ok && seen[origin]:
			sum.misplaced++
			problems = append(problems, "twice: "+origin)
		case ok && origin == path:
			sum.kept++
		case ok && survivors[origin]:
			sum.misplaced++
			problems = append(problems, origin+" found at "+path)
		case !ok && survivors[path]:
			sum.lost++
			problems = append(problems, "lost: "+path)
		}
		seen[origin] = seen[origin] || ok
	})
	if problems != nil {
		return fmt.Errorf("%s\nafter %s", strings.Join(problems, "\n"), text)
	}
	return nil
}

var _ = Describe("Random pods", func() {
	It("lose nothing and mix nothing up, in hundreds of edits", Label("sequential"), func() {
		var sum tally
		for seed := range uint64(400) {
			r := newPotter(seed + 1e6)
			script := make([]byte, 1+r.IntN(6))
			for i := range script {
				script[i] = byte(r.IntN(16))
			}
			Expect(try(seed, script, &sum)).To(Succeed(), "seed %d, script %v", seed, script)
		}
		Expect(sum.lost).To(BeZero())
		Expect(sum.misplaced).To(BeZero())
		Expect(sum.patched).To(BeNumerically(">", 350))
		Expect(sum.kept).To(BeNumerically(">", 4000))
	})
	It("need no patch when they are not changed", func() {
		for seed := range uint64(50) {
			r := newPotter(seed)
			raw, _ := r.arrive(r.pod())
			before, err := decode[corev1.Pod](raw)
			Expect(err).NotTo(HaveOccurred())
			Expect(patch.Diff(raw, &before, before.DeepCopy())).To(BeNil())
			made, err := patch.Compare(raw, jsontext.Index{}, &before, before.DeepCopy())
			Expect(err).NotTo(HaveOccurred())
			Expect(made.Apply(raw)).To(Equal(raw))
		}
	})
})

func FuzzDiffPodEdits(f *testing.F) {
	for seed := range uint64(32) {
		f.Add(seed, []byte{byte(seed), byte(seed + 5), byte(seed * 3)})
	}
	f.Fuzz(func(t *testing.T, seed uint64, script []byte) {
		if err := try(seed, script[:min(len(script), 24)], &tally{}); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzDiffRaw takes any two documents as a pod before and after a change.
func FuzzDiffRaw(f *testing.F) {
	for seed := range uint64(16) {
		r := newPotter(seed)
		p := r.pod()
		raw, _ := r.arrive(p)
		r.edit(p, byte(seed))
		r.edit(p, byte(seed+3))
		other, _ := r.arrive(p)
		f.Add(raw, other)
	}
	f.Add([]byte(`{"spec":{"containers":[{"name":"a"},null]}}`), []byte(`{"spec":{"containers":[{"name":"b","args":["\ud800"]},{}]}}`))
	f.Add([]byte(`{"metadata":{"labels":{"a":null,"":"x"}},"metadata":{}}`), []byte(`{"metadata":{"labels":{"a\/b":"~"}}}`))
	f.Fuzz(func(t *testing.T, raw, other []byte) {
		before, err := decode[corev1.Pod](raw)
		if err != nil {
			before = corev1.Pod{} // whatever it is, it must not make us panic
		}
		after, errAfter := decode[corev1.Pod](other)
		if errAfter != nil {
			return
		}
		ops, errDiff := patch.Diff(raw, &before, &after)
		if err != nil || errDiff != nil {
			mayFail(t, errDiff)
			return
		}
		text := patch.AppendJSON(nil, ops)
		applied, err := apply(raw, text)
		if err != nil {
			t.Fatalf("%v\n%s\non %s", err, text, raw)
		}
		if plain, err := json.Marshal(&after); err != nil {
			return // no API server stores that
		} else if _, err := decode[corev1.Pod](plain); err != nil {
			return // nor that
		}
		if _, err := becomes(applied, &after, text); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzDiffTrees does the same without types: the result must be the other document, member for member.
func FuzzDiffTrees(f *testing.F) {
	f.Add([]byte(`{"a":[1,2,{"name":"x","v":1}],"b":{"c":null}}`), []byte(`{"a":[{"name":"x","v":2},1,2.5],"b":{"c":{}}}`))
	f.Add([]byte(`{"a":[1,2,3,4,5]}`), []byte(`{"a":[5,4,3,2,1,0]}`))
	f.Add([]byte(`{"a~b":{"/":[]},"":""}`), []byte(`{"a~b":{"/":[null,[]]},"":{"":0}}`))
	f.Add([]byte(`{"i":[{"name":"a","n":1},{"name":"a","n":2},{"name":"b"}]}`), []byte(`{"i":[{"name":"b","x":1e3},{"name":"a","n":2}]}`))
	f.Fuzz(func(t *testing.T, raw, other []byte) {
		var before, after unstructured.Unstructured
		if json.Unmarshal(raw, &before.Object) != nil || json.Unmarshal(other, &after.Object) != nil {
			return
		}
		ops, err := patch.Diff(raw, &before, &after)
		if err != nil {
			mayFail(t, err)
			return
		}
		text := patch.AppendJSON(nil, ops)
		applied, err := apply(raw, text)
		if err != nil {
			t.Fatalf("%v\n%s\non %s", err, text, raw)
		}
		var have map[string]any
		if err := json.Unmarshal(applied, &have); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(have, after.Object) {
			t.Fatalf("the patch\n%s\non\n%s\ngives\n%s\ninstead of\n%s", text, raw, applied, other)
		}
	})
}

// mayFail allows the errors that are promised, and none but those.
func mayFail(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, patch.ErrMismatch) && !errors.Is(err, patch.ErrDuplicate) && !errors.Is(err, jsontext.ErrSyntax) {
		t.Fatalf("unexpected kind of error: %v", err)
	}
}

// thing is a custom resource as controller-gen's users write them: lists with merge keys, and lists without.
type thing struct {
	Name   string            `json:"name,omitempty"`
	Value  string            `json:"value,omitempty"`
	Deep   *thing            `json:"deep,omitempty"`
	Plain  []*thing          `json:"plain,omitempty"`
	Tagged []*thing          `json:"tagged,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// A smith makes things, and changes them. Names are unique, so that they say which thing it is.
type smith struct {
	*potter
	unknown map[string]string // by name, the members that only raw knows
	edited  map[string]bool   // things that have been edited, which are not renamed any more
	final   map[string]bool   // things that have been renamed, which are not edited any more
}

func newSmith(seed uint64) *smith {
	return &smith{potter: newPotter(seed), unknown: map[string]string{}, edited: map[string]bool{}, final: map[string]bool{}}
}

func (s *smith) thing(depth int) *thing {
	t := &thing{Name: s.name("n"), Value: s.name("v")}
	if depth == 0 {
		return t
	}
	if s.IntN(3) == 0 {
		t.Deep = s.thing(depth - 1)
	}
	for range s.IntN(4) {
		t.Plain = append(t.Plain, s.thing(depth-1))
	}
	for range s.IntN(4) {
		t.Tagged = append(t.Tagged, s.thing(depth-1))
	}
	return t
}

// arrive makes JSON of a thing, with members that the type does not know.
func (s *smith) arrive(t *thing) []byte {
	tree := treeOf(t)
	eachThing(tree, func(object map[string]any) {
		name := object["name"].(string)
		s.unknown[name] = "of " + name
		object["x-unknown"] = map[string]any{"is": s.unknown[name]}
	})
	raw, err := json.Marshal(tree)
	Expect(err).NotTo(HaveOccurred())
	return raw
}

func eachThing(tree map[string]any, f func(map[string]any)) {
	f(tree)
	if deep, ok := tree["deep"].(map[string]any); ok {
		eachThing(deep, f)
	}
	for _, list := range []string{"plain", "tagged"} {
		items, _ := tree[list].([]any)
		for _, item := range items {
			eachThing(item.(map[string]any), f)
		}
	}
}

// edit changes something, somewhere, but nothing about a thing that has another name: it would be another thing.
func (s *smith) edit(t *thing) {
	if s.final[t.Name] {
		return
	}
	s.edited[t.Name] = true // or something below it
	which := s.IntN(2)
	list := []*[]*thing{&t.Plain, &t.Tagged}[which]
	here := fmt.Sprint(t.Name, "/", which)
	if n := len(*list); n > 0 && s.IntN(3) > 0 {
		s.edit((*list)[s.IntN(n)])
		return
	}
	switch s.IntN(7) {
	case 0:
		t.Value = s.name("edited")
	case 1:
		t.Labels = map[string]string{s.name("l"): "x"}
	case 2:
		if t.Deep != nil {
			s.edit(t.Deep)
		}
	case 3:
		if n := len(*list); n > 0 && !s.shaped[here] {
			s.rename(here, (*list)[s.IntN(n)])
		}
	default:
		*list = shape(s.potter, here, *list, func() *thing { return s.thing(1) })
	}
}

// rename renames an item of a list, unless it was edited.
func (s *smith) rename(list string, t *thing) {
	if s.edited[t.Name] || s.final[t.Name] {
		return
	}
	s.renamed[list] = true
	is := s.name("renamed")
	s.unknown[is], s.final[is] = s.unknown[t.Name], true
	t.Name = is
}

// forge makes a thing, has it edited, and counts the fates of the members that the type does not know.
func forge(seed uint64, sum *tally) error {
	s := newSmith(seed)
	before := s.thing(2)
	raw := s.arrive(before)
	after, err := decode[thing](raw)
	if err != nil {
		return err
	}
	for range 1 + s.IntN(5) {
		s.edit(&after)
	}
	ops, err := patch.Diff(raw, before, &after)
	if s.IntN(3) == 0 { // the same edits to a tree
		ops, err = patch.Diff(raw, &unstructured.Unstructured{Object: treeOf(before)}, &unstructured.Unstructured{Object: treeOf(&after)})
	}
	if err != nil {
		return err
	}
	applied, err := apply(raw, patch.AppendJSON(nil, ops))
	if err != nil {
		return err
	}
	var tree map[string]any
	if err := json.Unmarshal(applied, &tree); err != nil {
		return err
	}
	if have, want := known(tree), known(treeOf(&after)); fmt.Sprint(have) != fmt.Sprint(want) {
		return fmt.Errorf("got %v instead of %v", have, want)
	}
	eachThing(tree, func(object map[string]any) {
		name := object["name"].(string)
		unknown, _ := object["x-unknown"].(map[string]any)
		if have, _ := unknown["is"].(string); have != s.unknown[name] {
			err = fmt.Errorf("%s has the member %q: %s", name, have, patch.AppendJSON(nil, ops))
		} else if have != "" {
			sum.kept++
		}
	})
	if len(ops) > 0 {
		sum.patched++
	}
	return err
}

var _ = Describe("Random things", func() {
	It("keep their members, and inherit none", Label("sequential"), func() {
		runs := 500
		if os.Getenv("EIRINIX_SOAK") != "" {
			runs = 100_000
		}
		var sum tally
		for seed := range runs {
			Expect(forge(uint64(seed), &sum)).To(Succeed(), "seed %d, %+v", seed, sum)
		}
		Expect(sum.patched).To(BeNumerically(">", runs*7/10))
		Expect(sum.kept).To(BeNumerically(">", runs*3))
	})
})
