//go:build !darwin && !dragonfly && !freebsd && !illumos && !linux && !netbsd && !openbsd

package record

import (
	"errors"
	"io/fs"
	"os"
)

// openToClaim opens a file that is ours as long as it cannot be removed while it is open, which is so on Windows; it gives
// none if it is somebody else's.
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
