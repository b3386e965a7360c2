package main

// This file specifies what the command prints: a folder or a version, and its progress.

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAssetsOfTheUser(t *testing.T) {
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), nil, dir, &stdout, &stderr)
	if err == nil || !strings.Contains(err.Error(), dir+" has no executable etcd and no kube-apiserver") {
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
	err := run(t.Context(), []string{"-need=etcd,kubelet"}, "", io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), `there is no binary "kubelet"`) {
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
	if got := p.state(); !strings.HasPrefix(got, "kube-apiserver: linking, ") {
		t.Errorf("got %q", got)
	}
	p.started = time.Now().Add(-time.Minute)
	if left, ok := p.left(); !ok || left.Round(time.Second) != 36*time.Second { // 5 of 8 in a minute
		t.Errorf("left: %v, %v", left, ok)
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
