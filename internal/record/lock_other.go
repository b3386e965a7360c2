//go:build !darwin && !dragonfly && !freebsd && !illumos && !linux && !netbsd && !openbsd

package record

// This file claims a lock file on systems without flock.

import (
	"errors"
	"io/fs"
	"os"
)

// openToClaim creates a file and claims it. The claim holds as long as an open file cannot be removed, which is the
// case on Windows. It returns nil if another Recorder has claimed the file.
func openToClaim(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, nil
	}
	return file, err
}
