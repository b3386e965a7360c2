package convert

// This file reads and writes the annotation.

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

// Annotation holds the members that the object's version cannot hold, for each version that they belong to.
//
// Its value is a JSON object. The name of each member is a version. The value is a list of entries:
//
//	{"path": ["spec", "rules", ["web"], "port"], "value": 1e3, "base": null}
//
// A string in the path is a member, and a string in brackets is the item of a list with this name. "value" is the lost
// value and "base" the one that stands there without it; either can be missing. "after" is the name of the item in front
// of a lost item. "item": true means the item without a name that equals the base.
const Annotation = "eirinix.cloudfoundry.org/conversion"

// mostAnnotated bounds the annotation. An API server accepts 256 KiB for all annotations of an object.
const mostAnnotated = 64 << 10

// notes are the contents of the annotation, by version.
type notes map[string]*tree

// takeNotes removes the annotation from an object and parses it. An error means that it is to be ignored.
func takeNotes(object *tree) (notes, error) {
	metadata := object.Member("metadata")
	annotations := metadata.Member("annotations")
	value := annotations.Member(Annotation)
	text, ok := stringOf(value)
	annotations.Remove(Annotation)
	if len(annotations.Items) == 0 {
		metadata.Remove("annotations")
	}
	switch {
	case !ok:
		return nil, errors.New("it is not a string")
	case len(text) > mostAnnotated:
		return nil, fmt.Errorf("it has %d bytes; at most %d are read", len(text), mostAnnotated)
	}
	root, err := parseTree([]byte(text))
	if err != nil {
		return nil, err
	}
	if !root.IsObject() {
		return nil, errNotObject
	}
	n := notes{}
	for _, list := range root.Items {
		if !list.IsList() {
			return nil, fmt.Errorf("%.100q is not a list", list.Name)
		}
		n[list.Name] = list
	}
	return n, nil
}

// put adds the annotation to an object, unless it would be empty.
func (n notes) put(object *tree, from string) error {
	if len(n) == 0 {
		return nil
	}
	text := []byte{'{'}
	for i, version := range slices.Sorted(maps.Keys(n)) {
		if i > 0 {
			text = append(text, ',')
		}
		text = n[version].Append(append(jsontext.AppendString(text, version), ':'))
	}
	text = append(text, '}')
	if len(text) > mostAnnotated {
		return fmt.Errorf("the other version cannot hold all of %s, and its annotation %s would have %d bytes of at most %d; "+
			"make the object smaller, or set Forget to lose these members", from, Annotation, len(text), mostAnnotated)
	}
	metadata := object.Member("metadata")
	annotations := metadata.Member("annotations")
	if !annotations.IsObject() {
		metadata.Set("annotations", jsontext.NewTree('{'))
		annotations = metadata.Member("annotations")
	}
	annotations.Set(Annotation, stringTree(string(text)))
	return nil
}

func stringTree(s string) *tree { return jsontext.TreeOf(jsontext.AppendString(nil, s)) }

// listed returns entries as a tree.
func listed(entries []entry) *tree {
	list := jsontext.NewTree('[')
	for i := range entries {
		list.Items = append(list.Items, entries[i].tree())
	}
	return list
}

func (e *entry) tree() *tree {
	path := jsontext.NewTree('[')
	for _, s := range e.path {
		item := stringTree(s.name)
		if s.isItem {
			item = jsontext.NewTree('[', item)
		}
		path.Items = append(path.Items, item)
	}
	t := jsontext.NewTree('{')
	t.Set("path", path)
	if e.value != nil {
		t.Set("value", e.value)
	}
	if e.base != nil {
		t.Set("base", e.base)
	}
	if e.after != "" {
		t.Set("after", stringTree(e.after))
	}
	if e.isItem {
		t.Set("item", jsontext.TreeOf([]byte("true")))
	}
	return t
}

// entriesOf parses the entries of one version.
func entriesOf(list *tree) ([]entry, error) {
	entries := make([]entry, len(list.Items))
	for i, item := range list.Items {
		if err := entries[i].parse(item); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return entries, nil
}

func (e *entry) parse(t *tree) error {
	path := t.Member("path")
	if !path.IsList() {
		return errors.New("it has no path")
	}
	for _, item := range path.Items {
		isItem := item.IsList() && len(item.Items) == 1
		if isItem {
			item = item.Items[0]
		}
		name, ok := stringOf(item)
		if !ok {
			return errors.New("its path is malformed")
		}
		e.path = append(e.path, step{name, isItem})
	}
	e.value, e.base = present(t.Member("value")), present(t.Member("base"))
	e.after, _ = stringOf(t.Member("after"))
	e.isItem = t.Member("item") != nil
	return e.check()
}

// check refuses a path to anything that a conversion cannot change.
func (e *entry) check() error {
	if len(e.path) == 0 || e.path[0].isItem {
		return errors.New("its path is malformed")
	}
	switch e.path[0].name {
	case "apiVersion", "kind":
	case "metadata":
		if len(e.path) < 2 || e.path[1].isItem || !slices.Contains(changeable, e.path[1].name) {
			break
		}
		if len(e.path) > 2 && e.path[2].name == Annotation {
			break
		}
		return nil
	default:
		return nil
	}
	return errors.New("its path leads to a member that no conversion changes")
}
