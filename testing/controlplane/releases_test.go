package main

// This file specifies the releases of Kubernetes that can be built, how one is chosen, and what the command prints.

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// sources returns the version of Kubernetes in the module at hand, as go.mod and go.sum agree on it.
func sources() string {
	version := required(must(os.ReadFile("go.mod")))
	if strings.Contains(content("go.sum"), kubernetesModule+" "+version+" h1:") {
		return version
	}
	return "two minds"
}

func TestThereAreFiveReleasesAtLeastTheOldestFirstWithoutAHole(t *testing.T) {
	all := must(releases())
	var names []string
	for i, r := range all {
		names = append(names, r.name)
		if minorNumber(r.name) != minorNumber(all[0].name)+i {
			t.Errorf("releases: %q, want each minor release after the first", names)
		}
	}
	if len(names) < 5 {
		t.Errorf("releases: %q, want five", names)
	}
	if last := names[len(names)-1]; newest().name != last || !bytes.Equal(newest().mod, goMod) {
		t.Errorf("the newest is %s, want %s, which this module is", newest().name, last)
	}
	var stdout bytes.Buffer
	try(run(t.Context(), []string{"-list"}, "", &stdout, io.Discard))
	if want := strings.Join(names, "\n") + "\n"; stdout.String() != want {
		t.Errorf("printed %q, want %q", stdout.String(), want)
	}
}

// A release made of another one's modules would pass for what it is not.
func TestEachReleaseIsOfOneVersion(t *testing.T) {
	replacement := regexp.MustCompile(`(?m)^\t(k8s\.io/\S+) => (k8s\.io/\S+) (v\S+)$`)
	needed := regexp.MustCompile(`(?m)^\t(k8s\.io/\S+) v0\.(?:0\.0|[0-9]+\.[0-9]+) `)
	keyed := map[string]string{}
	for _, r := range must(releases()) {
		version := required(r.mod)
		if minorOf(version) != r.name {
			t.Errorf("%s requires %s %q", r.name, kubernetesModule, version)
		}
		expectAll(t, string(r.sum), kubernetesModule+" "+version+" h1:")
		replaced := map[string]bool{}
		for _, match := range replacement.FindAllStringSubmatch(string(r.mod), -1) {
			replaced[match[1]] = true
			if staged := strings.Replace(version, "v1.", "v0.", 1); match[3] != staged || match[1] != match[2] {
				t.Errorf("%s: %s, want it replaced by its own %s", r.name, match[0], staged)
			}
		}
		for _, match := range needed.FindAllStringSubmatch(string(r.mod), -1) {
			// These are released by themselves.
			if name := match[1]; name != "k8s.io/kube-openapi" && name != "k8s.io/utils" && !replaced[name] {
				t.Errorf("%s: %s is not replaced", r.name, name)
			}
		}
		for _, binary := range binaries {
			expectAll(t, string(r.mod), "\t"+binary.pkg+"\n")
		}
		if key := r.folderName("v1.2.3"); keyed[key] != "" {
			t.Errorf("%s and %s would share a folder", r.name, keyed[key])
		} else {
			keyed[key] = r.name
		}
	}
}

func TestAReleaseIsChosenByName(t *testing.T) {
	var names []string
	for _, r := range must(releases()) {
		names = append(names, r.name)
		for _, name := range []string{r.name, "v" + r.name} {
			if chosen := must(releaseNamed(name)); chosen.name != r.name {
				t.Errorf("%s: got %q", name, chosen.name)
			}
		}
	}
	for _, unknown := range []string{"1.2", "34", "v", "latest", "../go"} {
		err := run(t.Context(), []string{"-k8s", unknown}, "", io.Discard, io.Discard)
		if err == nil {
			t.Fatalf("%s is no release", unknown)
		}
		expectAll(t, err.Error(), append(names, `no Kubernetes "`+unknown+`"`)...)
	}
}

func TestBuildsTheReleaseThatWasAskedFor(t *testing.T) {
	root := t.TempDir()
	all := must(releases())
	for _, r := range all {
		b, _ := fake(t, "ok", root, io.Discard)
		b.release = r
		built := content(must(b.assets(t.Context())) + "/kube-apiserver")
		if !strings.HasSuffix(built, "of "+required(r.mod)) {
			t.Errorf("%s: built by %q", r.name, built)
		}
	}
	expectLeft(t, root, 1+len(all))
}

// A release on the command line has precedence over the environment.
func TestTheReleaseGoesBeforeTheAssetsOfTheUser(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no go command, so that nothing is built here
	var stdout bytes.Buffer
	if err := run(t.Context(), []string{"-k8s", newest().name, "-dir", t.TempDir()}, t.TempDir(), &stdout, io.Discard); err == nil || !strings.Contains(err.Error(), "install Go") || stdout.Len() > 0 {
		t.Errorf("printed %q, error %v", stdout.String(), err)
	}
}

func TestAssetsOfTheUser(t *testing.T) {
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), nil, dir, &stdout, &stderr); err == nil || !strings.Contains(err.Error(), dir+" has no executable etcd and no kube-apiserver") {
		t.Errorf("an empty folder: %v", err)
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		try(os.WriteFile(filepath.Join(dir, name), nil, 0o755))
	}
	if err := run(t.Context(), nil, dir, &stdout, &stderr); err != nil || stdout.String() != dir+"\n" {
		t.Errorf("printed %q, error %v", stdout.String(), err)
	}
	expectAll(t, stderr.String(), "has no kube-controller-manager")
}

func TestPrintVersion(t *testing.T) {
	var stdout bytes.Buffer
	try(run(t.Context(), []string{"-print-version"}, "", &stdout, io.Discard))
	expectAll(t, string(goMod), "\t"+kubernetesModule+" "+strings.TrimSpace(stdout.String())+" ")
}

func TestUnknownBinariesAreRefused(t *testing.T) {
	if err := run(t.Context(), []string{"-need=etcd,kubelet"}, "", io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), `there is no binary "kubelet"`) {
		t.Error(err)
	}
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	p.rewrite, p.interval = true, time.Hour // no ticks
	end := p.begin([]int{4, 2, 2})
	p.binary(0, binaries[0])
	p.compiled("a")
	p.compiled("# a complaint")
	for _, text := range []string{p.state(), "x"} {
		p.shown = time.Time{}
		p.show(text)
		p.show("so soon after the last, nothing is shown")
	}
	end()
	want := "etcd: 1 of 4 packages, 0s, about 0s left for all"
	if got := out.String(); got != want+"\r"+strings.Repeat(" ", len(want))+"\rx\r \r" {
		t.Errorf("got %q", got)
	}

	p.binary(1, binaries[1])
	if got := p.state(); got != "kube-apiserver: reusing packages from Go's build cache, linking, 0s" {
		t.Errorf("got %q", got)
	}
	p.compiled(binaries[1].pkg)
	expectAll(t, p.state(), "kube-apiserver: linking, ")
	p.started = time.Now().Add(-time.Minute)
	if left, ok := p.left(); !ok || left.Round(time.Second) != 36*time.Second { // 5 of 8 in a minute
		t.Errorf("left: %v, %v", left, ok)
	}
	p.rewrite, p.interval = false, time.Minute
	for read, size := range map[int64]int64{30: 120 << 20, 31: -1} {
		p.shown = time.Time{}
		p.downloading("envtest.tar.gz", read<<20, size, 10*time.Second)
	}
	expectAll(t, out.String(), "downloading envtest.tar.gz: 30 MB of 120, 25 %, about 30s left\n", "downloading envtest.tar.gz: 31 MB\n")
}
