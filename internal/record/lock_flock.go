//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package record

// This file claims a lock file with flock.

import (
	"errors"
	"os"
	"syscall"
)

// openToClaim opens a file and claims it until it is closed or the process dies. It returns nil if another Recorder
// has claimed the file. On file systems without such claims, every caller gets one. It follows no symbolic link,
// because another user could have placed one there to have a file created elsewhere.
func openToClaim(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.EINTR
	for errors.Is(err, syscall.EINTR) {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, file.Close()
	}
	return file, nil
}
