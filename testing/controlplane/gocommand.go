package main

// This file runs the go command in the module of a release.

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// inModule calls do while the release's module is in a temporary folder.
func (b *builder) inModule(do func() error) (err error) {
	if b.module, err = os.MkdirTemp("", "eirinix-controlplane-"); err != nil {
		return fmt.Errorf("set TMPDIR to a writable folder: %w", err)
	}

	defer func() { err = errors.Join(err, os.RemoveAll(b.module)) }()

	for name, data := range map[string][]byte{"go.mod": b.release.mod, "go.sum": b.release.sum} {
		if err := os.WriteFile(filepath.Join(b.module, name), data, 0o644); err != nil {
			return fmt.Errorf("set TMPDIR to a folder with room: %w", err)
		}
	}

	return do()
}

var errInterrupted = errors.New("interrupted, nothing half-made is left")

// run runs the go command in the module. It calls line for each line on standard error and returns the standard
// output.
func (b *builder) run(ctx context.Context, line func(string), args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, b.goCommand, args...)
	cmd.Dir = b.module
	// The user's settings for other modules (a vendor folder, tags, a workspace, another target) do not apply to this
	// one. All else is as in the user's own builds, so that what both need is compiled once: CGO_ENABLED and -trimpath
	// would give even the standard library other objects.
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off", "PWD="+b.module,
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it then removes its temporary files
	cmd.WaitDelay = 10 * time.Second

	var stdout bytes.Buffer
	cmd.Stdout = &stdout

	// An io.Pipe is used instead of StderrPipe, because Wait must not close it before all output is read.
	reader, writer := io.Pipe()
	cmd.Stderr = writer

	said := make(chan []string)

	go func() {
		var complaints []string

		scanner := bufio.NewScanner(reader)
		scanner.Buffer(nil, 1<<20)

		for scanner.Scan() {
			if line != nil {
				line(scanner.Text())
			}

			if !isProgress(scanner.Text()) {
				complaints = append(complaints, scanner.Text())
			}
		}

		_, _ = io.Copy(io.Discard, reader) // an overlong line must not block the writer
		said <- complaints
	}()

	err := cmd.Run()
	writer.Close()

	complaints := <-said
	if err == nil {
		return stdout.String(), nil
	}

	if ctx.Err() != nil {
		return "", errInterrupted
	}

	return "", explain(b.goCommand, args[0], err, complaints)
}
