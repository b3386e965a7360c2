package main

// This file builds the binaries into a cache, once per release, operating system, processor, module files and recipe.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const kubernetesModule = "k8s.io/kubernetes"

// recipe is part of the cache's key. Increase it when the way of building changes.
const recipe = "1"

var binaries = []struct {
	name, pkg string
	optional  bool
}{
	{name: "etcd", pkg: "go.etcd.io/etcd/server/v3"},
	{name: "kube-apiserver", pkg: kubernetesModule + "/cmd/kube-apiserver"},
	{name: "kube-controller-manager", pkg: kubernetesModule + "/cmd/kube-controller-manager", optional: true},
}

// builder builds the binaries once per release, operating system, processor, module files and recipe, even if several
// builders run concurrently. It must be used for one call at a time.
type builder struct {
	goCommand string
	release   release
	root      string // the cache; by default in the user's cache folder
	parallel  int
	progress  *progress

	module string // temporary folder with go.mod and go.sum, see inModule
}

// assets returns the folder with the binaries, and builds them if necessary.
func (b *builder) assets(ctx context.Context) (assets string, err error) {
	if b.root == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("set HOME, or say with -dir where to build: %w", err)
		}

		b.root = filepath.Join(cache, "eirinix", "controlplane")
	}

	if b.root, err = filepath.Abs(b.root); err != nil {
		return "", err
	}

	err = b.inModule(func() error {
		version, err := b.version(ctx)
		if err != nil {
			return err
		}

		assets = filepath.Join(b.root, b.release.folderName(version))
		if complete(assets) {
			return nil
		}

		return b.buildLocked(ctx, version, assets)
	})

	return assets, err
}

func complete(dir string) bool {
	for _, binary := range binaries {
		if info, err := os.Stat(filepath.Join(dir, binary.name)); err != nil || !info.Mode().IsRegular() {
			return false
		}
	}

	return true
}

const unfinishedPrefix = ".unfinished-"

// buildLocked holds the cache's lock. It builds into a temporary folder beside the final one and then renames it.
func (b *builder) buildLocked(ctx context.Context, version, assets string) (err error) {
	if err := os.MkdirAll(b.root, 0o755); err != nil {
		return fmt.Errorf("say with -dir where to build: %w", err)
	}

	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()

	if complete(assets) {
		return nil // built by the previous holder of the lock
	}

	// The builder that left these folders has ended, because this one holds the lock.
	leftOver, err := filepath.Glob(filepath.Join(b.root, unfinishedPrefix+"*"))
	if err != nil {
		return err
	}

	for _, dir := range append(leftOver, assets) { // assets exists only if it is incomplete
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove %s by hand: %w", dir, err)
		}
	}

	unfinished, err := os.MkdirTemp(b.root, unfinishedPrefix)
	if err != nil {
		return fmt.Errorf("say with -dir where to build: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(unfinished)) }()

	if err := b.build(ctx, version, unfinished); err != nil {
		return err
	}

	// MkdirTemp made the folder private, but a cache in a shared place must be readable by all users.
	if err := os.Chmod(unfinished, 0o755); err != nil {
		return err
	}

	return os.Rename(unfinished, assets)
}

// lock waits for the cache's lock. The kernel releases it however its holder ends, so it cannot be stale.
func (b *builder) lock(ctx context.Context) (unlock func(), err error) {
	path := filepath.Join(b.root, ".lock")

	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("say with -dir where to build: %w", err)
	}

	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()

	for announced := false; ; announced = true {
		locked, err := tryLock(file)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("say with -dir where to build: cannot lock %s: %w", path, err), file.Close())
		}

		if locked {
			return func() { file.Close() }, nil
		}

		if !announced {
			b.progress.printf("another process is building in %s, waiting", b.root)
		}

		select {
		case <-ctx.Done():
			return nil, errors.Join(errInterrupted, file.Close())
		case <-ticker.C:
		}
	}
}

func (b *builder) build(ctx context.Context, version, dir string) error {
	b.progress.announce(version)

	packages, err := b.packages(ctx)
	if err != nil {
		return err
	}

	started := time.Now()
	end := b.progress.begin(packages)
	defer end()

	for i, binary := range binaries {
		b.progress.binary(i, binary.name)

		args := []string{
			"build", "-v", "-mod=readonly", "-buildvcs=false", "-trimpath", "-p=" + strconv.Itoa(max(1, b.parallel)),
			"-ldflags=" + ldflags(version), "-o", filepath.Join(dir, binary.name), binary.pkg,
		}
		if _, err := b.run(ctx, b.progress.compiled, args...); err != nil {
			return fmt.Errorf("%s: %w", binary.name, err)
		}
	}

	b.progress.printf("built %d binaries in %s", len(binaries), time.Since(started).Round(time.Second))

	return nil
}

// ldflags drop the symbols and stamp the version, which the API server reports at /version and in its user agent.
func ldflags(version string) string {
	flags := []string{"-s", "-w"}
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")

	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, stamp := range []string{
			"gitVersion=" + version, "gitMajor=" + major, "gitMinor=" + minor, "gitTreeState=clean", "gitCommit=",
		} {
			flags = append(flags, "-X", pkg+"."+stamp)
		}
	}

	return strings.Join(flags, " ")
}

// packages returns, for each binary, the number of its packages that no preceding binary has. Missing modules are
// downloaded here.
func (b *builder) packages(ctx context.Context) ([]int, error) {
	defer b.progress.finish()

	seen := map[string]bool{}
	counts := make([]int, len(binaries))

	for i, binary := range binaries {
		output, err := b.run(ctx, b.progress.listed, "list", "-mod=readonly", "-deps", binary.pkg)
		if err != nil {
			return nil, fmt.Errorf("sources of %s: %w", binary.name, err)
		}

		for pkg := range strings.FieldsSeq(output) {
			if !seen[pkg] {
				seen[pkg] = true
				counts[i]++
			}
		}
	}

	return counts, nil
}

// version returns the version of Kubernetes in the release's go.mod.
func (b *builder) version(ctx context.Context) (string, error) {
	output, err := b.run(ctx, nil, "list", "-mod=readonly", "-m", "-f", "{{.Version}}", kubernetesModule)
	if err != nil {
		return "", fmt.Errorf("version of Kubernetes: %w", err)
	}

	return strings.TrimSpace(output), nil
}
