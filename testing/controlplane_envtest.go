package eirinixtest

// This file finds binaries in the cache of setup-envtest.

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// oldestMinor is the oldest minor release of Kubernetes 1 that is used without an explicit request. It is the first
// that enables matchConditions of webhooks by default and that names the controllers as this package does.
const oldestMinor = 28

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

// setupEnvtestAssets returns the newest release in setup-envtest's cache that holds the binaries, or why there is none.
func setupEnvtestAssets(needed []string, progress *progressWriter) (assets, why string) {
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

	var passedOver []string

	for _, release := range envtestReleases(entries) {
		path := filepath.Join(dir, release.folder)

		reason := missingBinary(path, needed)
		if release.version[0] < 1 || release.version[0] == 1 && release.version[1] < oldestMinor {
			reason = fmt.Errorf("it is older than Kubernetes 1.%d", oldestMinor)
		}

		if reason == nil {
			return path, ""
		}

		passedOver = append(passedOver, fmt.Sprintf("%s (%v)", release.folder, reason))
		progress.printf("passed over setup-envtest's %s: %v", path, reason)
	}

	why = fmt.Sprintf("setup-envtest's cache %s has none for %s/%s", dir, runtime.GOOS, runtime.GOARCH)
	if passedOver != nil {
		why += " but " + strings.Join(passedOver, " and ")
	}

	return "", why
}

type envtestRelease struct {
	folder  string
	version [3]int
}

var envtestFolder = regexp.MustCompile(`^(\d+)\.(\d+)\.(\d+)-` + runtime.GOOS + `-` + runtime.GOARCH + `$`)

// envtestReleases returns the releases for this operating system and processor, the newest first.
func envtestReleases(entries []os.DirEntry) []envtestRelease {
	var found []envtestRelease

	for _, entry := range entries {
		match := envtestFolder.FindStringSubmatch(entry.Name())
		if match == nil {
			continue
		}

		release := envtestRelease{folder: entry.Name()}
		for i := range release.version {
			// A number that is out of range becomes the largest integer, which does no harm.
			release.version[i], _ = strconv.Atoi(match[i+1])
		}

		found = append(found, release)
	}

	slices.SortFunc(found, func(a, b envtestRelease) int {
		return cmp.Or(cmp.Compare(b.version[0], a.version[0]),
			cmp.Compare(b.version[1], a.version[1]), cmp.Compare(b.version[2], a.version[2]))
	})

	return found
}
