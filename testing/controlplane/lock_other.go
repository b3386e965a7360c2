//go:build !linux && !darwin

package main

// This file replaces the lock on systems on which a control plane is not supported.

import (
	"errors"
	"os"
	"runtime"
)

func tryLock(*os.File) (bool, error) {
	return false, errors.New("run this on Linux or macOS, or set KUBEBUILDER_ASSETS: no control plane on " + runtime.GOOS)
}
