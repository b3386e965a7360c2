package preview

// This file reads the manifests that the command line names.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/apiserver"
	"code.cloudfoundry.org/eirinix/offline"
)

// manifest is one object of the input.
type manifest struct {
	source   string // file and, if it has several documents, the number of the document
	document apiserver.Document
	object   *unstructured.Unstructured
}

// input holds the manifests that the command line names, the old objects, and the other objects in the cluster.
type input struct{ manifests, old, with []manifest }

func (in *input) all() []manifest { return slices.Concat(in.manifests, in.old, in.with) }

// standardInput is the path that means standard input, as in kubectl.
const standardInput = "-"

func readInput(f *flags, stdin io.Reader) (*input, error) {
	times := 0
	for _, path := range slices.Concat(f.files, f.old, f.with) {
		if path == standardInput {
			times++
		}
	}
	if times > 1 {
		return nil, errors.New("standard input can be read once; give - once")
	}
	in := &input{}
	var err error
	if in.manifests, err = readPaths(f.files, f.recursive, stdin); err != nil {
		return nil, err
	}
	if in.old, err = readPaths(f.old, f.recursive, stdin); err != nil {
		return nil, fmt.Errorf("-old: %w", err)
	}
	if in.with, err = readPaths(f.with, f.recursive, stdin); err != nil {
		return nil, fmt.Errorf("-with: %w", err)
	}
	for _, m := range in.with {
		if m.object.GetName() == "" {
			return nil, fmt.Errorf("-with: %s: %s has no name; set metadata.name, as every object in a cluster has it", m.source, m.object.GetKind())
		}
	}
	if len(in.manifests) == 0 {
		return nil, fmt.Errorf("%s: no object in it", strings.Join(f.files, ", "))
	}
	return in, nil
}

func readPaths(paths []string, recursive bool, stdin io.Reader) ([]manifest, error) {
	var all []manifest
	for _, path := range paths {
		if path == standardInput {
			text, err := io.ReadAll(stdin)
			if err != nil {
				return nil, fmt.Errorf("standard input: %w", err)
			}
			read, err := readManifests("standard input", text)
			if err != nil {
				return nil, err
			}
			all = append(all, read...)
			continue
		}
		files, err := manifestFiles(path, recursive)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			read, err := readManifests(file, text)
			if err != nil {
				return nil, err
			}
			all = append(all, read...)
		}
	}
	return all, nil
}

// manifestFiles returns a file itself, or the files of a folder that kubectl would read, ordered by name.
func manifestFiles(path string, recursive bool) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	files, err := filesBelow(path, recursive, 0)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("the folder %s holds no .yaml, .yml or .json; -R looks into its folders too", path)
	}
	return files, err
}

// deepest is the maximum depth of nested folders, because links can form a cycle.
const deepest = 40

func filesBelow(folder string, recursive bool, depth int) ([]string, error) {
	if depth > deepest {
		return nil, fmt.Errorf("%s is nested more than %d folders deep; check for a symbolic link to a folder above it", folder, deepest)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		info, err := os.Stat(path) // follows links
		switch {
		case err != nil:
			return nil, err
		case info.IsDir() && recursive:
			more, err := filesBelow(path, recursive, depth+1)
			if err != nil {
				return nil, err
			}
			files = append(files, more...)
		case !info.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
			files = append(files, path)
		}
	}
	return files, nil
}

// readManifests reads the documents of a file. Lists are split into their items.
func readManifests(source string, text []byte) ([]manifest, error) {
	documents, err := apiserver.Documents(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	var all []manifest
	for i, raw := range documents {
		from := source
		if len(documents) > 1 {
			from = fmt.Sprintf("%s, document %d", source, i+1)
		}
		read, err := readManifest(from, raw)
		if err != nil {
			return nil, err
		}
		all = append(all, read...)
	}
	return all, nil
}

// readManifest reads an object, or the objects of a List, such as kubectl get prints.
func readManifest(source string, raw []byte) ([]manifest, error) {
	document, err := apiserver.ReadDocument(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	object := document.Unstructured()
	if !strings.HasSuffix(object.GetKind(), "List") || !object.IsList() {
		return []manifest{{source, document, object}}, nil
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	var all []manifest
	for i, item := range list.Items {
		if of := strings.TrimSuffix(object.GetKind(), "List"); of != "" { // items of a PodList can lack their kind
			if item, err = typedItem(item, object.GetAPIVersion(), of); err != nil {
				return nil, fmt.Errorf("%s, item %d: %w", source, i+1, err)
			}
		}
		read, err := readManifest(fmt.Sprintf("%s, item %d", source, i+1), item)
		if err != nil {
			return nil, err
		}
		all = append(all, read...)
	}
	return all, nil
}

func typedItem(item []byte, apiVersion, kind string) ([]byte, error) {
	var tree map[string]json.RawMessage
	if err := json.Unmarshal(item, &tree); err != nil {
		return nil, err
	}
	if tree["apiVersion"] != nil || tree["kind"] != nil {
		return item, nil
	}
	tree["apiVersion"], tree["kind"] = json.RawMessage(strconv.Quote(apiVersion)), json.RawMessage(strconv.Quote(kind))
	return json.Marshal(tree)
}

// definition is the kind CustomResourceDefinition, which defines other kinds.
var definition = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// resources returns the kinds of the input that the scheme does not know. They are as CustomResourceDefinitions among
// the input define them, or else have the regular plural.
func (in *input) resources(known func(schema.GroupVersionKind) bool) []offline.Resource {
	var all []offline.Resource
	add := func(r offline.Resource) {
		if !slices.ContainsFunc(all, func(a offline.Resource) bool { return a.Kind == r.Kind }) {
			all = append(all, r)
		}
	}
	read := in.all()
	for _, m := range read {
		if m.document.Kind.GroupKind() == definition {
			for _, r := range definedBy(m.object) {
				add(r)
			}
		}
	}
	for _, m := range read {
		if !known(m.document.Kind) {
			add(offline.Resource{Kind: m.document.Kind, ClusterScoped: m.document.Kind.GroupKind() == definition})
		}
	}
	return all
}

// definedBy returns the versions of the kind that a CustomResourceDefinition defines.
func definedBy(crd *unstructured.Unstructured) []offline.Resource {
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(crd.Object, path...)
		return s
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	var all []offline.Resource
	for _, v := range versions {
		version, _ := v.(map[string]any)
		name, _, _ := unstructured.NestedString(version, "name")
		if kind := text("spec", "names", "kind"); kind != "" && name != "" {
			all = append(all, offline.Resource{
				Kind:     schema.GroupVersionKind{Group: text("spec", "group"), Version: name, Kind: kind},
				Resource: text("spec", "names", "plural"), ClusterScoped: text("spec", "scope") == "Cluster",
			})
		}
	}
	return all
}

// namespaces returns the labels of the Namespaces of the input, by name. Those among the manifests come first, then the
// old ones.
func (in *input) namespaces() map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, m := range slices.Concat(in.with, in.old, in.manifests) {
		if m.document.Kind == (schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}) {
			all[m.object.GetName()] = m.object.GetLabels()
		}
	}
	return all
}

// modes returns the ConfigMap with the modes of the steps, or nil if it is not there. A program that does not say its own
// namespace takes the only one of that name.
func (in *input) modes(o eirinix.ManagerOptions) (*corev1.ConfigMap, error) {
	namespace := cmp.Or(o.WebhookNamespace, o.Namespace)
	var found *corev1.ConfigMap
	for _, m := range slices.Concat(in.with, in.manifests) {
		object := m.object
		if o.ModesConfigMap == "" || object.GroupVersionKind() != corev1.SchemeGroupVersion.WithKind("ConfigMap") || object.GetName() != o.ModesConfigMap ||
			namespace != "" && cmp.Or(object.GetNamespace(), namespace) != namespace {
			continue
		}
		if found != nil && found.Namespace != object.GetNamespace() {
			return nil, fmt.Errorf("%s: there are several ConfigMaps %s with modes; give the program's namespace as ManagerOptions.WebhookNamespace", m.source, o.ModesConfigMap)
		}
		found = &corev1.ConfigMap{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, found); err != nil {
			return nil, fmt.Errorf("%s: %w", m.source, err)
		}
	}
	return found, nil
}
