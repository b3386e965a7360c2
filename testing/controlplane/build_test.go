package main

// This file specifies what a build leaves behind, and what it says when it fails.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// The tests put themselves in the go command's place: what is tested is what happens around it.
const fakeGoVariable = "CONTROLPLANE_FAKE_GO"

func TestMain(m *testing.M) {
	if mode := os.Getenv(fakeGoVariable); mode != "" {
		os.Exit(fakeGo(mode, os.Args[1:]))
	}
	os.Exit(m.Run())
}

func fakeGo(mode string, args []string) int {
	line := strings.Join(args, " ")
	switch {
	case strings.Contains(line, "list -mod=readonly -m "):
		fmt.Println("v1.2.3")
	case args[0] == "list":
		fmt.Fprintln(os.Stderr, "go: downloading example.org/x v1.0.0")
		fmt.Println("a\nb\n" + args[len(args)-1])
	case mode == "ok" || mode == "hang" && !strings.Contains(line, "kube-apiserver"):
		record("build " + args[len(args)-1] + "\n")
		fmt.Fprintln(os.Stderr, "a\nb\n"+args[len(args)-1])
		for i, arg := range args {
			if arg == "-o" {
				try(os.WriteFile(args[i+1], []byte(line+" of "+sources()), 0o755))
			}
		}
	case mode == "hang":
		record("hanging\n")
		time.Sleep(time.Minute)
	default:
		fmt.Fprintln(os.Stderr, "a\n# example.org/a\n"+mode)
		return 1
	}
	return 0
}

func record(text string) {
	file := must(os.OpenFile(os.Getenv("CONTROLPLANE_RECORD"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))
	defer file.Close()
	must(file.WriteString(text))
}

func try(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](value T, err error) T {
	try(err)
	return value
}

// fake returns a builder whose go command behaves in that mode, and the file where its builds are recorded.
func fake(t *testing.T, mode, root string, out io.Writer) (*builder, string) {
	t.Helper()
	recorded := filepath.Join(t.TempDir(), "record")
	t.Setenv(fakeGoVariable, mode)
	t.Setenv("CONTROLPLANE_RECORD", recorded)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // or each fake run takes a second
	return &builder{goCommand: os.Args[0], release: newest(), root: root, parallel: 1, progress: newProgress(out)}, recorded
}

func newest() release { return must(releaseNamed("")) }

// builds is how many binaries were built.
func builds(recorded string) int {
	data, _ := os.ReadFile(recorded) // there is none before the first
	return strings.Count(string(data), "build ")
}

func content(path string) string { return string(must(os.ReadFile(path))) }

// expectLeft sees how many entries are left in the cache, among them the lock.
func expectLeft(t *testing.T, root string, entries int) {
	t.Helper()
	if left := must(os.ReadDir(root)); len(left) != entries {
		t.Errorf("left in the cache: %v", left)
	}
}

// expectAll sees that a text has all parts.
func expectAll(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %q", part, text)
		}
	}
}

func TestBuildsOnceAndStampsTheVersion(t *testing.T) {
	root := t.TempDir()
	var out bytes.Buffer
	b, recorded := fake(t, "ok", root, &out)
	b.progress.shown = time.Time{} // so that the first download is shown
	folder := filepath.Join(root, newest().folderName("v1.2.3"))

	// What a builder that was killed leaves, and a folder that lost a file.
	try(os.Mkdir(filepath.Join(root, unfinishedPrefix+"1"), 0o700))
	try(os.Mkdir(folder, 0o700))
	for range 2 {
		if assets := must(b.assets(t.Context())); assets != folder {
			t.Errorf("assets in %s, want %s", assets, folder)
		}
		expectAll(t, content(filepath.Join(folder, "kube-apiserver")),
			"-buildvcs=false", "-X k8s.io/component-base/version.gitVersion=v1.2.3",
			"version.gitMajor=1 ", "version.gitMinor=2 ", "version.gitTreeState=clean")
	}
	if n := builds(recorded); n != len(binaries) {
		t.Errorf("%d builds, want %d", n, len(binaries))
	}
	expectLeft(t, root, 2)

	said, _, _ := strings.Cut(out.String(), "downloading sources")
	expectAll(t, said, "building a control plane of Kubernetes v1.2.3", firstTime, room)
}

func TestSeveralAtOnceBuildOnce(t *testing.T) {
	first, recorded := fake(t, "ok", t.TempDir(), io.Discard)
	var wg sync.WaitGroup
	for range 8 {
		b := *first
		b.progress = newProgress(io.Discard)
		wg.Go(func() {
			if _, err := b.assets(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := builds(recorded); n != len(binaries) {
		t.Errorf("%d builds, want %d", n, len(binaries))
	}
}

func TestInterruptionLeavesNothing(t *testing.T) {
	root := t.TempDir()
	first, recorded := fake(t, "hang", root, io.Discard)
	second := *first
	waiting := make(chan struct{})
	waits := sync.OnceFunc(func() { close(waiting) })
	second.progress = newProgress(writerFunc(func(line string) {
		if strings.Contains(line, "another process is building in "+root+", waiting") {
			waits()
		}
	}))
	begin := func(b *builder) (interrupt func()) {
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() {
			_, err := b.assets(ctx)
			result <- err
		}()
		return func() {
			cancel()
			if err := <-result; !errors.Is(err, errInterrupted) {
				t.Errorf("got %v, want %v", err, errInterrupted)
			}
		}
	}
	interruptFirst := begin(first)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if data, _ := os.ReadFile(recorded); strings.Contains(string(data), "hanging") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the build does not begin")
		}
	}
	interruptSecond := begin(&second)
	<-waiting
	interruptSecond()
	interruptFirst()
	expectLeft(t, root, 1)
}

type writerFunc func(string)

func (f writerFunc) Write(p []byte) (int, error) {
	f(string(p))
	return len(p), nil
}

func TestFailuresHaveARemedy(t *testing.T) {
	for said, remedy := range map[string]string{
		"write /tmp/x: no space left on device":                                         "make room",
		"dial tcp: lookup proxy.example.org: no such host":                              "check the network",
		"verifying x: checksum mismatch":                                                "use another Go module proxy",
		"go: x@v1.2.3: reading y: 404 Not Found":                                        "choose another release with -k8s",
		"go: x@v1.2.3: invalid version: unknown revision v1.2.3":                        "choose another release with -k8s",
		"go: go.mod requires go >= 1.99.0 (running go 1.98.0; GOTOOLCHAIN=local)":       "use the Go version",
		"/usr/lib/go/pkg/tool/compile: signal: killed":                                  "run it again with -p 1",
		"mkdir /nowhere: permission denied":                                             "writable",
		"a.go:1:1: syntax error: this is not the user's fault, but they should see it!": "see what the go command says",
	} {
		b, _ := fake(t, said, t.TempDir(), io.Discard)
		_, err := b.assets(t.Context())
		if err == nil || !strings.Contains(err.Error(), remedy) || !strings.HasSuffix(err.Error(), "# example.org/a\n"+said) {
			t.Errorf("%s: %v", said, err)
		}
	}
	b, _ := fake(t, "ok", t.TempDir(), io.Discard)
	b.goCommand = "go-that-is-not-installed"
	if _, err := b.assets(t.Context()); err == nil || !strings.Contains(err.Error(), "install Go") {
		t.Errorf("no go command: %v", err)
	}
}
