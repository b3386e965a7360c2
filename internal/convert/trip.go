package convert

// This file converts one object to another version and back, for audits.

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

// RoundTrip converts an object to another version and back without annotations. lost are JSON pointers to what that changes,
// in order; "*" is any item of a list. noRoom reports that annotations do not hold all of it.
func (k *Kind) RoundTrip(ctx context.Context, object []byte, from, to string) (lost []string, noRoom bool, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("the conversion panicked: %v", value)
		}
	}()
	versions, hub := k.versions()
	named := func(name string) *version {
		return &versions[slices.IndexFunc(versions, func(v version) bool { return v.Name == name })]
	}
	source := jsontext.TreeOf(object)
	(&conversion{call: &call{Kind: &Kind{Forget: true}}}).take(source)
	kind, _ := stringOf(source.Member("kind"))
	c := conversion{call: &call{Kind: k, ctx: ctx, review: &review{}, hub: hub, to: named(to), observer: unobserved{}}, kind: kind}
	way, direction := []*version{named(from), hub, named(to), hub, named(from)}, []string{"to", "to", "back from", "back from"}
	var there, back *tree
	for i, at := 0, source; i < len(direction); i++ {
		if way[i] != way[i+1] {
			h, err := c.hop(at.Append(nil), at, way[i], way[i+1])
			if err != nil {
				return nil, false, fmt.Errorf("%s %s: %w", direction[i], to, err)
			}
			at = h.tree
		}
		if back = at; i == 1 {
			there = at
		}
	}
	object = source.Append(nil)
	whole, err := canonical(object, source, named(from))
	if err != nil {
		return nil, false, err
	}
	entries, err := lossOf(ctx, from, whole, back, len(object), -1) // of whole values
	for i := range entries {
		pointer := ""
		for _, step := range entries[i].Path {
			if pointer += "/"; step[:1] == item {
				step = ".*"
			}
			pointer += strings.NewReplacer("~", "~0", "/", "~1").Replace(step[1:])
		}
		lost = append(lost, pointer)
	}
	slices.Sort(lost)
	annotations := cmp.Or(there.Member("metadata").Member("annotations"), jsontext.NewTree('{'))
	return slices.Compact(lost), roomBeside(annotations, entries) < 0, err
}
