package manifests

// This file makes the files of a kustomize base, and writes files into a folder.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// forHelm and forKustomize mark the files that may be overwritten and removed. A chart and a base can be in one folder.
const (
	forHelm      = "# Made by eirinix for Helm. What you change here is lost when it is made again."
	forKustomize = "# Made by eirinix for kustomize. What you change here is lost when it is made again."
)

func nameOf(tree map[string]any) string {
	return valueAt[string](tree, "metadata", "name")
}

// filesOf returns a file name for each object: its kind and name. The name of a Job is without its hash, so that a new
// Job takes the file of the old one.
func filesOf(trees []map[string]any) map[string]map[string]any {
	files := map[string]map[string]any{}
	for _, tree := range trees {
		name := nameOf(tree)
		if at := strings.Index(name, registerInfix); tree["kind"] == "Job" && at >= 0 {
			name = name[:at+len(registerInfix)-1]
		}
		base := strings.ToLower(fmt.Sprint(tree["kind"], "-", strings.ReplaceAll(name, ":", "-")))
		file := base + ".yaml"
		for n := 2; files[file] != nil; n++ {
			file = fmt.Sprintf("%s-%d.yaml", base, n)
		}
		files[file] = tree
	}
	return files
}

// Kustomization writes objects into a folder as a kustomize base: a file for each object, and kustomization.yaml. An
// overlay can change the image, the replicas and more. For another namespace, it must also replace the namespace in rights
// and arguments: docs/gitops.md shows how.
//
// The folder is made if it is missing. A second call with the same objects changes nothing. Files of an earlier call that
// are not needed any more are removed, and other files are left alone. If one of those is in the way, Kustomization writes
// nothing and returns an error that names it.
func Kustomization(dir string, objects ...client.Object) error {
	return named("Kustomization", writeFolder(dir, forKustomize, kustomization, objects))
}

// kustomization returns the files of a kustomize base with these objects.
func kustomization(objects ...client.Object) (map[string][]byte, error) {
	trees, err := treesOf(objects...)
	files, resources := map[string][]byte{}, filesOf(trees)
	for file, tree := range resources {
		files[file] = append([]byte(forKustomize+"\n"), textOf(tree)...)
	}
	files["kustomization.yaml"] = append([]byte(forKustomize+"\n"), textOf(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": slices.Sorted(maps.Keys(resources)),
	})...)
	return files, err
}

// writeFolder writes the files of objects, which hold the mark, into a folder, which it makes. Files of an earlier call,
// which hold it too, are removed if they are not needed any more: from the folders that the files are in, and from no
// others. Other files are left alone; if one of those has the name of a file, nothing is written.
func writeFolder(folder, mark string, filesOf func(...client.Object) (map[string][]byte, error), objects []client.Object) error {
	files, err := filesOf(objects...)
	if err != nil {
		return err
	}
	var foreign, errs []error
	var stale []string
	folders := map[string]bool{}
	for file := range files {
		folders[path.Dir(file)] = true
	}
	for inside := range folders {
		entries, err := os.ReadDir(filepath.Join(folder, filepath.FromSlash(inside)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, entry := range entries {
			name := filepath.Join(folder, filepath.FromSlash(inside), entry.Name())
			_, wanted := files[path.Join(inside, entry.Name())]
			switch ours := entry.Type().IsRegular() && holds(name, mark); {
			case wanted && !ours:
				foreign = append(foreign, fmt.Errorf("%s was not made by eirinix; move it away, or choose another folder", name))
			case !wanted && ours:
				stale = append(stale, name)
			}
		}
	}
	if err := errors.Join(foreign...); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		errs = append(errs, writeFile(filepath.Join(folder, filepath.FromSlash(name)), files[name]))
	}
	for _, name := range stale {
		errs = append(errs, os.Remove(name))
	}
	return errors.Join(errs...)
}

// holds reports whether a file begins with a mark. A file that cannot be read does not.
func holds(name, mark string) bool {
	file, err := os.Open(name)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }() // it was only read
	head := make([]byte, 200)
	n, _ := io.ReadFull(file, head) // most files are longer, and an empty one is not ours
	return bytes.Contains(head[:n], []byte(strings.TrimPrefix(mark, "# ")))
}

// writeFile writes a file whose text is another one.
func writeFile(name string, text []byte) error {
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, text) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // charts hold no secrets, and others may read them
		return err
	}
	return os.WriteFile(name, text, 0o644) //nolint:gosec // the same
}
