package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
				if err := os.WriteFile(args[i+1], []byte(line+" of "+sources()), 0o755); err != nil {
					panic(err)
				}
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
	file, err := os.OpenFile(os.Getenv("CONTROLPLANE_RECORD"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer file.Close()

	if _, err := file.WriteString(text); err != nil {
		panic(err)
	}
}

// fake returns a builder whose go command behaves in that mode, and the file where its builds are recorded.
func fake(t *testing.T, mode, root string, out io.Writer) (*builder, string) {
	t.Helper()

	recorded := filepath.Join(t.TempDir(), "record")
	t.Setenv(fakeGoVariable, mode)
	t.Setenv("CONTROLPLANE_RECORD", recorded)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // or each fake run takes a second

	return &builder{goCommand: os.Args[0], release: newest(t), root: root, parallel: 1, progress: newProgress(out)}, recorded
}

func newest(t *testing.T) release {
	t.Helper()

	r, err := releaseNamed("")
	if err != nil {
		t.Fatal(err)
	}

	return r
}

func content(t *testing.T, path string) string {
	t.Helper()

	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return string(data)
}

func entries(t *testing.T, dir string) (names []string) {
	t.Helper()

	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	for _, entry := range list {
		names = append(names, entry.Name())
	}

	return names
}

func TestBuildsOnceAndStampsTheVersion(t *testing.T) {
	root := t.TempDir()

	var out bytes.Buffer

	b, recorded := fake(t, "ok", root, &out)

	// What a builder that was killed leaves, and a folder that lost a file.
	for _, dir := range []string{unfinishedPrefix + "1", newest(t).folderName("v1.2.3")} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	for range 2 {
		assets, err := b.assets(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		if want := filepath.Join(root, newest(t).folderName("v1.2.3")); assets != want {
			t.Errorf("assets in %s, want %s", assets, want)
		}

		for _, flag := range []string{
			"-buildvcs=false", "-X k8s.io/component-base/version.gitVersion=v1.2.3",
			"version.gitMajor=1 ", "version.gitMinor=2 ", "version.gitTreeState=clean",
		} {
			if got := content(t, filepath.Join(assets, "kube-apiserver")); !strings.Contains(got, flag) {
				t.Errorf("%q is not among the flags %q", flag, got)
			}
		}
	}

	if n := strings.Count(content(t, recorded), "build "); n != len(binaries) {
		t.Errorf("%d builds, want %d", n, len(binaries))
	}

	if names := entries(t, root); len(names) != 2 { // the lock and the folder
		t.Errorf("left in the cache: %q", names)
	}

	if got := out.String(); !strings.Contains(got, "building a control plane of Kubernetes v1.2.3") {
		t.Errorf("progress: %s", got)
	}
}

// eightAtOnce has eight builders make the same assets.
func eightAtOnce(t *testing.T, first *builder) {
	t.Helper()

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
}

func TestSeveralAtOnceBuildOnce(t *testing.T) {
	root := t.TempDir()
	first, recorded := fake(t, "ok", root, io.Discard)

	eightAtOnce(t, first)

	if n := strings.Count(content(t, recorded), "build "); n != len(binaries) {
		t.Errorf("%d builds, want %d", n, len(binaries))
	}
}

func TestInterruptionLeavesNothing(t *testing.T) {
	root := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())

	b, recorded := fake(t, "hang", root, io.Discard)
	result := make(chan error)

	go func() {
		_, err := b.assets(ctx)
		result <- err
	}()

	waitFor(t, func() bool {
		data, _ := os.ReadFile(recorded)

		return strings.Contains(string(data), "hanging")
	})

	// A second one waits for the first and can be interrupted, too.
	var out lockedBuffer

	second := *b
	second.progress = newProgress(&out)
	secondCtx, cancelSecond := context.WithCancel(t.Context())
	secondResult := make(chan error)

	go func() {
		_, err := second.assets(secondCtx)
		secondResult <- err
	}()

	waitFor(t, func() bool { return strings.Contains(out.String(), "another process is building in "+root+", waiting") })

	for _, stop := range []struct {
		cancel func()
		result chan error
	}{{cancelSecond, secondResult}, {cancel, result}} {
		stop.cancel()

		if err := <-stop.result; !errors.Is(err, errInterrupted) {
			t.Errorf("got %v, want %v", err, errInterrupted)
		}
	}

	if names := entries(t, root); len(names) != 1 { // the lock
		t.Errorf("left in the cache: %q", names)
	}
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
		if err == nil || !strings.Contains(err.Error(), remedy) ||
			!strings.HasSuffix(err.Error(), "# example.org/a\n"+said) {
			t.Errorf("%s: %v", said, err)
		}
	}

	b, _ := fake(t, "ok", t.TempDir(), io.Discard)
	b.goCommand = "go-that-is-not-installed"

	if _, err := b.assets(t.Context()); err == nil || !strings.Contains(err.Error(), "install Go") {
		t.Errorf("no go command: %v", err)
	}
}

// The go command itself asks a proxy that has nothing.
func TestAReleaseThatCannotBeHad(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not found: this proxy has no Kubernetes", http.StatusNotFound)
	}))
	defer proxy.Close()

	t.Setenv("GOPROXY", proxy.URL)
	t.Setenv("GOMODCACHE", t.TempDir())

	for _, r := range all(t) {
		var out bytes.Buffer

		root := t.TempDir()
		b := &builder{goCommand: "go", release: r, root: root, parallel: 1, progress: newProgress(&out)}

		_, err := b.assets(t.Context())
		if err == nil {
			t.Fatalf("%s: nothing is missing", r.name)
		}

		for _, part := range []string{
			"choose another release with -k8s", kubernetesModule + "@" + required(r.mod), "404 Not Found",
			"not found: this proxy has no Kubernetes",
		} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q is not in %v", r.name, part, err)
			}
		}

		if names := entries(t, root); len(names) != 0 {
			t.Errorf("%s: left in the cache: %q", r.name, names)
		}
	}
}

func TestAFolderThatLacksABinaryIsBuiltAgain(t *testing.T) {
	root := t.TempDir()
	b, recorded := fake(t, "ok", root, io.Discard)

	for i, binary := range binaries {
		assets, err := b.assets(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		if n := strings.Count(content(t, recorded), "build "); n != (i+1)*len(binaries) {
			t.Errorf("%d builds, want %d", n, (i+1)*len(binaries))
		}

		if err := os.Remove(filepath.Join(assets, binary.name)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTimeAndRoomAreSaidBeforeTheFirstDownload(t *testing.T) {
	var out bytes.Buffer

	b, _ := fake(t, "ok", t.TempDir(), &out)
	b.progress.shown = time.Time{} // so that the first download is shown

	if _, err := b.assets(t.Context()); err != nil {
		t.Fatal(err)
	}

	said, _, downloads := strings.Cut(out.String(), "downloading sources")
	if !downloads || !strings.Contains(said, firstTime) || !strings.Contains(said, room) {
		t.Errorf("%q", out.String())
	}
}

func waitFor(t *testing.T, condition func() bool) {
	t.Helper()

	for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("timed out")
		}
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.buf.String()
}
