package preview

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

// manifest is one object of the input.
type manifest struct {
	source   string // file and, where that has several, number of the document
	document apiserver.Document
	object   *unstructured.Unstructured
}

// input is what the command line names.
type input struct{ manifests, old []manifest }

// standardInput stands for it among paths, as with kubectl.
const standardInput = "-"

func readInput(f *flags, stdin io.Reader) (*input, error) {
	in := &input{}
	var err error
	if in.manifests, err = readPaths(f.files, f.recursive, stdin); err != nil {
		return nil, err
	}
	if in.old, err = readPaths(f.old, f.recursive, stdin); err != nil {
		return nil, fmt.Errorf("-old: %w", err)
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

// manifestFiles are a file itself, and of a folder what kubectl would read there, in the order of names.
func manifestFiles(path string, recursive bool) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(p string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && p != path && !recursive:
			return fs.SkipDir
		case !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(p)):
			files = append(files, p)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("the folder %s holds no .yaml, .yml or .json; -R looks into its folders too", path)
	}
	return files, err
}

// readManifests reads the documents of a file. Lists are taken apart.
func readManifests(source string, text []byte) ([]manifest, error) {
	var parts [][]byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		if !blank(part) {
			parts = append(parts, part)
		}
	}
	var all []manifest
	for i, part := range parts {
		from := source
		if len(parts) > 1 {
			from = fmt.Sprintf("%s, document %d", source, i+1)
		}
		document, err := (&apiserver.Server{}).Read(part)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
		read, err := takeApart(manifest{from, document, document.Unstructured()})
		if err != nil {
			return nil, err
		}
		all = append(all, read...)
	}
	return all, nil
}

// takeApart gives the objects of a List, such as kubectl get prints; of anything else, that itself.
func takeApart(m manifest) ([]manifest, error) {
	if !strings.HasSuffix(m.object.GetKind(), "List") || !m.object.IsList() {
		return []manifest{m}, nil
	}
	var all []manifest
	items, _, err := unstructured.NestedSlice(m.object.Object, "items")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.source, err)
	}
	for i, item := range items {
		from := fmt.Sprintf("%s, item %d", m.source, i+1)
		tree, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s: it is a %T, not an object", from, item)
		}
		document, err := (&apiserver.Server{}).Read(&unstructured.Unstructured{Object: tree})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
		all = append(all, manifest{from, document, document.Unstructured()})
	}
	return all, nil
}

// blank tells whether a document holds nothing but comments.
func blank(part []byte) bool {
	for line := range strings.Lines(string(part)) {
		if line = strings.TrimSpace(line); line != "" && line != "---" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

// definition is the kind that defines others.
var definition = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// resources are kinds of the input that the scheme does not know, by what CustomResourceDefinitions among the
// manifests tell of them, else with their regular plural.
func (in *input) resources(known func(schema.GroupVersionKind) bool) []eirinix.OfflineResource {
	var all []eirinix.OfflineResource
	add := func(r eirinix.OfflineResource) {
		if !slices.ContainsFunc(all, func(a eirinix.OfflineResource) bool { return a.Kind == r.Kind }) {
			all = append(all, r)
		}
	}
	both := slices.Concat(in.manifests, in.old)
	for _, m := range both {
		if m.document.Kind.GroupKind() == definition {
			for _, r := range definedBy(m.object) {
				add(r)
			}
		}
	}
	for _, m := range both {
		if !known(m.document.Kind) {
			add(eirinix.OfflineResource{Kind: m.document.Kind, ClusterScoped: m.document.Kind.GroupKind() == definition})
		}
	}
	return all
}

// definedBy are the versions of the kind that a CustomResourceDefinition defines.
func definedBy(crd *unstructured.Unstructured) []eirinix.OfflineResource {
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(crd.Object, path...)
		return s
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	var all []eirinix.OfflineResource
	for _, v := range versions {
		version, _ := v.(map[string]any)
		name, _, _ := unstructured.NestedString(version, "name")
		if kind := text("spec", "names", "kind"); kind != "" && name != "" {
			all = append(all, eirinix.OfflineResource{
				Kind:     schema.GroupVersionKind{Group: text("spec", "group"), Version: name, Kind: kind},
				Resource: text("spec", "names", "plural"), ClusterScoped: text("spec", "scope") == "Cluster",
			})
		}
	}
	return all
}

// namespaces are the labels of the Namespaces among the manifests.
func (in *input) namespaces() map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, m := range slices.Concat(in.old, in.manifests) {
		if m.document.Kind == (schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}) {
			all[m.object.GetName()] = m.object.GetLabels()
		}
	}
	return all
}
