package main

import (
	"archive/tar"
	"bytes"
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

func pack(t *testing.T, entries ...entry) []byte {
	t.Helper()

	var packed bytes.Buffer

	zipped := gzip.NewWriter(&packed)
	archived := tar.NewWriter(zipped)

	for _, e := range entries {
		kind := e.kind
		if kind == 0 {
			kind = tar.TypeReg
		}

		header := &tar.Header{Name: e.name, Typeflag: kind, Mode: 0o644, Size: int64(len(e.text))}
		if kind == tar.TypeSymlink {
			header.Linkname, header.Size = "/bin/sh", 0
		}

		_, err := 0, archived.WriteHeader(header)
		if header.Size > 0 && err == nil {
			_, err = io.WriteString(archived, e.text)
		}

		if err != nil {
			t.Fatal(err)
		}
	}

	if err := errors.Join(archived.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}

	return packed.Bytes()
}

// mirror is an index with its archives.
type mirror struct {
	*httptest.Server

	archives map[string][]byte // by version
	hash     map[string]string // in place of the true one
	index    string            // in place of the true one
	serve    func(w http.ResponseWriter, r *http.Request, archive []byte)
	requests atomic.Int64
}

func newMirror(t *testing.T) *mirror {
	t.Helper()

	m := &mirror{archives: map[string][]byte{}, hash: map[string]string{}}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.requests.Add(1)

		version := strings.TrimPrefix(r.URL.Path, "/archive/")
		archive, is := m.archives[version]

		switch {
		case r.URL.Path == "/index" && m.index != "":
			fmt.Fprint(w, m.index)
		case r.URL.Path == "/index":
			fmt.Fprint(w, m.text())
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
		archive := m.archives[version]

		hash := fmt.Sprintf("%x", sha512.Sum512(archive))
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

func builds(t *testing.T, recorded string) int {
	t.Helper()

	data, err := os.ReadFile(recorded)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}

	return strings.Count(string(data), "build ")
}

func TestWhatTheIndexHasIsDownloadedOnce(t *testing.T) {
	m, root := newMirror(t), t.TempDir()
	for _, version := range []string{"v1.2.1", "v1.2.3-rc.1", "v1.3.9"} {
		m.archives[version] = pack(t, good...)
	}

	var out bytes.Buffer

	b, recorded := taking(t, m, root, &out, downloadable...)

	for range 2 {
		assets, err := b.assets(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		if !strings.HasPrefix(filepath.Base(assets), "v1.2.1-"+runtime.GOOS+"-"+runtime.GOARCH+"-envtest-") {
			t.Errorf("assets in %s: not of the newest patch release of v1.2.3's minor release", assets)
		}

		if names := entries(t, assets); !slices.Equal(names, []string{"etcd", "kube-apiserver"}) {
			t.Errorf("the folder holds %q", names)
		}

		info, err := os.Stat(filepath.Join(assets, "etcd"))
		if err != nil || info.Mode().Perm()&0o111 == 0 || content(t, filepath.Join(assets, "kube-apiserver")) != "apiserver" {
			t.Errorf("etcd is no program: %v, %v", info.Mode(), err)
		}
	}

	if n := m.requests.Load(); n != 2 {
		t.Errorf("%d requests, want one for the index and one for the archive", n)
	}

	if n := builds(t, recorded); n != 0 {
		t.Errorf("%d builds", n)
	}

	if names := entries(t, root); len(names) != 2 { // the lock and the folder
		t.Errorf("left in the cache: %q", names)
	}
}

func TestTheVersionOfTheSourcesComesFirst(t *testing.T) {
	m := newMirror(t)
	for _, version := range []string{"v1.2.3", "v1.2.10"} {
		m.archives[version] = pack(t, good...)
	}

	b, _ := taking(t, m, t.TempDir(), io.Discard, downloadable...)

	assets, err := b.assets(t.Context())
	if err != nil || !strings.HasPrefix(filepath.Base(assets), "v1.2.3-") {
		t.Errorf("assets in %s, %v", assets, err)
	}

	delete(m.archives, "v1.2.3")
	m.archives["v1.2.9"] = pack(t, good...)

	other, _ := taking(t, m, t.TempDir(), io.Discard, downloadable...)

	if assets, err = other.assets(t.Context()); err != nil || !strings.HasPrefix(filepath.Base(assets), "v1.2.10-") {
		t.Errorf("assets in %s, %v", assets, err)
	}
}

func TestOfSeveralDownloadsTheNewestPatchReleaseIsUsed(t *testing.T) {
	m, root := newMirror(t), t.TempDir()
	for _, version := range []string{"v1.2.9", "v1.2.10"} {
		m.archives = map[string][]byte{version: pack(t, good...)}
		b, _ := taking(t, m, t.TempDir(), io.Discard, downloadable...)

		assets, err := b.assets(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		if err := os.Rename(assets, filepath.Join(root, filepath.Base(assets))); err != nil {
			t.Fatal(err)
		}
	}

	b, _ := taking(t, m, root, io.Discard, downloadable...)

	assets, err := b.assets(t.Context())
	if err != nil || !strings.HasPrefix(filepath.Base(assets), "v1.2.10-") {
		t.Errorf("assets in %s, %v", assets, err)
	}

	if info, err := os.Stat(assets); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("other users cannot read %v, %v", info, err)
	}
}

func TestTheControllerManagerIsBuiltForWhatNeedsIt(t *testing.T) {
	m, root := newMirror(t), t.TempDir()
	m.archives["v1.2.3"] = pack(t, good...)

	plain, recorded := taking(t, m, root, io.Discard, downloadable...)

	first, err := plain.assets(t.Context())
	if err != nil || builds(t, recorded) != 0 {
		t.Fatalf("%d builds, %v", builds(t, recorded), err)
	}

	whole, recorded := taking(t, m, root, io.Discard)

	for run := range 2 {
		if run == 1 { // what is complete needs no lock, which another process may hold for minutes
			unlock, err := whole.lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()

		second, err := whole.assets(ctx)
		if err != nil || second != first || !complete(second, allNames()) {
			t.Fatalf("%s, %v", second, err)
		}
	}

	if got := content(t, recorded); got != "build k8s.io/kubernetes/cmd/kube-controller-manager\n" {
		t.Errorf("built: %q", got)
	}

	if got := content(t, filepath.Join(first, "etcd")); got != "etcd" {
		t.Errorf("etcd is %q", got)
	}
}

func TestABuildThatIsThereIsUsed(t *testing.T) {
	m, root := newMirror(t), t.TempDir()

	builder, _ := fake(t, "ok", root, io.Discard)

	built, err := builder.assets(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	b, _ := taking(t, m, root, io.Discard)
	if assets, err := b.assets(t.Context()); err != nil || assets != built || m.requests.Load() != 0 {
		t.Errorf("%s, %v, %d requests", assets, err, m.requests.Load())
	}
}

func TestSeveralAtOnceDownloadOnce(t *testing.T) {
	m := newMirror(t)
	m.archives["v1.2.3"] = pack(t, good...)

	var archives atomic.Int64

	m.serve = func(w http.ResponseWriter, _ *http.Request, archive []byte) {
		archives.Add(1)
		_, _ = w.Write(archive)
	}

	first, _ := taking(t, m, t.TempDir(), io.Discard, downloadable...)

	eightAtOnce(t, first)

	if n := archives.Load(); n != 1 {
		t.Errorf("%d downloads", n)
	}
}

// What cannot be downloaded is built, and nothing of it is kept.
func TestWhatCannotBeHadIsBuilt(t *testing.T) {
	whole := pack(t, good...)
	hanging := make(chan struct{})

	for name, c := range map[string]struct {
		arrange func(t *testing.T, m *mirror)
		says    string
	}{
		"no index": {func(_ *testing.T, m *mirror) { m.Close() }, "connection refused"},
		"no such index": {func(_ *testing.T, m *mirror) {
			m.Config.Handler = http.NotFoundHandler()
		}, "404 Not Found"},
		"an index that hangs": {func(_ *testing.T, m *mirror) {
			m.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				select {
				case <-hanging:
				case <-r.Context().Done():
				}
			})
		}, "no answer within"},
		"an index without the release": {func(_ *testing.T, m *mirror) { m.archives = map[string][]byte{"v1.3.0": whole} }, "it has no Kubernetes 1.2 for"},
		"another page":                 {func(_ *testing.T, m *mirror) { m.index = "<html>\nsign in: please" }, "is no field"},
		"an index of another form":     {func(_ *testing.T, m *mirror) { m.index = "releases:\n  v1.2.3:\n    - a: b\n" }, "not of the form"},
		"an empty index":               {func(_ *testing.T, m *mirror) { m.index = "# nothing" }, "it has no releases"},
		"no checksum":                  {func(_ *testing.T, m *mirror) { m.hash["v1.2.3"] = "d41d8cd9" }, "has no SHA-512 checksum"},
		"an address of another kind": {func(_ *testing.T, m *mirror) {
			m.index = strings.ReplaceAll(m.text(), m.URL, "file://localhost")
		}, "which is not https"},
		"a wrong checksum": {func(_ *testing.T, m *mirror) { m.hash["v1.2.3"] = strings.Repeat("0", 128) }, "but the index says 0000"},
		"no archive": {func(_ *testing.T, m *mirror) {
			m.serve = func(w http.ResponseWriter, r *http.Request, _ []byte) { http.NotFound(w, r) }
		}, "404 Not Found"},
		"an archive that breaks off": {func(_ *testing.T, m *mirror) {
			m.serve = func(w http.ResponseWriter, _ *http.Request, archive []byte) {
				w.Header().Set("Content-Length", fmt.Sprint(len(archive)))
				_, _ = w.Write(archive[:len(archive)/2])
			}
		}, "it broke off after"},
		"an archive that hangs": {func(_ *testing.T, m *mirror) {
			m.serve = func(w http.ResponseWriter, r *http.Request, archive []byte) {
				_, _ = w.Write(archive[:10])
				w.(http.Flusher).Flush()

				select {
				case <-hanging:
				case <-r.Context().Done():
				}
			}
		}, "no byte came for"},
		"an archive of which nothing comes": {func(_ *testing.T, m *mirror) {
			m.serve = func(_ http.ResponseWriter, r *http.Request, _ []byte) {
				select {
				case <-hanging:
				case <-r.Context().Done():
				}
			}
		}, "no byte came for"},
		"no archive at all":  {func(_ *testing.T, m *mirror) { m.archives["v1.2.3"] = []byte("<html>") }, "it is no archive"},
		"half an archive":    {func(_ *testing.T, m *mirror) { m.archives["v1.2.3"] = whole[:len(whole)/2] }, "is broken"},
		"an archive without": {func(t *testing.T, m *mirror) { m.archives["v1.2.3"] = pack(t, good[:2]...) }, "it lacks controller-tools/envtest/kube-apiserver"},
		"a link": {func(t *testing.T, m *mirror) {
			m.archives["v1.2.3"] = pack(t, entry{name: "controller-tools/envtest/etcd", kind: tar.TypeSymlink}, good[2])
		}, "is no file"},
		"a binary twice": {func(t *testing.T, m *mirror) { m.archives["v1.2.3"] = pack(t, good[1], good[1], good[2]) }, "is there twice"},
		"a path that leads out": {func(t *testing.T, m *mirror) {
			m.archives["v1.2.3"] = pack(t, entry{name: "controller-tools/envtest/../../../etcd", text: "x"}, good[2])
		}, "it lacks controller-tools/envtest/etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			m, root := newMirror(t), t.TempDir()
			m.archives["v1.2.3"] = whole
			c.arrange(t, m)

			var out bytes.Buffer

			b, recorded := taking(t, m, root, &out, downloadable...)
			b.downloads.patience, b.downloads.stall = 300*time.Millisecond, 300*time.Millisecond

			if name != "an index that hangs" {
				b.downloads.patience = time.Minute
			}

			if name != "an archive that hangs" && name != "an archive of which nothing comes" {
				b.downloads.stall = time.Minute
			}

			assets, err := b.assets(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			if !complete(assets, allNames()) || builds(t, recorded) != len(binaries) {
				t.Errorf("%d builds", builds(t, recorded))
			}

			if said := out.String(); !strings.Contains(said, "are not taken from "+m.URL+"/index, but built: ") || !strings.Contains(said, c.says) {
				t.Errorf("progress: %s", said)
			}

			if names := entries(t, root); len(names) != 2 { // the lock and the build
				t.Errorf("left in the cache: %q", names)
			}
		})
	}
}

func TestADownloadCanBeInterrupted(t *testing.T) {
	m, root := newMirror(t), t.TempDir()
	m.archives["v1.2.3"] = pack(t, good...)
	ctx, cancel := context.WithCancel(t.Context())
	m.serve = func(_ http.ResponseWriter, r *http.Request, _ []byte) {
		cancel()
		<-r.Context().Done()
	}

	b, recorded := taking(t, m, root, io.Discard)

	if _, err := b.assets(ctx); !errors.Is(err, errInterrupted) || builds(t, recorded) != 0 {
		t.Errorf("%v, %d builds", err, builds(t, recorded))
	}

	if names := entries(t, root); len(names) != 1 { // the lock
		t.Errorf("left in the cache: %q", names)
	}
}

func TestTheIndexCanBeTurnedOff(t *testing.T) {
	m, root := newMirror(t), t.TempDir()
	m.archives["v1.2.3"] = pack(t, good...)

	b, _ := taking(t, m, root, io.Discard, downloadable...)
	if _, err := b.assets(t.Context()); err != nil {
		t.Fatal(err)
	}

	off, recorded := fake(t, "ok", root, io.Discard)
	off.downloads = newDownloader(indexOff, off.progress)

	assets, err := off.assets(t.Context())
	if err != nil || builds(t, recorded) != len(binaries) || strings.Contains(assets, "envtest") {
		t.Errorf("%s, %v: what was downloaded before does not count either", assets, err)
	}
}

func TestProgressOfADownload(t *testing.T) {
	var out bytes.Buffer

	p := newProgress(&out)
	p.interval, p.shown = time.Minute, time.Time{}
	p.downloading("envtest.tar.gz", 30<<20, 120<<20, 10*time.Second)
	p.shown = time.Time{}
	p.downloading("envtest.tar.gz", 31<<20, -1, 10*time.Second)

	if got := out.String(); got != "downloading envtest.tar.gz: 30 MB of 120, 25 %, about 30s left\ndownloading envtest.tar.gz: 31 MB\n" {
		t.Errorf("got %q", got)
	}
}

func TestUnknownBinariesAreRefused(t *testing.T) {
	err := run(t.Context(), []string{"-need=etcd,kubelet"}, "", io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), `there is no binary "kubelet"`) {
		t.Error(err)
	}
}
