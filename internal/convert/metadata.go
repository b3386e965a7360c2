package convert

// This file keeps the metadata of an object, of which a conversion can change labels and annotations alone.

import (
	"bytes"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/patch"
)

// The members of the metadata that a conversion can change.
var changeable = []string{"labels", "annotations"}

// metadataText is the metadata of an object as it arrived.
type metadataText struct {
	text        []byte
	labels      []byte // nil if there are none
	annotations []byte
	isAnnotated bool // it holds annotations of this package
	err         error
}

// metadata is metadataText beside the decoded metadata.
type metadata struct {
	metadataText

	// before is a shallow copy of the decoded metadata, so that most of it is compared without its text. Conversions can
	// change the contents of its lists and maps.
	before   metav1.ObjectMeta
	isCopied bool
}

// metadata reads a value that is metadata, and finds the annotation.
func (r *reader) metadata() (m metadataText) {
	if r.Peek() != '{' {
		if m.text = r.Value(); isNull(m.text) {
			m.text = nil
		}
		return m
	}
	inner := *r
	inner.members(func(name []byte) {
		switch text := inner.Value(); string(name) {
		case "labels":
			m.labels = text
		case "annotations":
			m.annotations = text
		}
	})
	if err := inner.err(); err != nil {
		m.err = fmt.Errorf("metadata: %w", err)
		m.text = r.Value()
		return m
	}
	m.text = r.Text[r.At:inner.At:inner.At]
	r.At = inner.At
	if m.annotations != nil && m.annotations[0] == '{' {
		names := readerOf(m.annotations)
		for more := names.Enter('{'); more; more = names.More('{') {
			m.isAnnotated = bytes.HasPrefix(names.Name(), []byte(Prefix)) || m.isAnnotated
			names.Value()
		}
	}
	return m
}

// begin takes the metadata of an object that is about to be converted.
func (m *metadata) begin(of metadataText) error {
	*m = metadata{metadataText: of}
	if m.text == nil {
		m.text = []byte("{}")
	}
	return m.err
}

func metadataOfText(text []byte) metadataText {
	if text == nil {
		return metadataText{}
	}
	r := readerOf(text)
	return r.metadata()
}

// metadataOf returns a pointer to the metadata of an object: a struct or a tree. It is nil if there is none.
func metadataOf(o runtime.Object) any {
	if u, ok := o.(*unstructured.Unstructured); ok {
		tree, _ := u.Object["metadata"].(map[string]any)
		if tree == nil {
			tree = map[string]any{}
		}
		return &tree
	}
	if with, ok := o.(metav1.ObjectMetaAccessor); ok {
		if m, ok := with.GetObjectMeta().(*metav1.ObjectMeta); ok && m != nil {
			return m
		}
	}
	return nil
}

// remember keeps the metadata of the decoded source.
func (m *metadata) remember(source runtime.Object) {
	if of, ok := metadataOf(source).(*metav1.ObjectMeta); ok {
		m.before, m.isCopied = *of, true
	}
}

// isSame reports whether the metadata of an object is surely unchanged.
func (m *metadata) isSame(of any) bool {
	if of, ok := of.(*metav1.ObjectMeta); ok && m.isCopied && m.isFixed(of) {
		return isSameMap(m.labels, of.Labels) && isSameMap(m.annotations, of.Annotations)
	}
	return of != nil && decode.Same(m.text, of, true)
}

func isSameMap(text []byte, m map[string]string) bool {
	if text == nil {
		return len(m) == 0
	}
	return decode.Same(text, &m, false)
}

// isFixed reports whether all but labels and annotations is surely unchanged. The managed fields of an object are the
// same if they are the same memory. Their text is never written from it.
func (m *metadata) isFixed(of *metav1.ObjectMeta) bool {
	b := &m.before
	if b.SelfLink != of.SelfLink { //nolint:staticcheck // deprecated, but a conversion must not change it either
		return false
	}
	return b.Name == of.Name && b.GenerateName == of.GenerateName && b.Namespace == of.Namespace &&
		b.UID == of.UID && b.ResourceVersion == of.ResourceVersion &&
		b.Generation == of.Generation && b.CreationTimestamp == of.CreationTimestamp &&
		b.DeletionTimestamp == nil && of.DeletionTimestamp == nil &&
		b.DeletionGracePeriodSeconds == nil && of.DeletionGracePeriodSeconds == nil &&
		len(b.OwnerReferences) == 0 && len(of.OwnerReferences) == 0 && len(b.Finalizers) == 0 && len(of.Finalizers) == 0 &&
		len(b.ManagedFields) == len(of.ManagedFields) &&
		(len(b.ManagedFields) == 0 || &b.ManagedFields[0] == &of.ManagedFields[0])
}

// append appends the metadata as it arrived, with the labels and annotations of a converted object. It returns an error
// if anything else is changed.
func (m *metadata) append(dst []byte, of any) ([]byte, error) {
	if of == nil {
		return dst, fmt.Errorf("its result has no metav1.ObjectMeta; embed one in the Go type")
	}
	if m.isSame(of) {
		return append(dst, m.text...), nil
	}
	if typed, ok := of.(*metav1.ObjectMeta); (!ok || !m.isCopied || !m.isFixed(typed)) &&
		!decode.Same(m.text, of, true, changeable...) {
		if err := m.changed(of); err != nil {
			return dst, err
		}
	}
	before := dst
	r := readerOf(m.text)
	r.members(func(name []byte) {
		value := r.Value()
		if s := string(name); s != "labels" && s != "annotations" {
			dst = append(append(jsontext.AppendString(append(dst, ','), s), ':'), value...)
		}
	})
	err := r.err()
	if err != nil {
		return dst, err
	}
	switch of := of.(type) {
	case *metav1.ObjectMeta:
		dst, err = patch.AppendMembers(dst, &struct {
			Labels      map[string]string `json:"labels,omitempty"`
			Annotations map[string]string `json:"annotations,omitempty"`
		}{of.Labels, of.Annotations})
	case *map[string]any:
		changed := map[string]any{}
		for _, name := range changeable {
			if value := (*of)[name]; value != nil {
				changed[name] = value
			}
		}
		dst, err = patch.AppendMembers(dst, &changed)
	}
	return patch.InBraces(before, dst), err
}

// changed returns an error that names a member that a conversion has changed. It looks at those that metav1.ObjectMeta
// knows. A tree that was made of a Go type lacks all others, and they are written as they arrived.
func (m *metadata) changed(of any) error {
	text, err := patch.AppendMembers(nil, of)
	if err != nil {
		return err
	}
	was, err := asKnown(m.text)
	if err != nil {
		return err
	}
	is, err := asKnown(patch.InBraces(nil, text))
	if err != nil {
		return err
	}
	for _, member := range append(slices.Clone(was.Items), is.Items...) {
		if a, b := was.Member(member.Name), is.Member(member.Name); !same(a, b) {
			return fmt.Errorf("it changed metadata.%s from %.100s to %.100s; a conversion can change labels and annotations alone",
				member.Name, a.Append(nil), b.Append(nil))
		}
	}
	return nil
}

// asKnown returns what metav1.ObjectMeta knows of metadata, without labels and annotations.
func asKnown(text []byte) (*tree, error) {
	of := &metav1.ObjectMeta{}
	if err := decode.Into(text, of); err != nil {
		return nil, fmt.Errorf("metadata cannot be read: %w", err)
	}
	members, err := patch.AppendMembers(nil, of, changeable...)
	if err != nil {
		return nil, err
	}
	return parseObject(patch.InBraces(nil, members))
}
