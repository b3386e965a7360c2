//go:build linux || darwin

package main

// This file implements the cache's lock on Linux and macOS.

import (
	"errors"
	"os"
	"syscall"
)

// tryLock takes the lock of an open file without waiting, and reports whether it succeeded. Closing the file releases
// it.
func tryLock(file *os.File) (bool, error) {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return false, nil
	}

	return err == nil, err
}
