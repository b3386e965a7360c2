package controlplane

// This file finds binaries in the cache of setup-envtest.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// oldestRelease is the oldest release of Kubernetes that is used without an explicit request. It is the first that
// enables matchConditions of webhooks by default and that names the controllers as this package does.
var oldestRelease = version.MajorMinor(1, 28)

// setupEnvtestDir returns the folder in which "setup-envtest use" stores its downloads, each in <version>-<os>-<arch>.
// controller-runtime's package envtest has a function for this. But importing that package also defines a flag
// -kubeconfig, which panics in programs that define their own.
func setupEnvtestDir(goos string, getenv func(string) string) (string, error) {
	var base []string
	switch goos {
	case "windows":
		base = []string{getenv("LocalAppData"), "kubebuilder-envtest"}
	case "darwin":
		base = []string{getenv("HOME"), "Library", "Application Support", "io.kubebuilder.envtest"}
	default:
		base = []string{getenv("XDG_DATA_HOME"), "kubebuilder-envtest"}
		if base[0] == "" {
			base = []string{getenv("HOME"), ".local", "share", "kubebuilder-envtest"}
		}
	}
	if base[0] == "" {
		return "", errors.New("setup-envtest's cache is not known: HOME or LocalAppData is not set")
	}
	return filepath.Join(append(base, "k8s")...), nil
}

// setupEnvtestAssets returns the newest release in setup-envtest's cache that holds the binaries, or the reason why it
// found none.
func setupEnvtestAssets(needed []string, progress *progressWriter) (assets, reason string) {
	dir, err := setupEnvtestDir(runtime.GOOS, os.Getenv)
	if err != nil {
		return "", err.Error()
	}
	// A relative folder in the environment is relative to this process's folder. The servers are started elsewhere.
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err.Error()
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Sprintf("there is no cache of setup-envtest (%v)", err)
	}
	reason = fmt.Sprintf("setup-envtest's cache %s has none for %s/%s", dir, runtime.GOOS, runtime.GOARCH)
	separator := " but "
	for _, release := range envtestReleases(entries) {
		path := filepath.Join(dir, release.String()+platformSuffix)
		unusable := missingBinary(path, needed)
		if release.LessThan(oldestRelease) {
			unusable = fmt.Errorf("it is older than Kubernetes %s", oldestRelease)
		}
		if unusable == nil {
			return path, ""
		}
		progress.printf("passed over setup-envtest's %s: %v", path, unusable)
		reason += fmt.Sprintf("%s%s (%v)", separator, filepath.Base(path), unusable)
		separator = " and "
	}
	return "", reason
}

// platformSuffix ends the name of a release's folder.
const platformSuffix = "-" + runtime.GOOS + "-" + runtime.GOARCH

// envtestReleases returns the releases for this operating system and processor, the newest first.
func envtestReleases(entries []os.DirEntry) (found []*version.Version) {
	for _, entry := range entries {
		name, ours := strings.CutSuffix(entry.Name(), platformSuffix)
		release, err := version.ParseSemantic(name)
		if ours && err == nil && strings.Trim(name, "0123456789.") == "" { // not v1.2.3, nor 1.2.3-rc.1
			found = append(found, release)
		}
	}
	slices.SortFunc(found, func(a, b *version.Version) int {
		if a.LessThan(b) {
			return 1
		}
		return -1
	})
	return found
}
