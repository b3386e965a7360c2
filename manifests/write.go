package manifests

// This file writes objects as YAML.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	utiljson "k8s.io/apimachinery/pkg/util/json" // keeps integers
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix/internal/list"
)

// Write writes objects as YAML for kubectl apply, separated by "---". It omits the status and other fields that only a
// cluster fills in. Every object must either set its kind or be of a built-in one.
func Write(w io.Writer, objects ...client.Object) error {
	trees, err := treesOf(objects...)
	if err == nil {
		texts := list.Of(trees, func(tree map[string]any) []byte { return textOf(tree) })
		_, err = w.Write(bytes.Join(texts, []byte("---\n")))
	}
	return named("Write", err)
}

// named adds the names of the package and of a function to its error, if there is one.
func named(function string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("eirinix: manifests.%s: %w", function, err)
}

// treesOf returns objects as they are written. They share nothing with the objects.
func treesOf(objects ...client.Object) (all []map[string]any, err error) {
	for i, object := range objects {
		tree, err := treeOf(object)
		if err != nil {
			return nil, fmt.Errorf("object %d (%T) cannot be written as YAML: %w", i, object, err)
		}
		all = append(all, tree)
	}
	return all, nil
}

func treeOf(object client.Object) (map[string]any, error) {
	tree := map[string]any{}
	text, err := json.Marshal(object)
	if err == nil {
		err = utiljson.Unmarshal(text, &tree)
	}
	if err != nil {
		return nil, err
	}
	if tree["kind"] == nil || tree["apiVersion"] == nil {
		kind, err := apiutil.GVKForObject(object, scheme.Scheme)
		if err != nil {
			return nil, fmt.Errorf("set its TypeMeta: %w", err)
		}
		tree["apiVersion"], tree["kind"] = kind.ToAPIVersionAndKind()
	}
	delete(tree, "status")
	dropNulls(tree)
	return tree, nil
}

// textOf returns YAML of what treesOf returns, or of a part.
func textOf(tree any) []byte {
	text, _ := yaml.Marshal(tree) // it comes from JSON
	return text
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
