package main

// This file builds the binaries into a cache, once per release, operating system, processor, module files and recipe.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const kubernetesModule = "k8s.io/kubernetes"

// recipe is part of the cache's key. Increase it when the way of building changes.
const recipe = "1"

// binary is a binary of a control plane.
type binary struct {
	name, pkg string
	optional  bool
}

var binaries = []binary{
	{name: "etcd", pkg: "go.etcd.io/etcd/server/v3"},
	{name: "kube-apiserver", pkg: kubernetesModule + "/cmd/kube-apiserver"},
	{name: "kube-controller-manager", pkg: kubernetesModule + "/cmd/kube-controller-manager", optional: true},
}

// downloadable are the binaries that setup-envtest's archives hold.
var downloadable = []string{"etcd", "kube-apiserver"}

const controllerManager = "kube-controller-manager"

// builder builds the binaries once per release, operating system, processor, module files and recipe, even if several
// builders run concurrently. It must be used for one call at a time.
type builder struct {
	goCommand string
	release   release
	root      string // the cache; by default in the user's cache folder
	parallel  int
	progress  *progress

	downloads *downloader // nil downloads nothing
	needed    []string    // the binaries that are needed; nil means all

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
		if complete(assets, allNames()) {
			return nil
		}

		if dir, err := b.download(ctx, version); dir != "" || err != nil {
			assets = dir

			return err
		}

		return b.buildLocked(ctx, version, assets)
	})

	return assets, err
}

// allNames returns the names of all binaries.
func allNames() (names []string) {
	for _, binary := range binaries {
		names = append(names, binary.name)
	}

	return names
}

// download returns a folder with downloaded binaries, and builds the controller manager into it if that is needed. The
// folder is empty if they have to be built: the progress says why.
func (b *builder) download(ctx context.Context, version string) (assets string, err error) {
	if b.downloads.off() {
		return "", nil
	}

	if assets = downloaded(b.root, minorOf(version)); assets == "" {
		if assets, err = b.downloadLocked(ctx, version); err != nil || assets == "" {
			return "", err
		}
	}

	wanted := b.needed
	if wanted == nil {
		wanted = allNames()
	}

	if !slices.Contains(wanted, controllerManager) || complete(assets, allNames()) {
		return assets, nil
	}

	i := slices.IndexFunc(binaries, func(b binary) bool { return b.name == controllerManager })

	return assets, b.addLocked(ctx, version, assets, binaries[i])
}

// downloadLocked downloads, and says why it cannot. An error is one that a build would have, too.
func (b *builder) downloadLocked(ctx context.Context, version string) (assets string, err error) {
	reason := func(err error) (string, error) {
		if ctx.Err() != nil {
			return "", errInterrupted
		}

		b.progress.printf("kube-apiserver and etcd are not taken from %s, but built: %v", b.downloads.index, err)

		return "", nil
	}

	chosen, err := b.downloads.choose(ctx, version)
	if err != nil {
		return reason(err)
	}

	assets = filepath.Join(b.root, chosen.folder())

	var failed error

	if err := b.locked(ctx, func(unfinished string) error {
		if complete(assets, downloadable) {
			return nil // downloaded by the previous holder of the lock
		}

		if failed = b.downloads.download(ctx, chosen, unfinished); failed != nil {
			return nil
		}

		return install(unfinished, assets)
	}); err != nil {
		return "", err
	}

	if failed != nil {
		return reason(failed)
	}

	b.progress.printf("downloaded kube-apiserver and etcd of Kubernetes %s", chosen.version)

	return assets, nil
}

// addLocked builds one binary into a folder that has the others.
func (b *builder) addLocked(ctx context.Context, version, assets string, one binary) error {
	return b.locked(ctx, func(unfinished string) error {
		if complete(assets, []string{one.name}) {
			return nil
		}

		if err := b.build(ctx, version, unfinished, []binary{one}); err != nil {
			return err
		}

		return os.Rename(filepath.Join(unfinished, one.name), filepath.Join(assets, one.name))
	})
}

// install makes a finished folder the one in the cache. An incomplete one is replaced.
func install(unfinished, assets string) error {
	if err := os.RemoveAll(assets); err != nil {
		return fmt.Errorf("remove %s by hand: %w", assets, err)
	}

	// MkdirTemp made the folder private, but a cache in a shared place must be readable by all users.
	if err := os.Chmod(unfinished, 0o755); err != nil {
		return err
	}

	return os.Rename(unfinished, assets)
}

func complete(dir string, names []string) bool {
	for _, name := range names {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || !info.Mode().IsRegular() {
			return false
		}
	}

	return true
}

const unfinishedPrefix = ".unfinished-"

// buildLocked builds into a temporary folder beside the final one and then renames it.
func (b *builder) buildLocked(ctx context.Context, version, assets string) error {
	return b.locked(ctx, func(unfinished string) error {
		if complete(assets, allNames()) {
			return nil // built by the previous holder of the lock
		}

		if err := b.build(ctx, version, unfinished, binaries); err != nil {
			return err
		}

		return install(unfinished, assets)
	})
}

// locked calls do while it holds the cache's lock, with a temporary folder in the cache that is removed afterwards, if
// it is still there.
func (b *builder) locked(ctx context.Context, do func(unfinished string) error) (err error) {
	if err := os.MkdirAll(b.root, 0o755); err != nil {
		return fmt.Errorf("say with -dir where to build: %w", err)
	}

	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()

	// The builder that left these folders has ended, because this one holds the lock.
	leftOver, err := filepath.Glob(filepath.Join(b.root, unfinishedPrefix+"*"))
	if err != nil {
		return err
	}

	for _, dir := range leftOver {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove %s by hand: %w", dir, err)
		}
	}

	unfinished, err := os.MkdirTemp(b.root, unfinishedPrefix)
	if err != nil {
		return fmt.Errorf("say with -dir where to build: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(unfinished)) }()

	return do(unfinished)
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

func (b *builder) build(ctx context.Context, version, dir string, which []binary) error {
	b.progress.announce(version)

	packages, err := b.packages(ctx, which)
	if err != nil {
		return err
	}

	started := time.Now()
	end := b.progress.begin(packages)
	defer end()

	for i, binary := range which {
		b.progress.binary(i, binary)

		args := []string{
			"build", "-v", "-mod=readonly", "-buildvcs=false", "-p=" + strconv.Itoa(max(1, b.parallel)),
			"-ldflags=" + ldflags(version), "-o", filepath.Join(dir, binary.name), binary.pkg,
		}
		if _, err := b.run(ctx, b.progress.compiled, args...); err != nil {
			return fmt.Errorf("%s: %w", binary.name, err)
		}
	}

	b.progress.printf("built %d of the binaries in %s", len(which), time.Since(started).Round(time.Second))

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
func (b *builder) packages(ctx context.Context, which []binary) ([]int, error) {
	defer b.progress.finish()

	seen := map[string]bool{}
	counts := make([]int, len(which))

	for i, binary := range which {
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
