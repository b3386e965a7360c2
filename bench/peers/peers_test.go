package peers

// This file builds programs in place of the peers.

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBuild builds a small program in place of the peers: once, and again after its module has changed. One that cannot
// be built stops no other, and is reported with the reason.
func TestBuild(t *testing.T) {
	compiled, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", strings.TrimSpace(string(compiled)))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	cache, err := os.UserCacheDir()
	if err != nil || !strings.HasPrefix(cache, os.TempDir()) {
		t.Skipf("the cache of this system is at %s, whatever the environment says: %v", cache, err)
	}
	was := sources
	t.Cleanup(func() { sources = was })
	sources = []source{{"broken", "", ".", "no time"}, {"small", "", ".", "no time"}}
	folder := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		} else {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"broken", "small"} {
		write(name+"/go.mod", "module example.org/"+name+"\n\ngo 1.26.0\n")
		write(name+"/go.sum", "")
	}
	write("broken/main.go", "package main\n\nfunc main() { undefined() }\n")
	write("small/main.go", "package main\n\nfunc main() {}\n")
	build := func() (string, error) {
		var said strings.Builder
		err := Build(t.Context(), folder, &said)
		return said.String(), err
	}
	if _, err := Path(folder, "small"); err == nil || !strings.Contains(err.Error(), "make peers") {
		t.Errorf("before: %v", err)
	}
	said, err := build()
	if err == nil || !strings.Contains(said, "broken: cannot be built") || !strings.Contains(err.Error(), "undefined: undefined") {
		t.Errorf("%v: %s", err, said)
	}
	if path, err := Path(folder, "small"); err != nil || !strings.Contains(said, "small: built in") {
		t.Errorf("%s: %v: %s", path, err, said)
	}
	if said, _ := build(); !strings.Contains(said, "small: is there already") {
		t.Errorf("the second run: %s", said)
	}
	if Built(folder) {
		t.Error("one is missing, but all are built")
	}
	sources = sources[1:]
	if !Built(folder) {
		t.Error("none is missing, but not all are built")
	}
	write("small/go.mod", "module example.org/changed\n\ngo 1.26.0\n")
	if said, _ := build(); !strings.Contains(said, "small: built in") {
		t.Errorf("after a change: %s", said)
	}
}
