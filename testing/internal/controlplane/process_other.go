//go:build !linux && !darwin

package controlplane

// This file lets the package compile on systems on which a control plane is not supported.

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// errUnsupported is the error of NewControlPlane on systems without the necessary file locks and signals. It is
// returned when the first lock is taken. The rest of the package works there.
var errUnsupported = errors.New("run this on Linux or macOS: no control plane on " + runtime.GOOS)

var errLocked = errors.New("locked")

var (
	signalTerminate = os.Interrupt
	signalPause     = os.Interrupt
	signalResume    = os.Interrupt
)

func lockFile(string, bool) (*os.File, error) { return nil, errUnsupported }

func childAttributes() *syscall.SysProcAttr { return nil }

func commandLine(int) string { return "" }

func waitFrozen(int) error { return nil }
