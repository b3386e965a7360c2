package manifest

// This file writes objects as YAML.

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"
)

// Write writes objects as a YAML stream without the fields that only a cluster fills in. An object with an empty
// TypeMeta gets the one that the scheme knows for it.
func Write(w io.Writer, scheme *runtime.Scheme, objects ...client.Object) error {
	for i, object := range objects {
		text, err := encode(scheme, object)
		if err != nil {
			return fmt.Errorf("object %d (%T) cannot be written as YAML: %w", i, object, err)
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

func encode(scheme *runtime.Scheme, object client.Object) ([]byte, error) {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	if tree["kind"] == nil || tree["apiVersion"] == nil {
		kind, err := apiutil.GVKForObject(object, scheme)
		if err != nil {
			return nil, fmt.Errorf("set its TypeMeta: %w", err)
		}
		tree["apiVersion"], tree["kind"] = kind.ToAPIVersionAndKind()
	}
	delete(tree, "status")
	dropNulls(tree)
	return yaml.Marshal(tree)
}

// dropNulls removes fields that are null, such as creationTimestamp. Empty objects are kept, because they can mean
// "all".
func dropNulls(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, member := range v {
			if member == nil {
				delete(v, key)
				continue
			}
			dropNulls(member)
		}
	case []any:
		for _, item := range v {
			dropNulls(item)
		}
	}
}
