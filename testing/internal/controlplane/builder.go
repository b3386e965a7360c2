package controlplane

// This file finds and runs the builder in testing/controlplane, which builds the binaries from Go modules.

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

const (
	rootModule       = "code.cloudfoundry.org/eirinix"
	controlPlanePath = "testing/controlplane"
)

// builderRecipe is the version of the builder's recipe. It is part of the hash in the name of the build folder.
const builderRecipe = "1"

// findBuilder is the type of builderDir.
type findBuilder func(ctx context.Context, env ...string) (dir string, err error)

// builtAssets returns the folder of this version's builder if it has already built, or else the reason. It does not
// use the network, because a builder that is not on this machine has not built here. It does not run the builder
// either, because that would build.
func builtAssets(ctx context.Context, find findBuilder) (assets, why string) {
	dir, err := find(ctx, "GOPROXY=off")
	if err != nil {
		return "", "this module's builder is not on this machine yet"
	}
	if assets, err = builderFolder(dir); err != nil {
		return "", err.Error()
	}
	if err := missingBinary(assets, allBinaries); err != nil {
		return "", fmt.Sprintf("this module has not built %s yet", assets)
	}
	return assets, ""
}

var builderKubernetes = regexp.MustCompile(`(?m)^\tk8s\.io/kubernetes (v[0-9.]+)\b`)

// builderFolder returns the folder in the user's cache in which the builder builds. Its name contains the builder's
// cache key, so every change that affects the binaries changes the folder.
func builderFolder(dir string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", err
	}
	sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return "", err
	}
	version := builderKubernetes.FindSubmatch(mod)
	if version == nil {
		return "", fmt.Errorf("the builder's go.mod in %s does not say which Kubernetes it builds", dir)
	}
	key := sha256.New()
	for _, part := range [][]byte{mod, sum, []byte(builderRecipe)} {
		hash := sha256.Sum256(part)
		key.Write(hash[:])
	}
	name := fmt.Sprintf("%s-%s-%s-%x", version[1], runtime.GOOS, runtime.GOARCH, key.Sum(nil)[:6])
	return filepath.Join(cache, "eirinix", "controlplane", name), nil
}

// buildAssetsHere finds the builder, downloads it if necessary, and runs it.
func buildAssetsHere(ctx context.Context, needed []string, progress *progressWriter) (string, error) {
	dir, err := builderDir(ctx)
	if err != nil {
		return "", fmt.Errorf("their builder is not found: %w", err)
	}
	return buildAssets(ctx, dir, needed, progress)
}

// builderDir returns the folder of the module testing/controlplane. In a work tree it is near this source file. A
// module zip does not contain nested modules, so elsewhere the builder is downloaded in this module's version. env is
// added to the environment of the go command.
func builderDir(ctx context.Context, env ...string) (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) { // not absolute with -trimpath
		if dir := filepath.Join(filepath.Dir(file), "..", "..", "controlplane"); isModule(dir) {
			return dir, nil
		}
	}
	// A test binary runs in its package's folder, so the go command finds the user's main module there.
	return downloadedBuilderDir(ctx, ".", env...)
}

func downloadedBuilderDir(ctx context.Context, from string, env ...string) (string, error) {
	var module struct{ Dir, Version string }
	if err := goJSON(ctx, from, env, &module, "list", "-m", "-json", rootModule); err != nil {
		return "", err
	}
	// A replace directive or a workspace may point to a work tree.
	if dir := filepath.Join(module.Dir, filepath.FromSlash(controlPlanePath)); module.Dir != "" && isModule(dir) {
		return dir, nil
	}
	var failures []error
	for _, version := range []string{module.Version, "latest"} {
		if version == "" {
			continue
		}
		var download struct{ Dir string }

		err := goJSON(ctx, from, env, &download, "mod", "download", "-json", rootModule+"/"+controlPlanePath+"@"+version)
		if err == nil {
			return download.Dir, nil
		}
		failures = append(failures, err)
	}
	return "", errors.Join(failures...)
}

func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// goJSON runs the go command in a folder and decodes its JSON output.
func goJSON(ctx context.Context, dir string, env []string, into any, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)

	var stderr bytes.Buffer
	cmd.Stderr = &stderr

	output, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go %s: %w: %s%s", strings.Join(args, " "), err,
			bytes.TrimSpace(stderr.Bytes()), bytes.TrimSpace(output))
	}
	return json.Unmarshal(output, into)
}

// builderGrace is the time that a cancelled builder has to remove its incomplete output.
const builderGrace = 10 * time.Second

// buildAssets compiles and runs the builder, which prints the folder, immediately if it has the binaries. It does not
// use "go run", which would not pass a cancellation on to the builder.
func buildAssets(ctx context.Context, dir string, needed []string, progress *progressWriter) (assets string, err error) {
	temp, err := os.MkdirTemp("", "eirinix-builder-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()

	// The builder is another main module, so the user's workspace, vendor folder and target platform do not apply to
	// it.
	env := append(os.Environ(),
		"GOWORK=off", "GOFLAGS=-mod=readonly", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	builder := filepath.Join(temp, "controlplane")

	compile := exec.CommandContext(ctx, "go", "-C", dir, "build", "-buildvcs=false", "-o", builder, ".")
	compile.Env = env
	if output, err := compile.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the builder in %s does not compile: %w: %s",
			dir, errors.Join(context.Cause(ctx), err), bytes.TrimSpace(output))
	}
	var stderr bytes.Buffer

	build := exec.CommandContext(ctx, builder, "-need="+strings.Join(needed, ","))
	build.Env = env
	build.Stderr = io.MultiWriter(progress, &stderr)
	build.Cancel = func() error { return build.Process.Signal(os.Interrupt) }
	build.WaitDelay = builderGrace

	output, err := build.Output()
	if err != nil {
		return "", fmt.Errorf("the control plane's binaries could not be built: %w\n%s",
			errors.Join(context.Cause(ctx), err), bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(output)), nil
}
