package convert

// This file keeps what the way back does not restore.

import (
	"bytes"
	"fmt"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/patch"
)

// annotated is object for one that has annotations.
func (c *conversion) annotated(dst []byte, o *object) ([]byte, error) {
	source, err := parseObject(o.text)
	if err != nil {
		return dst, err
	}
	n := c.take(source)
	text := source.Append(nil)
	h, err := c.hop(text, source, o.from, c.to)
	if err != nil {
		return dst, err
	}
	if restored := h.tree.Clone(); restore(restored, n.entries) > 0 {
		plain := h.tree
		h.tree = restored
		if h.back, err = c.back(restored, o.from); err != nil {
			// They were signed for another object, of which they are a copy.
			c.ignored(fmt.Errorf("the kept values are not applied, because they break the object: %w", err))
			h.tree = plain
			n.others = append(n.others, list.Of(n.entries, func(e entry) *tree { return e.annotation })...)
		}
	}
	return c.finish(dst, text, source, h, n, o.from)
}

// throughHub converts an object of one spoke to another in two steps, so that what is kept for the hub is restored in
// between, and what the hub holds is kept for the hub.
func (c *conversion) throughHub(dst []byte, o *object) ([]byte, error) {
	first := *c.call
	first.to, first.scratch = c.hub, nil
	text, err := (&conversion{call: &first, kind: c.kind}).object(nil, o)
	if err != nil {
		return dst, err
	}
	t, err := parseObject(text)
	if err != nil {
		return dst, err
	}
	return c.object(dst, &object{text: text, metadata: metadataIn(t), kind: o.kind, from: c.hub})
}

// keep appends the result of a conversion together with all that the way back does not restore. back is the way back; nil
// if it is not known, or has failed.
func (c *conversion) keep(dst []byte, o *object, result, back []byte, failed error) ([]byte, error) {
	source, err := parseObject(o.text)
	if err != nil {
		return dst, err
	}
	h := hopped{tree: jsontext.TreeOf(bytes.Clone(result)), failed: failed} // dst is written over it
	if !c.mend(source, h.tree, o.from, c.to) && back != nil {
		h.back = jsontext.TreeOf(bytes.Clone(back))
	}
	return c.finish(dst, o.text, source, h, notes{}, o.from)
}

// hopped is the result of a conversion.
type hopped struct {
	tree   *tree
	back   *tree // the result, converted back; nil if it is not known
	failed error // the way back
}

// hop converts a tree to another version.
func (c *conversion) hop(text []byte, source *tree, from, to *version) (h hopped, err error) {
	m := metadataIn(source)
	if m.err != nil {
		return h, m.err
	}
	converted, err := c.convert(nil, text, &m, from, to)
	if err != nil {
		return h, err
	}
	h.tree = jsontext.TreeOf(converted)
	c.mend(source, h.tree, from, to)
	return h, nil
}

// back converts a result back to the version of the source.
func (c *conversion) back(result *tree, from *version) (*tree, error) {
	h, err := c.hop(result.Append(nil), result, c.to, from)
	return h.tree, err
}

// finish adds annotations for all that the way back does not restore. If that fails, the object does not, because one
// object would then fail each list of its kind.
func (c *conversion) finish(dst, text []byte, source *tree, h hopped, n notes, from *version) ([]byte, error) {
	if c.Forget {
		return h.tree.Append(dst), nil
	}
	if h.back == nil && h.failed == nil {
		h.back, h.failed = c.back(h.tree, from)
	}
	whole, err := canonical(text, source, from)
	if err != nil {
		return dst, err
	}
	err = c.put(h.tree, n, from.Name, func(room int) ([]entry, error) {
		if h.failed != nil {
			return nil, h.failed
		}
		return lossOf(c.ctx, from.Name, whole, h.back, len(text), room)
	})
	if err != nil {
		return dst, err
	}
	return h.tree.Append(dst), nil
}

// canonical returns the source as the way back would give it if nothing were lost.
func canonical(text []byte, source *tree, from *version) (*tree, error) {
	if from.isTree() {
		return source, nil
	}
	o, all, err := decoded(text, from)
	if err != nil {
		return nil, err
	}
	members, err := patch.AppendMembers([]byte(`{"kind":""`), body(o), ours...)
	if err != nil {
		return nil, fmt.Errorf("it cannot be written as %s: %w", from.Name, err)
	}
	whole := jsontext.TreeOf(append(members, '}'))
	if whole.IsObject() && !all {
		c := carrier{exact: true}
		c.object(source, whole, from.known(), from.known(), ours)
	}
	if m := source.Member("metadata"); m != nil {
		whole.Set("metadata", m)
	}
	return whole, nil
}
