package eirinixtest

import (
	"bytes"
	"context"
	"encoding/json"
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

const (
	assetsVariable   = "KUBEBUILDER_ASSETS"
	rootModule       = "code.cloudfoundry.org/eirinix"
	controlPlanePath = "testing/controlplane"
)

// controlPlaneAssets returns the folder with the binaries that opts needs, building them if need be.
func controlPlaneAssets(ctx context.Context, opts ControlPlaneOptions, progress *progressWriter) (string, error) {
	assets, source := opts.Assets, "ControlPlaneOptions.Assets"
	if assets == "" {
		assets, source = os.Getenv(assetsVariable), assetsVariable
	}

	if assets == "" {
		dir, err := builderDir(ctx)
		if err != nil {
			return "", fmt.Errorf("set %s to a folder with etcd and kube-apiserver: their builder is not found: %w",
				assetsVariable, err)
		}

		source = "the builder's folder"
		if assets, err = buildAssets(ctx, dir, progress); err != nil {
			return "", err
		}
	}

	// The servers are started in another folder.
	assets, err := filepath.Abs(assets)
	if err != nil {
		return "", err
	}

	needed := []string{"etcd", "kube-apiserver"}
	if opts.ControllerManager {
		needed = append(needed, "kube-controller-manager")
	}

	for _, name := range needed {
		info, err := os.Stat(filepath.Join(assets, name))
		if err == nil && (info.IsDir() || info.Mode()&0o111 == 0) {
			err = errors.New("not an executable file")
		}

		if err != nil {
			return "", fmt.Errorf("unset %s to have %s built, or put it into %s (%s): %w",
				assetsVariable, name, assets, source, err)
		}
	}

	return assets, nil
}

// builderDir returns the folder of the module testing/controlplane: beside this source file in a work tree.
// A module zip does not contain nested modules, so elsewhere it is downloaded in this module's version.
func builderDir(ctx context.Context) (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) { // -trimpath: not absolute
		if dir := filepath.Join(filepath.Dir(file), "controlplane"); isModule(dir) {
			return dir, nil
		}
	}

	// A test binary runs in its package's folder, so the go command sees the user's main module there.
	return downloadedBuilderDir(ctx, ".")
}

func downloadedBuilderDir(ctx context.Context, from string) (string, error) {
	var module struct{ Dir, Version string }
	if err := goJSON(ctx, from, &module, "list", "-m", "-json", rootModule); err != nil {
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

		err := goJSON(ctx, from, &download, "mod", "download", "-json", rootModule+"/"+controlPlanePath+"@"+version)
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

// goJSON runs the go command in a folder and decodes what it prints.
func goJSON(ctx context.Context, dir string, into any, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir

	var stderr bytes.Buffer
	cmd.Stderr = &stderr

	output, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go %s: %w: %s%s", strings.Join(args, " "), err,
			bytes.TrimSpace(stderr.Bytes()), bytes.TrimSpace(output))
	}

	return json.Unmarshal(output, into)
}

// builderGrace is how long a cancelled builder may take to remove what it has half made.
const builderGrace = 10 * time.Second

// buildAssets compiles and runs the builder, which prints the folder, at once if it has built before. It is not
// left to "go run", which would keep a cancellation to itself.
func buildAssets(ctx context.Context, dir string, progress *progressWriter) (assets string, err error) {
	temp, err := os.MkdirTemp("", "eirinix-builder-")
	if err != nil {
		return "", err
	}

	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()

	// The builder is another main module: the user's workspace, vendor folder and target do not concern it.
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

	build := exec.CommandContext(ctx, builder)
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
