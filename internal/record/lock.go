package record

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// lockName is the file in a folder that says, as long as somebody has claimed it, that a Recorder is at work there. It is
// none of the recordings (*.json), and goes when the Recorder does; a crash may leave it, which harms nobody.
const lockName = ".eirinix.lock"

// lock is the claim on a folder. One goroutine uses it.
type lock struct {
	path string
	file *os.File
}

// lockFolder claims a folder, which no other Recorder may be using, in this process or another.
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
		_ = file.Close() // who held it has removed it meanwhile: it is nobody's any more
	}
	return nil, inUse
}

// mostClaims bounds how often others may be faster.
const mostClaims = 10

// stands tells whether the claimed file is still that in the folder.
func (l *lock) stands() bool {
	ours, err := l.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(l.path)
	return err == nil && os.SameFile(ours, there)
}

// release removes the file, unless somebody has put another in its place, and gives the claim up.
func (l *lock) release() {
	if l.stands() {
		_ = os.Remove(l.path) // as long as it is ours
	}
	_ = l.file.Close()
}
