//go:build unix

// Hold runs a command while two control planes run, one for each core of a small machine, which the packages of the module
// share: those that call eirinixtest.StartControlPlane with eirinixtest.Shared have one of them, one after the other. At
// the end it prints what the command cost.
//
//	go run ./testing/internal/hold go test ./...
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"code.cloudfoundry.org/eirinix/testing/internal/controlplane"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "hold:", err)
		code = 1
	}
	os.Exit(code)
}

// run returns the command's exit code.
func run(args []string) (int, error) {
	if len(args) == 0 {
		return 0, errors.New("give the command to run")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	began := time.Now()
	var planes []*controlplane.Plane
	var folders []string
	for range 2 {
		plane, err := controlplane.New(ctx, controlplane.Options{Progress: os.Stderr})
		if err != nil {
			return 0, errors.Join(err, stopAll(planes))
		}
		planes, folders = append(planes, plane), append(folders, plane.Folder())
	}
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.Env = append(os.Environ(), controlplane.FoldersVariable+"="+strings.Join(folders, string(filepath.ListSeparator)))
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := errors.Join(command.Run(), stopAll(planes))

	var used syscall.Rusage // of all processes that have ended and were waited for
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used); err == nil {
		cpu := time.Duration(used.Utime.Nano() + used.Stime.Nano())
		fmt.Printf("%s of CPU time in %s\n", cpu.Round(time.Second), time.Since(began).Round(time.Second))
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	return 0, err
}

func stopAll(planes []*controlplane.Plane) error {
	var errs []error
	for _, plane := range planes {
		errs = append(errs, plane.Stop())
	}
	return errors.Join(errs...)
}
