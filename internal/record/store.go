package record

// This file stores recordings in a folder of bounded size.

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A file gets its name when it is complete. An unfinished file, which a crash has left, is removed at the next start.
// It stays if it is so young that another process could still be writing it.
const (
	unfinished      = ".eirinix-*.tmp"
	mostUnfinished  = time.Hour
	folderMode      = 0o700
	spaceForRenames = 1000
)

// store is a folder of bounded size, in which no other Recorder writes. Only one goroutine uses and closes it.
type store struct {
	dir      string
	lock     *lock // nil while the folder cannot be claimed
	maxFiles int
	maxBytes int64
	files    []stored // sorted by name, and so by time
	bytes    int64
}

type stored struct {
	name string
	size int64
}

// openStore creates the folder, claims it, checks that it can be written to, and counts the recordings in it.
func openStore(dir string, maxFiles int, maxBytes int64) (_ *store, err error) {
	s := &store{dir: dir, maxFiles: maxFiles, maxBytes: maxBytes}
	if err := s.claim(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	probe, err := os.CreateTemp(dir, unfinished)
	if err != nil {
		return nil, s.remedy(err)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return nil, s.remedy(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, s.remedy(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			s.found(info)
		}
	}
	return s, s.makeRoom(0, 0)
}

// claim claims the folder, and creates it if it is missing, unless the claim still holds. The folder can have been
// removed meanwhile.
func (s *store) claim() (err error) {
	if s.lock != nil && s.lock.stands() {
		return nil
	}
	s.close()
	if err := os.MkdirAll(s.dir, folderMode); err != nil {
		return s.remedy(err)
	}
	s.lock, err = lockFolder(s.dir)
	if errors.As(err, new(*fs.PathError)) {
		return s.remedy(err)
	}
	return err
}

// exposed returns the permissions of the folder, and reports whether other users could replace recordings in it. They
// could if group or others may write to it, unless it has the sticky bit, as /tmp does. Windows has no such
// permissions.
func (s *store) exposed() (mode fs.FileMode, exposed bool) {
	info, err := os.Stat(s.dir)
	if err != nil || runtime.GOOS == "windows" {
		return 0, false
	}
	mode = info.Mode()
	return mode, mode.Perm()&0o022 != 0 && mode&fs.ModeSticky == 0
}

func (s *store) close() {
	if s.lock != nil {
		s.lock.release()
		s.lock = nil
	}
}

func (s *store) remedy(err error) error {
	return fmt.Errorf("recordings cannot be written to %q; name a folder that can be written to (where the root filesystem is read-only, mount an emptyDir): %w", s.dir, err)
}

func (s *store) found(info fs.FileInfo) {
	if isOurs(info.Name()) {
		s.files = append(s.files, stored{info.Name(), info.Size()})
		s.bytes += info.Size()
		return
	}
	if ours, _ := filepath.Match(unfinished, info.Name()); ours && time.Since(info.ModTime()) > mostUnfinished {
		_ = os.Remove(filepath.Join(s.dir, info.Name())) // a failure is retried at the next start
	}
}

// put writes a file. If there is no room for it, put first removes the oldest files.
func (s *store) put(f *file) error {
	size := int64(len(f.text))
	if size > s.maxBytes {
		return failed(onDisk, "a record takes %d bytes, but all may take %d (MaxBytes)", size, s.maxBytes)
	}
	if err := s.claim(); err != nil {
		return &failure{kind: onDisk, err: err}
	}
	if err := s.makeRoom(1, size); err != nil {
		return err
	}
	name, err := s.write(f)
	if err != nil {
		return &failure{kind: onDisk, err: err}
	}
	at, _ := slices.BinarySearchFunc(s.files, name, func(f stored, name string) int { return cmp.Compare(f.name, name) })
	s.files = slices.Insert(s.files, at, stored{name, size})
	s.bytes += size
	return nil
}

func (s *store) makeRoom(files int, size int64) error {
	for len(s.files) > 0 && (len(s.files)+files > s.maxFiles || s.bytes+size > s.maxBytes) {
		oldest := s.files[0]
		if err := os.Remove(filepath.Join(s.dir, oldest.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return failed(onDisk, "no room: the oldest recording cannot be removed: %w", err)
		}
		s.files = slices.Delete(s.files, 0, 1)
		s.bytes -= oldest.size
	}
	return nil
}

func (s *store) write(f *file) (name string, err error) {
	w, err := os.CreateTemp(s.dir, unfinished) // with mode 0600
	if err != nil {
		return "", err
	}
	_, err = w.Write(f.text)
	if err = errors.Join(err, w.Close()); err == nil {
		if name, err = s.free(f); err == nil {
			err = os.Rename(w.Name(), filepath.Join(s.dir, name))
		}
	}
	if err != nil {
		_ = os.Remove(w.Name()) // the first error is the one that matters
	}
	return name, err
}

// free returns a name that no file has. With a coarse clock, two calls can have the same time.
func (s *store) free(f *file) (string, error) {
	for i := range spaceForRenames {
		name := fileName(f.received.Add(time.Duration(i)), f.about)
		if _, err := os.Lstat(filepath.Join(s.dir, name)); errors.Is(err, fs.ErrNotExist) {
			return name, nil
		} else if err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%d recordings begin with %s", spaceForRenames, strings.TrimSuffix(fileName(f.received, f.about), extension))
}
