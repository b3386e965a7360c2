package main

// This file specifies what is downloaded instead of being built, and why something is not.

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// entry is an entry of an archive.
type entry struct {
	name, text string
	kind       byte
}

var good = []entry{
	{name: "controller-tools/envtest/", kind: tar.TypeDir},
	{name: "controller-tools/envtest/etcd", text: "etcd"},
	{name: "controller-tools/envtest/kube-apiserver", text: "apiserver"},
	{name: "controller-tools/envtest/kubectl", text: "kubectl"},
}

func pack(entries ...entry) []byte {
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	archived := tar.NewWriter(zipped)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: 0o644, Size: int64(len(e.text))}
		if e.kind == tar.TypeSymlink {
			header.Linkname = "/bin/sh"
		}
		try(archived.WriteHeader(header))
		must(io.WriteString(archived, e.text))
	}
	try(errors.Join(archived.Close(), zipped.Close()))
	return packed.Bytes()
}

// mirror is an index with its archives.
type mirror struct {
	*httptest.Server

	archives  map[string][]byte // by version
	hash      map[string]string // in place of the true one
	index     string            // in place of the true one
	serve     func(w http.ResponseWriter, r *http.Request, archive []byte)
	requests  atomic.Int64
	downloads atomic.Int64 // of archives
}

func newMirror(t *testing.T, versions ...string) *mirror {
	t.Helper()
	m := &mirror{archives: map[string][]byte{}, hash: map[string]string{}}
	for _, version := range versions {
		m.archives[version] = pack(good...)
	}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.requests.Add(1)
		if r.URL.Path == "/index" {
			index := m.index
			if index == "" {
				index = m.text()
			}
			fmt.Fprint(w, index)
			return
		}
		m.downloads.Add(1)
		archive, is := m.archives[strings.TrimPrefix(r.URL.Path, "/archive/")]
		switch {
		case !is:
			http.NotFound(w, r)
		case m.serve != nil:
			m.serve(w, r, archive)
		default:
			_, _ = w.Write(archive)
		}
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *mirror) text() string {
	text := "# made by a program\nreleases:\n"
	for _, version := range slices.Sorted(maps.Keys(m.archives)) { // v1.2.10 comes before v1.2.9
		hash := fmt.Sprintf("%x", sha512.Sum512(m.archives[version]))
		if m.hash[version] != "" {
			hash = m.hash[version]
		}
		text += "  " + version + ":\n"
		for _, platform := range []string{"plan9-mips", runtime.GOOS + "-" + runtime.GOARCH} {
			text += fmt.Sprintf("    envtest-%s-%s.tar.gz:\n      hash: %s\n      selfLink: %s/archive/%s\n", version, platform, hash, m.URL, version)
		}
	}
	return text
}

// taking returns a builder that takes binaries from the mirror, and the file where its builds are recorded.
func taking(t *testing.T, m *mirror, root string, out io.Writer, needed ...string) (*builder, string) {
	t.Helper()
	b, recorded := fake(t, "ok", root, out)
	b.downloads, b.needed = newDownloader(m.URL+"/index", b.progress), needed
	return b, recorded
}

// expectRelease sees of which version the assets are.
func expectRelease(t *testing.T, assets, version string) {
	t.Helper()
	if !strings.HasPrefix(filepath.Base(assets), version+"-"+runtime.GOOS+"-"+runtime.GOARCH+"-envtest-") {
		t.Errorf("assets in %s: not of %s", assets, version)
	}
}

func TestWhatTheIndexHasIsDownloadedOnce(t *testing.T) {
	m, root := newMirror(t, "v1.2.1", "v1.2.3-rc.1", "v1.3.9"), t.TempDir()
	b, recorded := taking(t, m, root, io.Discard, downloadable...)
	for range 2 {
		assets := must(b.assets(t.Context()))
		expectRelease(t, assets, "v1.2.1")
		if found := must(os.ReadDir(assets)); len(found) != 2 {
			t.Errorf("the folder holds %v", found)
		}
		if mode := must(os.Stat(filepath.Join(assets, "etcd"))).Mode(); mode.Perm()&0o111 == 0 || content(filepath.Join(assets, "kube-apiserver")) != "apiserver" {
			t.Errorf("etcd is no program: %v", mode)
		}
		if mode := must(os.Stat(assets)).Mode(); mode.Perm() != 0o755 {
			t.Errorf("other users cannot read it: %v", mode)
		}
	}
	if n := m.requests.Load(); n != 2 {
		t.Errorf("%d requests, want one for the index and one for the archive", n)
	}
	if n := builds(recorded); n != 0 {
		t.Errorf("%d builds", n)
	}
	expectLeft(t, root, 2)
}

func TestTheVersionOfTheSourcesComesFirst(t *testing.T) {
	for want, others := range map[string][]string{"v1.2.3": {"v1.2.10"}, "v1.2.10": {"v1.2.9"}} {
		b, _ := taking(t, newMirror(t, append(others, want)...), t.TempDir(), io.Discard, downloadable...)
		expectRelease(t, must(b.assets(t.Context())), want)
	}
}

func TestOfSeveralDownloadsTheNewestPatchReleaseIsUsed(t *testing.T) {
	root := t.TempDir()
	for _, version := range []string{"v1.2.9", "v1.2.10"} {
		b, _ := taking(t, newMirror(t, version), t.TempDir(), io.Discard, downloadable...)
		assets := must(b.assets(t.Context()))
		try(os.Rename(assets, filepath.Join(root, filepath.Base(assets))))
	}
	b, _ := taking(t, newMirror(t), root, io.Discard, downloadable...)
	expectRelease(t, must(b.assets(t.Context())), "v1.2.10")
}

func TestTheControllerManagerIsBuiltForWhatNeedsIt(t *testing.T) {
	m, root := newMirror(t, "v1.2.3"), t.TempDir()
	plain, recorded := taking(t, m, root, io.Discard, downloadable...)
	first := must(plain.assets(t.Context()))
	if n := builds(recorded); n != 0 {
		t.Fatalf("%d builds", n)
	}
	whole, recorded := taking(t, m, root, io.Discard)
	for run := range 2 {
		if run == 1 { // what is complete needs no lock, which another process may hold for minutes
			defer must(whole.lock(t.Context()))()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if second := must(whole.assets(ctx)); second != first || !complete(second, allNames()) {
			t.Fatal(second)
		}
	}
	if got := content(recorded); got != "build k8s.io/kubernetes/cmd/kube-controller-manager\n" {
		t.Errorf("built: %q", got)
	}
	if got := content(filepath.Join(first, "etcd")); got != "etcd" {
		t.Errorf("etcd is %q", got)
	}
}

func TestABuildThatIsThereIsUsed(t *testing.T) {
	m, root := newMirror(t), t.TempDir()
	builder, _ := fake(t, "ok", root, io.Discard)
	built := must(builder.assets(t.Context()))
	b, _ := taking(t, m, root, io.Discard)
	if assets := must(b.assets(t.Context())); assets != built || m.requests.Load() != 0 {
		t.Errorf("%s, %d requests", assets, m.requests.Load())
	}
}

// hang answers nothing.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// What cannot be downloaded is built, and nothing of it is kept.
func TestWhatCannotBeHadIsBuilt(t *testing.T) {
	whole := pack(good...)
	archive := func(archive []byte) func(*mirror) { return func(m *mirror) { m.archives["v1.2.3"] = archive } }
	index := func(index string) func(*mirror) { return func(m *mirror) { m.index = index } }
	serve := func(serve func(w http.ResponseWriter, r *http.Request, archive []byte)) func(*mirror) {
		return func(m *mirror) { m.serve = serve }
	}
	const brief = 300 * time.Millisecond
	for name, c := range map[string]struct {
		arrange         func(m *mirror)
		says            string
		patience, stall time.Duration // a minute unless given
	}{
		"no index":                     {arrange: func(m *mirror) { m.Close() }, says: "connection refused"},
		"no such index":                {arrange: func(m *mirror) { m.Config.Handler = http.NotFoundHandler() }, says: "404 Not Found"},
		"an index that hangs":          {arrange: func(m *mirror) { m.Config.Handler = http.HandlerFunc(hang) }, says: "no answer within", patience: brief},
		"an index without the release": {arrange: func(m *mirror) { m.archives = map[string][]byte{"v1.3.0": whole} }, says: "it has no Kubernetes 1.2 for"},
		"another page":                 {arrange: index("<html>\nsign in: please"), says: "is no field"},
		"an index of another form":     {arrange: index("releases:\n  v1.2.3:\n    - a: b\n"), says: "not of the form"},
		"an empty index":               {arrange: index("# nothing"), says: "it has no releases"},
		"no checksum":                  {arrange: func(m *mirror) { m.hash["v1.2.3"] = "d41d8cd9" }, says: "has no SHA-512 checksum"},
		"an address of another kind":   {arrange: func(m *mirror) { m.index = strings.ReplaceAll(m.text(), m.URL, "file://localhost") }, says: "which is not https"},
		"a wrong checksum":             {arrange: func(m *mirror) { m.hash["v1.2.3"] = strings.Repeat("0", 128) }, says: "but the index says 0000"},
		"no archive":                   {arrange: serve(func(w http.ResponseWriter, r *http.Request, _ []byte) { http.NotFound(w, r) }), says: "404 Not Found"},
		"an archive that breaks off": {arrange: serve(func(w http.ResponseWriter, _ *http.Request, archive []byte) {
			w.Header().Set("Content-Length", fmt.Sprint(len(archive)))
			_, _ = w.Write(archive[:len(archive)/2])
		}), says: "it broke off after"},
		"an archive that hangs": {arrange: serve(func(w http.ResponseWriter, r *http.Request, archive []byte) {
			_, _ = w.Write(archive[:10])
			w.(http.Flusher).Flush()
			hang(w, r)
		}), says: "no byte came for", stall: brief},
		"an archive of which nothing comes": {arrange: serve(func(w http.ResponseWriter, r *http.Request, _ []byte) { hang(w, r) }), says: "no byte came for", stall: brief},
		"no archive at all":                 {arrange: archive([]byte("<html>")), says: "it is no archive"},
		"half an archive":                   {arrange: archive(whole[:len(whole)/2]), says: "is broken"},
		"an archive without":                {arrange: archive(pack(good[:2]...)), says: "it lacks controller-tools/envtest/kube-apiserver"},
		"a link":                            {arrange: archive(pack(entry{name: "controller-tools/envtest/etcd", kind: tar.TypeSymlink}, good[2])), says: "is no file"},
		"a binary twice":                    {arrange: archive(pack(good[1], good[1], good[2])), says: "is there twice"},
		"a path that leads out":             {arrange: archive(pack(entry{name: "controller-tools/envtest/../../../etcd", text: "x"}, good[2])), says: "it lacks controller-tools/envtest/etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			m, root := newMirror(t, "v1.2.3"), t.TempDir()
			c.arrange(m)
			var out bytes.Buffer
			b, recorded := taking(t, m, root, &out, downloadable...)
			b.downloads.patience, b.downloads.stall = cmp.Or(c.patience, time.Minute), cmp.Or(c.stall, time.Minute)
			if assets := must(b.assets(t.Context())); !complete(assets, allNames()) || builds(recorded) != len(binaries) {
				t.Errorf("%d builds", builds(recorded))
			}
			expectAll(t, out.String(), "are not taken from "+m.URL+"/index, but built: ", c.says)
			expectLeft(t, root, 2)
		})
	}
}

func TestADownloadCanBeInterrupted(t *testing.T) {
	m, root := newMirror(t, "v1.2.3"), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	m.serve = func(w http.ResponseWriter, r *http.Request, _ []byte) {
		cancel()
		hang(w, r)
	}
	b, recorded := taking(t, m, root, io.Discard)
	if _, err := b.assets(ctx); !errors.Is(err, errInterrupted) || builds(recorded) != 0 {
		t.Errorf("%v, %d builds", err, builds(recorded))
	}
	expectLeft(t, root, 1)
}

func TestTheIndexCanBeTurnedOff(t *testing.T) {
	m, root := newMirror(t, "v1.2.3"), t.TempDir()
	b, _ := taking(t, m, root, io.Discard, downloadable...)
	must(b.assets(t.Context()))
	off, recorded := fake(t, "ok", root, io.Discard)
	off.downloads = newDownloader(indexOff, off.progress)
	if assets := must(off.assets(t.Context())); builds(recorded) != len(binaries) || strings.Contains(assets, "envtest") {
		t.Errorf("%s: what was downloaded before does not count either", assets)
	}
}
