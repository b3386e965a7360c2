package reads

// This file encodes objects for storage, and decodes them for steps.

import (
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	"code.cloudfoundry.org/eirinix/internal/decode"
)

// compact is implemented by the built-in types, as protobuf.
type compact interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// encode returns the text of an object.
func encode(o client.Object) ([]byte, error) {
	switch o := o.(type) {
	case *unstructured.Unstructured:
		return json.Marshal(o.Object)
	case compact:
		return o.Marshal()
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return append(make([]byte, 0, len(text)), text...), nil // without the spare capacity
}

// decodeInto replaces an object with the one of the text. The object shares no memory with the text.
func (v *view) decodeInto(text []byte, into any) error {
	switch o := into.(type) {
	case *unstructured.Unstructured:
		o.Object = nil
		return kjson.UnmarshalCaseSensitivePreserveInts(text, &o.Object)
	case *metav1.PartialObjectMetadata:
		*o = metav1.PartialObjectMetadata{}
		err := o.Unmarshal(text)
		o.SetGroupVersionKind(v.declaration.Kind)
		return err
	case compact:
		reflect.ValueOf(o).Elem().SetZero()
		return o.Unmarshal(text)
	}
	reflect.ValueOf(into).Elem().SetZero()
	return decode.Into(text, into)
}

// withoutManagedFields drops the managed fields. It avoids the interface that all objects have for that, because the
// linker would then keep the method of all kinds of the API. So does named.
func withoutManagedFields(o client.Object) {
	if meta := metaOf(o); meta != nil {
		meta.ManagedFields = nil
	} else if tree, ok := o.(*unstructured.Unstructured); ok {
		unstructured.RemoveNestedField(tree.Object, "metadata", "managedFields")
	}
}

// named sets the namespace, the name and the labels.
func named(o client.Object, namespace, name string, labels map[string]string) {
	if meta := metaOf(o); meta != nil {
		meta.Namespace, meta.Name, meta.Labels = namespace, name, labels
	} else if tree, ok := o.(*unstructured.Unstructured); ok {
		tree.SetNamespace(namespace)
		tree.SetName(name)
		tree.SetLabels(labels)
	}
}

// metaOf returns the metadata of a typed object, or nil.
func metaOf(o client.Object) *metav1.ObjectMeta {
	if typed, ok := o.(metav1.ObjectMetaAccessor); ok {
		meta, _ := typed.GetObjectMeta().(*metav1.ObjectMeta)
		return meta
	}
	return nil
}

// contain turns a panic of the program's function into an error.
func contain(what string, f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s panicked: %v", what, r)
		}
	}()
	f()
	return nil
}
