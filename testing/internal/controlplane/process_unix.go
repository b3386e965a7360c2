//go:build linux || darwin

package controlplane

// This file holds the signals and file locks that Linux and macOS share.

import (
	"errors"
	"os"
	"syscall"
)

const (
	signalTerminate = syscall.SIGTERM
	signalPause     = syscall.SIGSTOP
	signalResume    = syscall.SIGCONT
)

// errLocked means that another process, or another control plane of this process, holds the lock.
var errLocked = errors.New("locked")

// lockFile locks a file and creates it if necessary. The lock is held until the returned file is closed or the process
// ends, in whatever way. If the lock is held elsewhere, lockFile waits if wait is set, and returns errLocked
// otherwise.
func lockFile(path string, wait bool) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		err = syscall.Flock(int(file.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, &os.PathError{Op: "flock", Path: path, Err: err}
	}
	return file, nil
}
