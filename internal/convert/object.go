package convert

// This file converts one object.

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/patch"
)

// The members of an object that this package writes itself.
var ours = []string{"apiVersion", "kind", "metadata"}

// conversion is the conversion of one object.
type conversion struct {
	*call
	kind string

	all bool // the type of the latest source knows all of its members
	end int  // of the metadata in the latest result, if it is as it arrived; 0 if not
}

// object appends the converted object.
func (c *conversion) object(dst []byte, o *object) ([]byte, error) {
	m := o.metadata
	if m.err != nil {
		return dst, m.err
	}
	switch {
	case o.from != c.hub && c.to != c.hub:
		return c.throughHub(dst, o)
	case m.isAnnotated:
		return c.annotated(dst, o)
	}
	start := len(dst)
	dst, err := c.convert(dst, o.text, &m, o.from, c.to)
	if err != nil {
		return dst, err
	}
	kept, back, err := c.isKept(o, &m, dst[start:])
	if kept {
		return dst, nil
	}
	return c.keep(dst[:start], o, dst[start:], back, err)
}

// isKept reports whether the result surely holds all that is to be kept. This is so for most objects: an API server sends
// objects as the library writes them, sorted and compact, so that the way back gives the same text. It also returns the way
// back, or nil if there is none, and the error of that.
func (c *conversion) isKept(o *object, m *metadata, text []byte) (kept bool, back []byte, err error) {
	if c.Forget {
		return c.all, nil, nil
	}
	again, err := c.again(text, m)
	if err != nil {
		return false, nil, err
	}
	if again, err = c.run(again, c.to, o.from); err != nil {
		return false, nil, err
	}
	c.scratch, err = c.write(slices.Grow(c.scratch[:0], len(o.text)+1), again, m, c.to, o.from)
	return bytes.Equal(c.scratch, o.text), c.scratch, err
}

// again decodes the latest result. Metadata that is as it arrived is copied instead, if the type leaves it to the decoder.
func (c *conversion) again(text []byte, m *metadata) (runtime.Object, error) {
	if of, _ := knownMember(c.to.known(), "metadata"); of != nil && c.end > 0 && text[c.end] == ',' {
		text[c.end] = '{'
		o, _, err := decoded(text[c.end:], c.to)
		text[c.end] = ','
		if of, ok := metadataOf(o).(*metav1.ObjectMeta); ok && err == nil {
			*of = detached(m.before)
			c.name(o, c.to)
			return o, nil
		}
	}
	o, _, err := decoded(text, c.to)
	return o, err
}

// head appends a result up to its metadata.
func (c *conversion) head(dst []byte, to *version) []byte {
	dst = append(append(dst, `{"apiVersion":"`...), to.apiVersion...)
	dst = append(dst, `","kind":`...)
	return append(jsontext.AppendString(dst, c.kind), `,"metadata":`...)
}

// convert appends the object in another version. The annotations must have been removed from the text.
func (c *conversion) convert(dst, text []byte, m *metadata, from, to *version) ([]byte, error) {
	source, all, err := decoded(text, from)
	if err != nil {
		return dst, err
	}
	c.all = all
	m.remember(source)
	result, err := c.run(source, from, to)
	if err != nil {
		return dst, err
	}
	return c.write(dst, result, m, from, to)
}

// write appends the result of a conversion.
func (c *conversion) write(dst []byte, result runtime.Object, m *metadata, from, to *version) (_ []byte, err error) {
	start, of := len(dst), metadataOf(result)
	dst = c.head(dst, to)
	if c.end = 0; m.isAsBefore(of) {
		dst = append(dst, m.text...)
		c.end = len(dst) - start
	} else if dst, err = m.append(dst, of); err != nil {
		return dst, fmt.Errorf("%s: %w", way(from, to), err)
	}
	if dst, err = patch.AppendMembers(dst, body(result), ours...); err != nil {
		return dst, fmt.Errorf("the result of %s cannot be written as JSON: %w", way(from, to), err)
	}
	return append(dst, '}'), nil
}

func way(from, to *version) string { return "the conversion from " + from.Name + " to " + to.Name }

// decoded decodes an object. all is true if its type knows all of its members.
func decoded(text []byte, v *version) (o runtime.Object, all bool, err error) {
	if v.isTree() {
		o = &unstructured.Unstructured{}
	} else {
		o = reflect.New(v.Type.Elem()).Interface().(runtime.Object)
	}
	if all, err = decode.Whole(text, body(o)); err != nil {
		return nil, false, fmt.Errorf("it cannot be read as %s: %w", v.Name, err)
	}
	return o, all, nil
}

// run calls the function that leads from a spoke to the hub, or from the hub to a spoke, and checks its result. A panic is
// an error.
func (c *conversion) run(o runtime.Object, from, to *version) (result runtime.Object, err error) {
	f := to.FromHub
	if from.ToHub != nil {
		f = from.ToHub
	}
	if err := c.ctx.Err(); err != nil {
		return nil, err
	}
	defer func() {
		if value := recover(); value != nil {
			err = c.panicked(value)
		}
	}()
	result, err = f(c.ctx, o)
	if err != nil {
		return nil, fmt.Errorf("%s failed: %w", way(from, to), err)
	}
	if err := c.check(result, from, to); err != nil {
		return nil, fmt.Errorf("%s: %w", way(from, to), err)
	}
	c.name(result, to)
	return result, nil
}

// name gives an object its apiVersion and kind.
func (c *conversion) name(o runtime.Object, v *version) {
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Group: v.gv.Group, Version: v.gv.Version, Kind: c.kind})
}

// check returns an error unless an object is one of the version that was asked for. Its apiVersion and kind can be
// empty, or still be those of the source.
func (c *conversion) check(o runtime.Object, from, to *version) error {
	if o == nil || reflect.ValueOf(o).Kind() == reflect.Pointer && reflect.ValueOf(o).IsNil() {
		return errors.New("it returned no object; return one, or an error")
	}
	want := to.Type
	if to.isTree() {
		want = reflect.TypeFor[*unstructured.Unstructured]()
	}
	if got := reflect.TypeOf(o); got != want {
		return fmt.Errorf("it returned a %s; return a %s", got, want)
	}
	if u, ok := o.(*unstructured.Unstructured); ok && u.Object == nil {
		return errors.New("it returned an empty tree; return a whole object")
	}
	apiVersion, kind := o.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	if apiVersion != "" && apiVersion != to.apiVersion && apiVersion != from.apiVersion {
		return fmt.Errorf("it returned an object of %s; leave apiVersion empty, or set %s", apiVersion, to.apiVersion)
	}
	if kind != "" && kind != c.kind {
		return fmt.Errorf("it returned a %s; leave kind empty, or set %s", kind, c.kind)
	}
	return nil
}

// body returns a pointer to the struct or the tree that holds the members of an object.
func body(o runtime.Object) any {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return &u.Object
	}
	return o
}
