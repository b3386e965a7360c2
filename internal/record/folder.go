package record

// This file stores recordings in a folder of bounded size, which it claims for one Recorder, and names them.

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var (
	ours   = regexp.MustCompile(`^[0-9]{8}t[0-9]{6}\.[0-9]{9}z(-[a-z0-9.-]*)?\.json$`)
	unsafe = regexp.MustCompile(`[^a-z0-9.-]`)
)

const (
	extension = ".json"
	stamp     = "20060102t150405.000000000z" // in UTC, so that names sort by time

	// A file gets its name when it is complete. An unfinished file, which a crash has left, is removed at the next
	// start. It stays if it is so young that another process could still be writing it.
	unfinished    = ".eirinix-*.tmp"
	maxUnfinished = time.Hour

	// lockName is the file that a Recorder claims, and removes when it ends. A crash can leave it behind, which does
	// no harm.
	lockName  = ".eirinix.lock"
	maxClaims = 10 // bounds how often other processes can be faster
)

// folder is a folder of bounded size, in which no other Recorder writes. Only one goroutine uses and closes it.
type folder struct {
	dir      string
	lock     *os.File // nil while the folder cannot be claimed
	maxFiles int
	maxBytes int64
	files    []stored // sorted by name, and so by time
	bytes    int64
}

type stored struct {
	name string
	size int64
}

// openFolder creates the folder, claims it, and counts the recordings in it.
func openFolder(dir string, maxFiles int, maxBytes int64) (_ *folder, err error) {
	f := &folder{dir: dir, maxFiles: maxFiles, maxBytes: maxBytes}
	if err := f.claim(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, f.remedy(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if ours.MatchString(e.Name()) {
			f.files = append(f.files, stored{e.Name(), info.Size()})
			f.bytes += info.Size()
		} else if left, _ := filepath.Match(unfinished, e.Name()); left && time.Since(info.ModTime()) > maxUnfinished {
			_ = os.Remove(filepath.Join(dir, e.Name())) // a failure is retried at the next start
		}
	}
	return f, f.makeRoom(0, 0)
}

func (f *folder) remedy(err error) error {
	return fmt.Errorf("recordings cannot be written to %q; name a folder that can be written to "+
		"(where the root filesystem is read-only, mount an emptyDir): %w", f.dir, err)
}

// exposed returns the permissions of the folder, and reports whether other users could replace recordings in it. They
// could if group or others may write to it, unless it has the sticky bit, as /tmp does. Windows has no such
// permissions.
func (f *folder) exposed() (mode fs.FileMode, exposed bool) {
	info, err := os.Stat(f.dir)
	if err != nil || runtime.GOOS == "windows" {
		return 0, false
	}
	mode = info.Mode()
	return mode, mode.Perm()&0o022 != 0 && mode&fs.ModeSticky == 0
}

// claim claims the folder, and creates it if it is missing, unless the claim still holds. The folder can have been
// removed meanwhile.
func (f *folder) claim() error {
	if f.holds() {
		return nil
	}
	f.close()
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return f.remedy(err)
	}
	path := f.path(lockName)
	for range maxClaims {
		lock, err := openToClaim(path)
		if err != nil {
			if info, missing := os.Lstat(path); missing == nil && info.Mode().Type() == fs.ModeSymlink {
				return fmt.Errorf("remove %s, or name another folder: it is a symbolic link, which is not followed", path)
			}
			return f.remedy(err)
		}
		if lock == nil {
			break
		}
		if f.lock = lock; f.holds() {
			return nil
		}
		f.close() // another process has removed the file meanwhile, so the claim is worthless
	}
	return fmt.Errorf("another recording, of this process or another one, writes to %q; "+
		"stop that one, or name another folder", f.dir)
}

// holds reports whether the claimed file is still the one in the folder.
func (f *folder) holds() bool {
	if f.lock == nil {
		return false
	}
	claimed, err := f.lock.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(f.path(lockName))
	return err == nil && os.SameFile(claimed, there)
}

// close removes the claimed file, unless another process has replaced it, and gives up the claim.
func (f *folder) close() {
	if f.holds() {
		_ = os.Remove(f.path(lockName)) // while it is still claimed
	}
	if f.lock != nil {
		_ = f.lock.Close()
		f.lock = nil
	}
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, name) }

// put writes a file. If there is no room for it, put first removes the oldest files.
func (f *folder) put(file *file) error {
	size := int64(len(file.text))
	if size > f.maxBytes {
		return failed("disk", "a record takes %d bytes, but all may take %d (MaxBytes)", size, f.maxBytes)
	}
	if err := f.claim(); err != nil {
		return failed("disk", "%w", err)
	}
	if err := f.makeRoom(1, size); err != nil {
		return err
	}
	name, at := "", 0
	for i, taken := time.Duration(0), true; taken; i++ { // with a coarse clock, two calls can have the same time
		name = fileName(file.received.Add(i), file.about)
		at, taken = slices.BinarySearchFunc(f.files, name, func(s stored, to string) int { return cmp.Compare(s.name, to) })
	}
	if err := f.write(name, file.text); err != nil {
		return failed("disk", "%w", err)
	}
	f.files = slices.Insert(f.files, at, stored{name, size})
	f.bytes += size
	return nil
}

func (f *folder) makeRoom(files int, size int64) error {
	for len(f.files) > 0 && (len(f.files)+files > f.maxFiles || f.bytes+size > f.maxBytes) {
		oldest := f.files[0]
		if err := os.Remove(f.path(oldest.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return failed("disk", "no room: the oldest recording cannot be removed: %w", err)
		}
		f.files = slices.Delete(f.files, 0, 1)
		f.bytes -= oldest.size
	}
	return nil
}

func (f *folder) write(name string, text []byte) error {
	w, err := os.CreateTemp(f.dir, unfinished) // with mode 0600
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	if err = errors.Join(err, w.Close()); err == nil {
		err = os.Rename(w.Name(), f.path(name))
	}
	if err != nil {
		_ = os.Remove(w.Name()) // the first error is the one that matters
	}
	return err
}

// fileName returns the name of a recording. It holds only a-z, 0-9, dots and dashes, and fits into the 255 bytes that
// file systems allow.
func fileName(received time.Time, about string) string {
	return received.UTC().Format(stamp) + about + extension
}

// about describes the call in a file's name: -<operation>-<resource>[.<subresource>]-<namespace>-<name>-<uid>,
// without the parts that the request lacks. Every part is untrusted input.
func about(req *admissionv1.AdmissionRequest, object any) string {
	resource := req.Resource.Resource
	if req.SubResource != "" {
		resource += "." + req.SubResource
	}
	name := req.Name
	if object, ok := object.(map[string]any); ok && name == "" {
		name, _, _ = unstructured.NestedString(object, "metadata", "generateName") // with the dash at its end
	}
	var b strings.Builder
	for _, part := range []struct {
		word string
		most int
	}{{string(req.Operation), 10}, {resource, 50}, {req.Namespace, 63}, {name, 63}, {string(req.UID), 8}} {
		if part.word != "" {
			word := unsafe.ReplaceAllString(strings.ToLower(part.word[:min(len(part.word), 4*part.most)]), "-")
			b.WriteString("-" + word[:min(len(word), part.most)])
		}
	}
	return b.String()
}
