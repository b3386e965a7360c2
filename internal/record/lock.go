package record

// This file claims a folder for one Recorder.

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// lockName is the lock file of a folder. As long as a process has claimed it, a Recorder is at work there. It is no
// recording (*.json), and is removed when the Recorder ends. A crash can leave it behind, which does no harm.
const lockName = ".eirinix.lock"

// lock is the claim on a folder. Only one goroutine uses it.
type lock struct {
	path string
	file *os.File
}

// lockFolder claims a folder. No other Recorder may use the folder, in this process or another.
func lockFolder(dir string) (*lock, error) {
	inUse := fmt.Errorf("another recording, of this process or another, goes on in %q; stop that one, or name another folder", dir)
	l := &lock{path: filepath.Join(dir, lockName)}
	for range mostClaims {
		file, err := openToClaim(l.path)
		if err != nil {
			if info, missing := os.Lstat(l.path); missing == nil && info.Mode().Type() == fs.ModeSymlink {
				return nil, fmt.Errorf("remove %s, or name another folder: it is a symbolic link, which is not followed", l.path)
			}
			return nil, err
		}
		if file == nil {
			return nil, inUse
		}
		l.file = file
		if l.stands() {
			return l, nil
		}
		_ = file.Close() // its holder has removed it meanwhile, so the claim is worthless
	}
	return nil, inUse
}

// mostClaims bounds how often other processes can be faster.
const mostClaims = 10

// stands reports whether the claimed file is still the one in the folder.
func (l *lock) stands() bool {
	ours, err := l.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(l.path)
	return err == nil && os.SameFile(ours, there)
}

// release removes the file, unless another process has replaced it, and gives up the claim.
func (l *lock) release() {
	if l.stands() {
		_ = os.Remove(l.path) // while it is still claimed
	}
	_ = l.file.Close()
}
