package controlplane

// This file finds the binaries of a control plane, or has them downloaded or built.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const assetsVariable = "KUBEBUILDER_ASSETS"

// allBinaries are the binaries of a control plane, with the optional one last.
var allBinaries = []string{"etcd", "kube-apiserver", "kube-controller-manager"}

func (o Options) binaries() []string {
	if o.ControllerManager {
		return allBinaries
	}
	return allBinaries[:2]
}

// FindAssets returns the folder with the binaries that opts needs. If there is none, it has them downloaded or built.
func FindAssets(ctx context.Context, opts Options) (string, error) {
	return findAssets(ctx, opts, &progressWriter{w: opts.Progress})
}

// findAssets returns the folder with the binaries that opts needs. A folder that the caller or the environment
// names comes first, then the folder that this module has built. The newest release that setup-envtest has downloaded
// follows. The builder is last, which downloads what it can and builds the rest. The module's own build, which CI uses,
// precedes setup-envtest's cache. So tests behave the same on a machine on which setup-envtest was once run.
func findAssets(ctx context.Context, opts Options, progress *progressWriter) (string, error) {
	needed := opts.binaries()
	for _, named := range []struct{ source, dir string }{
		{"ControlPlaneOptions.Assets", opts.Assets},
		{assetsVariable, os.Getenv(assetsVariable)},
	} {
		if named.dir != "" {
			return namedAssets(named.source, named.dir, needed, progress)
		}
	}
	looked := []string{assetsVariable + " is not set"}

	dir, why := builtAssets(ctx, builderDir)
	if dir != "" {
		progress.printf("binaries from %s, which this module has built before", dir)
		return dir, nil
	}
	looked = append(looked, why)

	dir, why = setupEnvtestAssets(needed, progress)
	if dir != "" {
		progress.printf("binaries from %s, the newest release in setup-envtest's cache; "+
			"set %s to choose another", dir, assetsVariable)
		return dir, nil
	}
	looked = append(looked, why)

	dir, err := buildAssetsHere(ctx, needed, progress)
	if err == nil {
		err = missingBinary(dir, needed)
	}
	if err != nil {
		return "", fmt.Errorf("set %s to a folder with %s (setup-envtest downloads them without a controller manager): "+
			"%w\nlooked for before: %s", assetsVariable, strings.Join(needed, ", "), err, strings.Join(looked, "; "))
	}
	progress.printf("binaries from %s, which this module has built or downloaded", dir)
	return dir, nil
}

// namedAssets checks a folder that the caller or the environment names. It returns an error if the folder is unusable.
func namedAssets(source, dir string, needed []string, progress *progressWriter) (string, error) {
	// The servers are started in another folder.
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := missingBinary(dir, needed); err != nil {
		return "", fmt.Errorf("set %s to a folder with %s, or unset it to have them found or built: %w",
			source, strings.Join(needed, ", "), err)
	}
	progress.printf("binaries from %s, which %s names", dir, source)
	return dir, nil
}

// missingBinary returns an error for the first binary that is missing from a folder, or nil.
func missingBinary(dir string, needed []string) error {
	for _, name := range needed {
		info, err := os.Stat(filepath.Join(dir, name))
		if err == nil && (info.IsDir() || info.Mode()&0o111 == 0) {
			err = errors.New("not an executable file")
		}
		if err != nil {
			return fmt.Errorf("no %s: %w", name, err)
		}
	}
	return nil
}
