package main

// This file measures the size of binaries.

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// sizeBound is the largest accepted ratio to the binary of the same program on controller-runtime alone.
// It was 1.10 before steps could look at other objects: every program links that, because a setting asks for it.
const sizeBound = 1.11

// sectionSize compares the binaries of the two programs in cost/ without symbols, as images contain them.
func sectionSize(ctx context.Context, r *report) error {
	dir, err := os.MkdirTemp("", "bench-size-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r.title("The stripped binary of one small webhook")
	sizes := map[string]float64{}
	for _, name := range []string{"ours", "controllerruntime"} {
		path := filepath.Join(dir, name)
		if text, err := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./cost/"+name).CombinedOutput(); err != nil {
			return fmt.Errorf("go build ./cost/%s: %w: %s", name, err, text)
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		sizes[name] = float64(info.Size())
		r.line("%-28s %8.1f MB", name, sizes[name]/1e6)
	}
	r.judge(sizes["ours"]/sizes["controllerruntime"], sizeBound, "size: ours/controller-runtime alone")
	return nil
}
