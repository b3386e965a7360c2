package convert

// This file keeps the metadata of an object, of which a conversion can change labels and annotations alone.

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
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

// metadata is the metadata of an object as it arrived.
type metadata struct {
	text        []byte // nil if there is none
	isAnnotated bool   // it holds annotations of this package
	err         error

	// before is the decoded metadata, so that most of it is compared without its text.
	before *metav1.ObjectMeta
}

// metadata reads a value that is metadata, and finds the annotations.
func (r *reader) metadata() (m metadata) {
	if r.Peek() != '{' {
		if m.text = r.Value(); isNull(m.text) {
			m.text = nil
		}
		return m
	}
	inner := *r
	inner.members(func(name []byte) {
		text := inner.Value()
		if string(name) != "annotations" || len(text) == 0 || text[0] != '{' {
			return
		}
		names := readerOf(text)
		for more := names.Enter('{'); more; more = names.More('{') {
			m.isAnnotated = bytes.HasPrefix(names.Name(), []byte(Prefix)) || m.isAnnotated
			names.Value()
		}
	})
	if err := inner.err(); err != nil {
		m.err = fmt.Errorf("metadata: %w", err)
		m.text = r.Value()
		return m
	}
	m.text = r.Text[r.At:inner.At:inner.At]
	r.At = inner.At
	return m
}

// metadataIn returns the metadata of an object.
func metadataIn(object *tree) (m metadata) {
	if t := object.Member("metadata"); !t.IsAbsent() {
		r := readerOf(t.Append(nil))
		m = r.metadata()
	}
	return m
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

// remember keeps the metadata of the decoded source. Conversions can change what it refers to. That of managed fields is
// written as it arrived.
func (m *metadata) remember(source runtime.Object) {
	of, ok := metadataOf(source).(*metav1.ObjectMeta)
	if ok && m.text != nil && len(of.OwnerReferences) == 0 && of.DeletionTimestamp == nil && of.DeletionGracePeriodSeconds == nil {
		before := detached(of)
		m.before = &before
	}
}

// detached copies metadata that remember accepts. Its managed fields are shared.
func detached(of *metav1.ObjectMeta) metav1.ObjectMeta {
	o := *of
	o.Labels, o.Annotations, o.Finalizers = maps.Clone(of.Labels), maps.Clone(of.Annotations), slices.Clone(of.Finalizers)
	return o
}

// isAsBefore reports whether the metadata of a converted object surely is as it arrived. Reflection takes longer.
func (m *metadata) isAsBefore(of any) bool {
	now, ok := of.(*metav1.ObjectMeta)
	was := m.before
	return ok && was != nil && now.Name == was.Name && now.GenerateName == was.GenerateName && now.Namespace == was.Namespace &&
		now.SelfLink == was.SelfLink && now.UID == was.UID && now.ResourceVersion == was.ResourceVersion && now.Generation == was.Generation && //nolint:staticcheck // clients can still send a selfLink
		now.CreationTimestamp == was.CreationTimestamp && now.DeletionTimestamp == nil && now.DeletionGracePeriodSeconds == nil &&
		len(now.OwnerReferences) == 0 && slices.Equal(now.Finalizers, was.Finalizers) &&
		maps.Equal(now.Labels, was.Labels) && maps.Equal(now.Annotations, was.Annotations) && isSameList(now.ManagedFields, was.ManagedFields)
}

func isSameList(a, b []metav1.ManagedFieldsEntry) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || reflect.DeepEqual(a, b))
}

// append appends the metadata as it arrived, with the labels and annotations of a converted object. It returns an error
// if anything else is changed.
func (m *metadata) append(dst []byte, of any) ([]byte, error) {
	if of == nil {
		return dst, fmt.Errorf("its result has no metav1.ObjectMeta; embed one in the Go type")
	}
	all, err := patch.AppendMembers(dst, of)
	if err != nil {
		return dst, err
	}
	all = patch.InBraces(dst, all)
	if bytes.Equal(all[len(dst):], m.text) {
		return all, nil
	}
	is := jsontext.TreeOf(bytes.Clone(all[len(dst):]))
	arrived := jsontext.NewTree('{')
	if m.text != nil {
		arrived = jsontext.TreeOf(m.text)
	}
	if err := isUnchanged(arrived, is); err != nil {
		return dst, err
	}
	for _, name := range changeable {
		was, is := arrived.Member(name), is.Member(name)
		switch {
		case same(was, is) || isEmpty(was) && isEmpty(is):
		case is.IsAbsent():
			arrived.Remove(name)
		default:
			arrived.Set(name, is)
		}
	}
	return arrived.Append(dst), nil
}

func isEmpty(t *tree) bool { return t.IsAbsent() || t.IsObject() && len(t.Items) == 0 }

// isUnchanged returns an error that names a member that a conversion has changed. It looks at those that metav1.ObjectMeta
// knows. A tree that was made of a Go type lacks all others, and they are written as they arrived.
func isUnchanged(was, is *tree) (err error) {
	if was, err = asKnown(was); err != nil {
		return err
	}
	if is, err = asKnown(is); err != nil {
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
func asKnown(t *tree) (*tree, error) {
	of := &metav1.ObjectMeta{}
	if err := decode.Into(t.Append(nil), of); err != nil {
		return nil, fmt.Errorf("metadata cannot be read: %w", err)
	}
	members, err := patch.AppendMembers(nil, of, changeable...)
	if err != nil {
		return nil, err
	}
	return parseObject(patch.InBraces(nil, members))
}
