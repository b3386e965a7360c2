package convert

// This file keeps what the way back does not restore.

import (
	"bytes"
	"fmt"

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
	text := source.append(nil)
	result, err := c.hop(text, source, o.from, c.to)
	if err != nil {
		return dst, err
	}
	return c.finish(dst, text, source, result, kept, o.from)
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
	return c.object(dst, &object{text: text, metadata: metadataOfText(t.member("metadata").append(nil)), kind: o.kind, from: c.hub})
}

// keep appends the result of a conversion together with all that the way back does not restore.
func (c *conversion) keep(dst, text, result []byte, kept notes, from *version) ([]byte, error) {
	source, err := parseObject(text)
	if err != nil {
		return dst, err
	}
	t := treeOf(bytes.Clone(result)) // dst is written over it
	mend(text, source, t, from, c.to)
	return c.finish(dst, text, source, t, kept, from)
}

// hop converts a tree to another version.
func (c *conversion) hop(text []byte, source *tree, from, to *version) (*tree, error) {
	var raw []byte
	if m := source.member("metadata"); !m.isAbsent() {
		raw = m.append(nil)
	}
	m := &metadata{}
	if err := m.begin(metadataOfText(raw)); err != nil {
		return nil, err
	}
	converted, _, _, err := c.convert(nil, text, m, from, to, false)
	if err != nil {
		return nil, err
	}
	result := treeOf(converted)
	mend(text, source, result, from, to)
	return result, nil
}

// back converts a result back to the version of the source.
func (c *conversion) back(result *tree, from *version) (*tree, error) {
	t, err := c.hop(result.append(nil), result, c.to, from)
	if err != nil {
		return nil, fmt.Errorf("the way back, which shows what %s cannot hold, failed: %w", c.to.Name, err)
	}
	return t, nil
}

// finish restores the entries for the version of the result, and adds entries for the version of the source.
func (c *conversion) finish(dst, text []byte, source, result *tree, kept notes, from *version) ([]byte, error) {
	if c.Forget {
		return result.append(dst), nil
	}
	back, err := c.back(result, from)
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
	return result.append(dst), nil
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
	whole := treeOf(append(members, '}'))
	if whole.isObject() && !from.known.All(text, ours...) {
		c := carrier{exact: true}
		c.object(source, whole, from.known, from.known, ours)
	}
	if m := source.member("metadata"); m != nil {
		whole.set("metadata", *m)
	}
	return whole, nil
}
