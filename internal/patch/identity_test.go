package patch_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"

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
	Plain  []thing           `json:"plain,omitempty"`
	Points []*thing          `json:"points,omitempty"`
	Tagged []thing           `json:"tagged,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// A smith makes things, and changes them. Names are unique, so that they say which thing it is.
type smith struct {
	*rand.Rand
	serial  int
	unknown map[string]string // by name, the members that only raw knows
	renamed map[string]bool   // lists of which an item has been renamed, by the name of the thing that holds them
	shaped  map[string]bool   // lists whose items have come, gone or moved
	edited  map[string]bool   // things that have been edited, which are not renamed any more
	final   map[string]bool   // things that have been renamed, which are not edited any more
}

func newSmith(seed uint64) *smith {
	return &smith{
		Rand: rand.New(rand.NewPCG(seed, 11)), unknown: map[string]string{},
		renamed: map[string]bool{}, shaped: map[string]bool{}, edited: map[string]bool{}, final: map[string]bool{},
	}
}

func (s *smith) next(prefix string) string {
	s.serial++
	return fmt.Sprintf("%s-%d", prefix, s.serial)
}

func (s *smith) thing(depth int) thing {
	t := thing{Name: s.next("n"), Value: s.next("v")}
	if depth == 0 {
		return t
	}
	if s.IntN(3) == 0 {
		deep := s.thing(depth - 1)
		t.Deep = &deep
	}
	for range s.IntN(4) {
		t.Plain = append(t.Plain, s.thing(depth-1))
	}
	for range s.IntN(3) {
		point := s.thing(depth - 1)
		t.Points = append(t.Points, &point)
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
	for _, list := range []string{"plain", "points", "tagged"} {
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
	lists := []string{"plain", "points", "tagged"}
	list := lists[s.IntN(len(lists))]
	count := map[string]int{"plain": len(t.Plain), "points": len(t.Points), "tagged": len(t.Tagged)}[list]
	if count > 0 && s.IntN(3) > 0 {
		i := s.IntN(count)
		s.edited[t.Name] = true // something below it
		switch list {
		case "plain":
			s.edit(&t.Plain[i])
		case "points":
			s.edit(t.Points[i])
		default:
			s.edit(&t.Tagged[i])
		}
		return
	}
	s.edited[t.Name] = true
	switch s.IntN(6) {
	case 0:
		t.Value = s.next("edited")
	case 1:
		t.Labels = map[string]string{s.next("l"): "x"}
	case 2:
		if t.Deep != nil {
			s.edit(t.Deep)
		}
	default:
		switch list {
		case "plain":
			t.Plain = reshaped(s, t, list, t.Plain, func(item *thing) *thing { return item }, func() thing { return s.thing(1) })
		case "points":
			t.Points = reshaped(s, t, list, t.Points, func(item **thing) *thing { return *item }, func() *thing { p := s.thing(1); return &p })
		default:
			t.Tagged = reshaped(s, t, list, t.Tagged, func(item *thing) *thing { return item }, func() thing { return s.thing(1) })
		}
	}
}

// reshaped inserts, removes, moves, renames or replaces items.
func reshaped[T any](s *smith, t *thing, list string, items []T, in func(*T) *thing, fresh func() T) []T {
	here := t.Name + "/" + list
	items = slices.Clone(items)
	if len(items) == 0 {
		s.shaped[here] = true
		return append(items, fresh())
	}
	at := s.IntN(len(items))
	if s.IntN(4) == 0 {
		item := in(&items[at])
		if s.shaped[here] || s.edited[item.Name] || s.final[item.Name] {
			return items
		}
		s.renamed[here] = true
		is := s.next("renamed")
		if unknown, ok := s.unknown[item.Name]; ok {
			s.unknown[is] = unknown
		}
		s.final[is] = true
		item.Name = is
		return items
	}
	if s.renamed[here] {
		return items
	}
	s.shaped[here] = true
	switch s.IntN(5) {
	case 0, 1:
		return slices.Insert(items, s.IntN(len(items)+1), fresh())
	case 2:
		return slices.Delete(items, at, at+1)
	case 3:
		s.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	default:
		items[at] = fresh() // another one in its place
	}
	return items
}

// forge makes a thing, has it edited, and counts the fates of the members that the type does not know.
func forge(seed uint64, sum *tally) error {
	s := newSmith(seed)
	before := s.thing(2)
	raw := s.arrive(&before)
	untyped := s.IntN(3) == 0
	after, err := decode[thing](raw)
	if err != nil {
		return err
	}
	for range 1 + s.IntN(5) {
		s.edit(&after)
	}
	ops, err := patch.Diff(raw, &before, &after)
	if untyped { // the same edits to a tree
		was, is := &unstructured.Unstructured{Object: treeOf(&before)}, &unstructured.Unstructured{Object: treeOf(&after)}
		ops, err = patch.Diff(raw, was, is)
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
		have, _ := unknown["is"].(string)
		switch {
		case have == s.unknown[name] && have != "":
			sum.kept++
		case have == s.unknown[name]:
		case have == "":
			sum.lost++
			err = fmt.Errorf("%s lost a member that it had: %s", name, patch.AppendJSON(nil, ops))
		default:
			sum.misplaced++
			err = fmt.Errorf("%s has a member of %s: %s", name, have, patch.AppendJSON(nil, ops))
		}
	})
	if len(ops) > 0 {
		sum.patched++
	}
	return err
}

var _ = Describe("Random things", func() {
	It("keep their members, and inherit none", Label("sequential"), func() {
		runs := 3000
		if os.Getenv("EIRINIX_SOAK") != "" {
			runs = 100_000
		}
		var sum tally
		for seed := range runs {
			Expect(forge(uint64(seed), &sum)).To(Succeed(), "seed %d, %+v", seed, sum)
		}
		Expect(sum.lost + sum.misplaced).To(BeZero())
		Expect(sum.patched).To(BeNumerically(">", runs*8/10))
		Expect(sum.kept).To(BeNumerically(">", runs*3))
	})
})
