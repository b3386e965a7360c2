package world

// This file is an agent that copies the certificates of the issuer, and the CA of callers, from the cluster into files, one after the other.
// Programs read their certificates there instead.

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/ca"
)

// filed reports whether certificates come from files, and filesCallers whether the CA of callers does.
func (p Plan) filed() bool        { return p.Issued && p.Seed%6 == 5 }
func (p Plan) filesCallers() bool { return p.Callers && p.Seed%2 == 1 }

// dir is where the files are, of one world at a time.
func (w *World) dir() string { return w.authorities.dir }

// fromFiles is the source of certificates in files.
func (w *World) fromFiles() eirinix.CertificateSource { return eirinix.FromFiles(w.dir(), "", "", "") }

// mounts makes the folder, and keeps its files as the objects are.
func (w *World) mounts() (err error) {
	if !w.plan.filed() && !w.plan.filesCallers() {
		return nil
	}
	if w.authorities.dir, err = os.MkdirTemp("", "world"); err != nil {
		return err
	}
	w.excuse(unissued, 30*time.Second) // the first certificate is written after that
	held := map[string][]byte{}
	w.files(held, func(time.Duration) bool { return true })
	w.tasks.Go(func() {
		for w.wait(time.Second) {
			w.files(held, w.wait)
		}
		_ = os.RemoveAll(w.dir()) // it is a temporary one
	})
	return nil
}

// files writes the changes.
func (w *World) files(held map[string][]byte, wait func(time.Duration) bool) {
	is := map[string][]byte{}
	for _, from := range []struct{ kind, name string }{{"Secret", issuedName}, {"ConfigMap", callersName}} {
		object := w.find(from.kind, namespace, from.name)
		if object == nil {
			continue
		}
		data, _, _ := unstructured.NestedStringMap(object.Object, "data")
		for key, text := range data {
			content := []byte(text)
			if from.kind == "Secret" {
				content, _ = base64.StdEncoding.DecodeString(text) // an API server has read it too
			} else {
				key = callersName + "-" + key
			}
			is[key] = content
		}
	}
	rng := w.stream("files", len(held)+int(time.Since(w.began).Seconds()))
	names := slices.Collect(maps.Keys(held))
	names = slices.Compact(slices.Sorted(slices.Values(append(names, slices.Collect(maps.Keys(is))...))))
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		content, there := is[name]
		if string(content) == string(held[name]) && (there || held[name] == nil) {
			continue
		}
		path := filepath.Join(w.dir(), name)
		var err error
		if there {
			if was, callers := held[name], name == callersName+"-ca.crt"; callers && was != nil && !w.halved(path, content, rng, wait) {
				return
			}
			held[name] = content
			err = errors.Join(os.WriteFile(path+".new", content, 0o600), os.Rename(path+".new", path))
		} else {
			delete(held, name)
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.violate("a file cannot be written: %v", err)
		}
		if !wait(time.Duration(rng.Int64N(int64(time.Second)))) {
			return
		}
	}
}

// halvedFor is how long a file at most has its first half alone, while it is written.
const halvedFor = 8 * time.Second

// halved writes the first half of a file of several certificates, half of the time. It returns false at the end of the world.
func (w *World) halved(path string, content []byte, rng *rand.Rand, wait func(time.Duration) bool) bool {
	if rng.IntN(2) == 0 {
		return true
	}
	w.excuse(unissued, halvedFor+settling) // a process that starts meanwhile cannot read it
	if err := os.WriteFile(path, content[:len(content)/2+100], 0o600); err != nil {
		w.violate("a file cannot be written: %v", err)
	}
	return wait(time.Duration(rng.Int64N(int64(halvedFor))))
}

// inAnyOrder is a bundle of two CAs.
func inAnyOrder(rng *rand.Rand, a, b []byte) []byte {
	if rng.IntN(2) == 0 {
		a, b = b, a
	}
	return ca.Bundle(a, b)
}
