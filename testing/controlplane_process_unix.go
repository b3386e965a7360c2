//go:build linux || darwin

package eirinixtest

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

// errLocked tells that another process, or another control plane of this one, holds the lock.
var errLocked = errors.New("locked")

// lockFile locks a file, which it creates if need be, until the returned file is closed or the process ends,
// however it ends. With wait it waits for the lock, else errLocked is returned when somebody has it.
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
