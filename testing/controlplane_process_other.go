//go:build !linux && !darwin

package eirinixtest

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// A control plane needs file locks and signals; on other systems NewControlPlane fails with this error when
// it takes its first lock, and the rest of the package works.
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
