package world

// This file is shops, the custom resources of a world, and how each version shows them.

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"

	"code.cloudfoundry.org/eirinix/internal/convert"
)

// The versions of shops. Some releases of the program do not know the third.
const first, second, third = "v1", "v2", "v3"

// shop is the truth about a shop. Each version has a note of its own. v2 knows only tens of the size, no width of a shelf, and no
// shelf in the cellar, of its hours only when they begin, the sign as an annotation, and the street as a label. v3 tells the size in words. The mark was written in v3, whose Go type does not know it, so the hub has it too.
type shop struct {
	name, uid string
	labels    map[string]any
	size      int64
	text      string
	mark      string
	notes     map[string]string // by version; never changed, but replaced
	shelves   []shelf
	made      int // shelves, ever: none gets the name of one that has gone
	hours     []hours
	opened    int64 // hours, ever
	sign      string
	street    string
	visitors  int64 // of its status, which v3 does not know; 0 for none
}

// hours are when a shop is open. Nothing in them is a key.
type hours struct{ from, to int64 } // to is 0 for none

type shelf struct {
	name  string
	width int64 // 0 for none
}

// inCellar begins the names of shelves that v2 does not show.
const inCellar = "cellar"

func (s shelf) isHidden() bool { return strings.HasPrefix(s.name, inCellar) }

// shown are the shelves that a version shows.
func (s shop) shown(version string) []shelf {
	return slices.DeleteFunc(slices.Clone(s.shelves), func(of shelf) bool { return version == second && of.isHidden() })
}

// shows has a version show other shelves from now on. One that it does not show stays behind the one that it was behind; if that has
// gone, it comes last.
func (s *shop) shows(version string, now []shelf) {
	behind, before := map[string][]shelf{}, ""
	for _, of := range s.shelves {
		if version == second && of.isHidden() {
			behind[before] = append(behind[before], of)
		}
		before = of.name
	}
	s.shelves = nil
	var follow func(name string)
	follow = func(name string) {
		next := behind[name]
		delete(behind, name)
		for _, of := range next {
			s.shelves = append(s.shelves, of)
			follow(of.name)
		}
	}
	follow("")
	for _, of := range now {
		s.shelves = append(s.shelves, of)
		follow(of.name)
	}
	for _, name := range slices.Sorted(maps.Keys(behind)) {
		if !strings.HasPrefix(name, inCellar) {
			follow(name)
		}
	}
}

// newShop returns a shop as a client writes it in a version.
func newShop(version, name string, size int64, rng *rand.Rand) shop {
	s := shop{name: name, uid: string(uuid.NewUUID()), size: size}
	for range 1 + rng.IntN(3) {
		s.adds(version, rng)
	}
	s.says(version, "only in "+version)
	if version == third {
		s.mark = "written first"
	}
	for range rng.IntN(3) {
		s.opens(version, rng)
	}
	if rng.IntN(2) == 0 {
		s.sign = "at first"
	}
	if s.uid[0]%2 == 0 {
		s.street = "first"
	}
	if version == second {
		s.size -= s.size % 10
	}
	if version != third {
		s.visitors = s.size + 1
	}
	return s
}

// adds puts a shelf among the others.
func (s *shop) adds(version string, rng *rand.Rand) {
	s.made++
	added := shelf{name: fmt.Sprint("shelf", s.made)}
	if version != second {
		if added.width = rng.Int64N(3); s.made > 1 && rng.IntN(3) == 0 {
			added.name = fmt.Sprint(inCellar, s.made)
		}
	}
	shown := s.shown(version)
	s.shows(version, slices.Insert(shown, rng.IntN(len(shown)+1), added))
}

// opens adds hours, which begin when none has begun before.
func (s *shop) opens(version string, rng *rand.Rand) {
	s.opened++
	added := hours{from: s.opened}
	if version != second {
		added.to = rng.Int64N(3)
	}
	s.hours = slices.Insert(slices.Clone(s.hours), rng.IntN(len(s.hours)+1), added)
}

// rewrites writes the shop into an object of a version, as a client does that has edited it.
func (s shop) rewrites(object map[string]any, version string) {
	object["spec"] = s.spec(version)
	o := &unstructured.Unstructured{Object: object}
	if notes := o.GetAnnotations(); version == second {
		if delete(notes, signKey); s.sign != "" {
			notes[signKey] = s.sign
		}
		o.SetAnnotations(notes)
		labelled(o, s.street)
	}
}

// labelled sets the label that is the street in v2; empty for none.
func labelled(o *unstructured.Unstructured, street string) {
	all := o.GetLabels()
	if delete(all, streetKey); street != "" {
		if all == nil {
			all = map[string]string{}
		}
		all[streetKey] = street
	}
	if len(all) == 0 {
		all = nil
	}
	o.SetLabels(all)
}

// says writes the note of a version.
func (s *shop) says(version, text string) {
	notes := map[string]string{version: text}
	for of, text := range s.notes {
		if of != version {
			notes[of] = text
		}
	}
	s.notes = notes
}

// edit changes something that a version shows.
func (s *shop) edit(version string, rng *rand.Rand) {
	switch n := rng.IntN(10); {
	case n == 6:
		s.opens(version, rng)
	case n == 7:
		if len(s.hours) > 0 {
			at := rng.IntN(len(s.hours))
			s.hours = slices.Delete(slices.Clone(s.hours), at, at+1)
		}
	case n == 8:
		s.sign = []string{"", "changed in " + version}[rng.IntN(2)]
	case n == 9:
		s.street = []string{"", "in-" + version}[rng.IntN(2)]
	case n == 3 && version == third:
		s.mark = fmt.Sprint("for the ", rng.IntN(1000))
	case n == 0:
		s.size = s.size - s.size%10 + 10*(1+rng.Int64N(9)) // another one in each version
		if version != second {
			s.size += rng.Int64N(10)
		}
	case n == 1:
		s.says(version, fmt.Sprint("edited in ", version, " for the ", rng.IntN(1000)))
	case n == 2 && len(s.shown(second)) > 1: // else v2 would show none
		shown := s.shown(version)
		i := rng.IntN(len(shown))
		s.shows(version, slices.Delete(shown, i, i+1))
	default:
		s.adds(version, rng)
	}
}

// spec is the spec of the shop in a version.
func (s shop) spec(version string) map[string]any {
	spec, shelves := map[string]any{}, []any{}
	for _, of := range s.shown(version) {
		one := map[string]any{"name": of.name}
		if of.width > 0 && version != second {
			one["width"] = of.width
		}
		shelves = append(shelves, one)
	}
	switch version {
	case first:
		spec["size"], spec["shelves"] = s.size, shelves
	case second:
		spec["replicas"], spec["shelves"] = s.size-s.size%10, shelves
	case third:
		spec["scale"], spec["racks"] = inWords(s.size), shelves
	}
	var open []any
	for _, of := range s.hours {
		one := map[string]any{"from": of.from}
		if of.to > 0 && version != second {
			one["to"] = of.to
		}
		open = append(open, one)
	}
	if len(open) > 0 {
		spec["hours"] = open
	}
	marks, signs, streets := map[string]string{first: s.mark, third: s.mark}, map[string]string{first: s.sign, third: s.sign}, map[string]string{first: s.street, third: s.street}
	for name, text := range map[string]string{"sign": signs[version], "street": streets[version], "text": s.text, "note": s.notes[version], "mark": marks[version]} {
		if text != "" {
			spec[name] = text
		}
	}
	return spec
}

// owner is an annotation that is its client's, signKey the one that is the sign in v2, and streetKey the label that is the street there.
const owner, signKey, streetKey = group + "/owner", group + "/sign", group + "/street"

// in is the shop in a version, as its client writes it first.
func (s shop) in(version string) map[string]any {
	metadata := map[string]any{"name": s.name, "namespace": "shop", "uid": s.uid, "annotations": map[string]any{owner: "alice"}}
	if s.sign != "" && version == second {
		metadata["annotations"].(map[string]any)[signKey] = s.sign
	}
	labels := maps.Clone(s.labels)
	if s.street != "" && version == second {
		if labels == nil {
			labels = map[string]any{}
		}
		labels[streetKey] = s.street
	}
	if labels != nil {
		metadata["labels"] = labels
	}
	object := map[string]any{"apiVersion": group + "/" + version, "kind": "Shop", "metadata": metadata, "spec": s.spec(version)}
	if s.visitors > 0 && version != third {
		object[statusOf] = map[string]any{"visitors": s.visitors}
	}
	return object
}

// differs returns the differences of an object from the shop. The annotations of conversions do not count.
func (s shop) differs(object map[string]any, version string) string {
	bare := &unstructured.Unstructured{Object: maps.Clone(object)}
	metadata, _ := object["metadata"].(map[string]any)
	bare.Object["metadata"] = maps.Clone(metadata)
	annotations := bare.GetAnnotations()
	maps.DeleteFunc(annotations, func(name, _ string) bool { return strings.HasPrefix(name, convert.Prefix) })
	bare.SetAnnotations(annotations)
	for name, want := range s.in(version) {
		if is := bare.Object[name]; !reflect.DeepEqual(is, want) {
			return fmt.Sprintf("%s is %.300s, and was to be %.300s", name, fmt.Sprint(is), fmt.Sprint(want))
		}
	}
	if len(bare.Object) != len(s.in(version)) {
		return fmt.Sprintf("it has members that it did not have: %.300s", fmt.Sprint(bare.Object))
	}
	return ""
}

// inWords is a size as v3 tells it.
func inWords(size int64) string { return strconv.FormatInt(size, 10) + " m2" }

// These convert a spec from the hub, which is v1, and to it. What the other version cannot hold is left to the library.
var converters = map[string]struct {
	from, to func(spec map[string]any) map[string]any
}{
	second: {
		from: func(spec map[string]any) map[string]any {
			size, _ := spec["size"].(int64)
			var shelves []any
			all, _ := spec["shelves"].([]any)
			for _, one := range all {
				named, _ := one.(map[string]any)
				if name, _ := named["name"].(string); strings.HasPrefix(name, inCellar) {
					continue
				}
				shelves = append(shelves, map[string]any{"name": named["name"]})
			}
			return present(map[string]any{"replicas": size - size%10, "shelves": shelves, "text": spec["text"], "hours": begins(spec["hours"]), "sign": spec["sign"], "street": spec["street"]})
		},
		to: func(spec map[string]any) map[string]any {
			return present(map[string]any{"size": spec["replicas"], "shelves": spec["shelves"], "text": spec["text"], "hours": spec["hours"], "sign": spec["sign"], "street": spec["street"]})
		},
	},
	third: {
		from: func(spec map[string]any) map[string]any {
			size, _ := spec["size"].(int64)
			return present(map[string]any{"scale": inWords(size), "racks": spec["shelves"], "text": spec["text"], "hours": spec["hours"], "sign": spec["sign"], "street": spec["street"]})
		},
		to: func(spec map[string]any) map[string]any {
			scale, _ := spec["scale"].(string)
			size, _ := strconv.ParseInt(strings.TrimSuffix(scale, " m2"), 10, 64)
			return present(map[string]any{"size": size, "shelves": spec["racks"], "text": spec["text"], "hours": spec["hours"], "sign": spec["sign"], "street": spec["street"]})
		},
	},
}

// begins is hours of which nothing but their beginning is left; nil for none.
func begins(all any) any {
	var left []any
	items, _ := all.([]any)
	for _, one := range items {
		of, _ := one.(map[string]any)
		left = append(left, map[string]any{"from": of["from"]})
	}
	if left == nil {
		return nil
	}
	return left
}

// signs moves the sign of a shop from its spec into an annotation, and the street into a label, or back.
func signs(shop *unstructured.Unstructured, to string) {
	if spec, _ := shop.Object["spec"].(map[string]any); to == second {
		street, _ := spec["street"].(string)
		delete(spec, "street")
		labelled(shop, street)
	} else if street := shop.GetLabels()[streetKey]; street != "" {
		spec["street"] = street
		labelled(shop, "")
	}
	notes := shop.GetAnnotations()
	spec, _ := shop.Object["spec"].(map[string]any)
	switch sign, ok := spec["sign"].(string); {
	case to == second && ok && notes != nil:
		notes[signKey] = sign
		delete(spec, "sign")
	case to != second && notes[signKey] != "":
		spec["sign"] = notes[signKey]
		delete(notes, signKey)
	default:
		return
	}
	shop.SetAnnotations(notes)
}

// present leaves out absent members.
func present(spec map[string]any) map[string]any {
	maps.DeleteFunc(spec, func(_ string, value any) bool { return value == nil })
	return spec
}

// Shop is a shop of the third version, as a Go type.
type Shop struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Scale string `json:"scale"`
		Note  string `json:"note,omitempty"`
		Text  string `json:"text,omitempty"`
		Racks []rack `json:"racks,omitempty"`
		Sign  string `json:"sign,omitempty"`

		Street string `json:"street,omitempty"`
		Hours  []open `json:"hours,omitempty"`
	} `json:"spec"`
}

type rack struct {
	Name  string `json:"name"`
	Width int64  `json:"width,omitempty"`
}

type open struct {
	From int64 `json:"from"`
	To   int64 `json:"to,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (s *Shop) DeepCopyObject() runtime.Object {
	c := *s
	s.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Racks, c.Spec.Hours = slices.Clone(s.Spec.Racks), slices.Clone(s.Spec.Hours)
	return &c
}

// typed returns a shop of the third version.
func typed(object *unstructured.Unstructured, err error) (*Shop, error) {
	s := &Shop{}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, s)
	}
	return s, err
}

// untyped returns the same as a tree.
func untyped(s *Shop) *unstructured.Unstructured {
	tree, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(s) // of texts and numbers
	return &unstructured.Unstructured{Object: tree}
}
