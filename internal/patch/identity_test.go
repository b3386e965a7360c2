package patch_test

// This file specifies, with random things, that each item of a list keeps the members that only raw knows, wherever it moves.

import (
	"encoding/json"
	"fmt"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/patch"
)

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
