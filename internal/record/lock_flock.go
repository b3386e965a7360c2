//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package record

import (
	"errors"
	"os"
	"syscall"
)

// openToClaim opens a file that is ours until it is closed or the process dies; it gives none if it is somebody else's.
// On file systems that know no such claims, it is everybody's. It follows no symbolic link, which another user may have put
// there to have a file made elsewhere.
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
