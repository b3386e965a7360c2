// Package peers builds the programs with which section podsecurity compares the library. Each is a module of its own
// below this folder, because their versions of Kubernetes differ. They are built from the Go module proxy, once, and
// kept in the user's cache.
package peers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// The peers, and the program that renders the charts of one.
const (
	PodSecurity = "podsecurity"
	Gatekeeper  = "gatekeeper"
	Kyverno     = "kyverno"
	Charts      = "charts"
)

// source says from which module and package a program is built.
type source struct {
	name, module, program string
	takes                 string // on two cores, with an empty cache
}

// sources are the programs in the order in which they are built. Their folders have their names.
var sources = []source{
	{PodSecurity, "k8s.io/pod-security-admission", "k8s.io/pod-security-admission/cmd/webhook", "two minutes"},
	{Gatekeeper, "github.com/open-policy-agent/gatekeeper/v3", "github.com/open-policy-agent/gatekeeper/v3", "two minutes"},
	{Kyverno, "github.com/kyverno/kyverno", "github.com/kyverno/kyverno/cmd/kyverno", "five minutes"},
	{Charts, "helm.sh/helm/v3", ".", "half a minute"},
}

// Build builds what is missing. One that cannot be built does not stop the others: the error holds the reasons of all.
// folder is the folder of this package.
func Build(ctx context.Context, folder string, progress io.Writer) error {
	var errs []error
	for _, s := range sources {
		if path, err := s.path(folder); err == nil && exists(path) {
			_, _ = fmt.Fprintf(progress, "%s: is there already: %s\n", s.name, path)
			continue
		}
		_, _ = fmt.Fprintf(progress, "%s: building %s, which takes about %s with an empty cache\n", s.name, s.program, s.takes)
		began := time.Now()
		size, err := s.build(ctx, folder)
		if err != nil {
			_, _ = fmt.Fprintf(progress, "%s: cannot be built: %v\n", s.name, err)
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
			continue
		}
		_, _ = fmt.Fprintf(progress, "%s: built in %s, %d MB\n", s.name, time.Since(began).Round(time.Second), size/1e6)
	}
	return errors.Join(errs...)
}

// Path returns the program of a peer.
func Path(folder, name string) (string, error) {
	s, err := sourceOf(name)
	if err != nil {
		return "", err
	}
	path, err := s.path(folder)
	if err == nil && !exists(path) {
		err = fmt.Errorf("%s is not built; run make peers", name)
	}
	return path, err
}

// Built reports whether all programs are there.
func Built(folder string) bool {
	for _, s := range sources {
		if path, err := s.path(folder); err != nil || !exists(path) {
			return false
		}
	}
	return true
}

// ModuleDir returns the folder of a peer's module, with its manifests.
func ModuleDir(ctx context.Context, folder, name string) (string, error) {
	s, err := sourceOf(name)
	if err != nil {
		return "", err
	}
	out, err := s.goCommand(ctx, folder, "list", "-m", "-f", "{{.Dir}}", s.module)
	return strings.TrimSpace(string(out)), err
}

func sourceOf(name string) (source, error) {
	for _, s := range sources {
		if s.name == name {
			return s, nil
		}
	}
	return source{}, fmt.Errorf("there is no peer %q", name)
}

// path returns the place of the program in the user's cache. It depends on all that the program is built from.
func (s source) path(folder string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		text, err := os.ReadFile(filepath.Join(folder, s.name, name))
		if err != nil && (name != "main.go" || !errors.Is(err, os.ErrNotExist)) {
			return "", err
		}
		sum.Write(text)
	}
	dir := fmt.Sprintf("%s-%s-%s-%x", s.name, runtime.GOOS, runtime.GOARCH, sum.Sum(nil)[:6])
	return filepath.Join(cache, "eirinix", "peers", dir, s.name), nil
}

// build builds the program, without symbols like all programs that are compared, and returns its size.
func (s source) build(ctx context.Context, folder string) (size int64, err error) {
	path, err := s.path(folder)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err != nil {
		return 0, err
	}
	unfinished := path + ".new"
	if _, err := s.goCommand(ctx, folder, "build", "-ldflags=-s -w", "-o", unfinished, s.program); err != nil {
		return 0, errors.Join(err, os.RemoveAll(unfinished))
	}
	if err := os.Rename(unfinished, path); err != nil {
		return 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// goCommand runs a command of Go in the folder of the program. The error has the end of its output.
func (s source) goCommand(ctx context.Context, folder string, args ...string) ([]byte, error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Join(folder, s.name), &out, &said
	if err := cmd.Run(); err != nil {
		text := bytes.TrimSpace(said.Bytes())
		return nil, fmt.Errorf("go %s: %w: %s", args[0], err, text[max(0, len(text)-1000):])
	}
	return out.Bytes(), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
