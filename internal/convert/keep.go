package convert

// This file keeps what the way back does not restore.

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/patch"
)

// annotated is object for one that has the annotation.
func (c *conversion) annotated(dst []byte, o *object) ([]byte, error) {
	source, err := parseObject(o.text)
	if err != nil {
		return dst, err
	}
	kept, err := takeNotes(source)
	if err != nil {
		c.ignored(fmt.Errorf("the annotation %s is ignored: %w", Annotation, err))
	}
	if kept[c.hub.Name] != nil && o.from != c.hub && c.to != c.hub {
		return c.throughHub(dst, o)
	}
	text := source.Append(nil)
	h, err := c.hop(text, source, o.from, c.to, !c.Forget)
	if err != nil {
		return dst, err
	}
	if h.live != nil {
		if h.live, err = c.run(h.live, c.to, o.from); err != nil {
			return dst, c.noWayBack(err)
		}
	}
	return c.finish(dst, text, source, h, kept, o.from)
}

// throughHub converts an object of one spoke to another in two steps, so that the entries for the hub are restored in
// between.
func (c *conversion) throughHub(dst []byte, o *object) ([]byte, error) {
	first := *c.call
	first.to, first.scratch = c.hub, nil
	text, err := (&conversion{call: &first, kind: c.kind}).annotated(nil, o)
	if err != nil {
		return dst, err
	}
	t, err := parseObject(text)
	if err != nil {
		return dst, err
	}
	return c.object(dst, &object{text: text, metadata: metadataOfText(t.Member("metadata").Append(nil)), kind: o.kind, from: c.hub})
}

// keep appends the result of a conversion together with all that the way back does not restore. back is the way back; nil
// if it is not known.
func (c *conversion) keep(dst []byte, o *object, result []byte, back runtime.Object) ([]byte, error) {
	source, err := parseObject(o.text)
	if err != nil {
		return dst, err
	}
	h := hopped{tree: jsontext.TreeOf(bytes.Clone(result)), metadata: &c.metadata, live: back} // dst is written over it
	if mend(o.text, source, h.tree, o.from, c.to) {
		h.live = nil
	}
	return c.finish(dst, o.text, source, h, nil, o.from)
}

// hopped is the result of a conversion.
type hopped struct {
	tree     *tree
	metadata *metadata // of the source

	// live is the same in memory, or nil if it can be another object. Once the result is converted back, it is the
	// object that this gives.
	live runtime.Object
}

// hop converts a tree to another version. It looks for the live object on request.
func (c *conversion) hop(text []byte, source *tree, from, to *version, look bool) (h hopped, err error) {
	var raw []byte
	if m := source.Member("metadata"); !m.IsAbsent() {
		raw = m.Append(nil)
	}
	h.metadata = &metadata{}
	if err := h.metadata.begin(metadataOfText(raw)); err != nil {
		return h, err
	}
	converted, live, exact, err := c.convert(nil, text, h.metadata, from, to, look)
	if err != nil {
		return h, err
	}
	h.tree = jsontext.TreeOf(converted)
	if !mend(text, source, h.tree, from, to) && exact && bytes.HasPrefix(converted[len(c.head(nil, to)):], h.metadata.text) {
		h.live = ownCopy(live)
	}
	return h, nil
}

// back converts a result back to the version of the source.
func (c *conversion) back(result *tree, from *version) (*tree, error) {
	h, err := c.hop(result.Append(nil), result, c.to, from, false)
	if err != nil {
		return nil, c.noWayBack(err)
	}
	return h.tree, nil
}

func (c *conversion) noWayBack(err error) error {
	return fmt.Errorf("the way back, which shows what %s cannot hold, failed: %w", c.to.Name, err)
}

// wayBack is back for a result that can be in memory.
func (c *conversion) wayBack(h hopped, from *version) (*tree, error) {
	if h.live == nil {
		return c.back(h.tree, from)
	}
	text, _, err := c.write(nil, h.live, h.metadata, c.to, from, false)
	if err != nil {
		return nil, c.noWayBack(err)
	}
	return jsontext.TreeOf(text), nil
}

// finish restores the entries for the version of the result, and adds entries for the version of the source.
func (c *conversion) finish(dst, text []byte, source *tree, h hopped, kept notes, from *version) ([]byte, error) {
	result := h.tree
	if c.Forget {
		return result.Append(dst), nil
	}
	back, err := c.wayBack(h, from)
	if err != nil {
		return dst, err
	}
	whole, err := canonical(text, source, from)
	if err != nil {
		return dst, err
	}
	if list := kept[c.to.Name]; list != nil {
		r := restoration{conversion: c, from: from, whole: whole, result: result, back: back}
		r.restore(list)
		result, back = r.result, r.back
	}
	left := notes{}
	for version, entries := range kept {
		if version != c.to.Name && version != from.Name {
			left[version] = entries
		}
	}
	if loss := lossOf(whole, back); len(loss) > 0 {
		left[from.Name] = listed(loss)
	}
	if err := left.put(result, from.Name); err != nil {
		return dst, err
	}
	return result.Append(dst), nil
}

// canonical returns the source as the way back would give it if nothing were lost.
func canonical(text []byte, source *tree, from *version) (*tree, error) {
	if from.isTree() {
		return source, nil
	}
	o, err := decoded(text, from)
	if err != nil {
		return nil, err
	}
	members, err := patch.AppendMembers([]byte(`{"kind":""`), body(o), ours...)
	if err != nil {
		return nil, fmt.Errorf("it cannot be written as %s: %w", from.Name, err)
	}
	whole := jsontext.TreeOf(append(members, '}'))
	if whole.IsObject() && !from.known.All(text, ours...) {
		c := carrier{exact: true}
		c.object(source, whole, from.known, from.known, ours)
	}
	if m := source.Member("metadata"); m != nil {
		whole.Set("metadata", m)
	}
	return whole, nil
}
