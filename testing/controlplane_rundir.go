package eirinixtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	pidSuffix = ".pid"
	ownerLock = "owner.lock"
)

// runDir is the private folder (mode 0700) of one control plane: keys, data, logs, process IDs. Its owner holds
// a lock in it, which the kernel releases however the owner ends. So whoever can take the lock knows that the
// owner is gone, without trusting process IDs, and may clean up.
type runDir struct {
	path string
	lock *os.File
}

// runRoot is where a user's control planes have their folders, <process ID of the owner>-<random>.
// It is no temporary folder, as these are cleaned and shared, and it must be the same at the next start.
func runRoot() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("set HOME or XDG_CACHE_HOME to a writable folder, for the files of the control plane: %w", err)
	}

	root := filepath.Join(cache, "eirinix", "run")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return "", fmt.Errorf("set XDG_CACHE_HOME to a writable folder, for the files of the control plane: %w", err)
	}

	return root, nil
}

// newRunDir removes what dead owners left and makes a folder for a new control plane.
func newRunDir() (*runDir, error) {
	root, err := runRoot()
	if err != nil {
		return nil, err
	}

	// A folder is locked a moment after it is made; under this lock no sweep comes in between.
	rootLock, err := lockFile(filepath.Join(root, ".lock"), true)
	if err != nil {
		return nil, fmt.Errorf("lock of %s: %w", root, err)
	}
	defer rootLock.Close()

	if err := sweep(root); err != nil {
		return nil, err
	}

	dir := &runDir{}
	if dir.path, err = os.MkdirTemp(root, strconv.Itoa(os.Getpid())+"-"); err != nil {
		return nil, fmt.Errorf("folder of the control plane: %w", err)
	}

	if dir.lock, err = lockFile(filepath.Join(dir.path, ownerLock), false); err != nil {
		return nil, errors.Join(fmt.Errorf("lock of %s: %w", dir.path, err), os.RemoveAll(dir.path))
	}

	return dir, nil
}

// remove removes the folder and then gives up the lock, so that no sweep meets it half removed.
func (d *runDir) remove() error {
	err := os.RemoveAll(d.path)

	return errors.Join(err, d.lock.Close())
}

// sweep kills the servers and removes the folders of owners that are gone. The caller holds the root's lock.
func sweep(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("left-over control planes: %w", err)
	}

	var errs []error

	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}

		path := filepath.Join(root, entry.Name())

		lock, err := lockFile(filepath.Join(path, ownerLock), false)
		if errors.Is(err, errLocked) {
			continue // its owner lives
		}

		if err == nil {
			err = errors.Join(killLeftOver(path), os.RemoveAll(path), lock.Close())
		}

		// The folder may have vanished since ReadDir: its owner removes it without the root's lock.
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove the left-over folder %s by hand: %w", path, err))
		}
	}

	return errors.Join(errs...)
}

// killLeftOver kills the servers whose process IDs are in the folder. A process ID may belong to another
// program by now, so the command line must name the folder, as that of each of our servers does.
func killLeftOver(path string) error {
	files, err := filepath.Glob(filepath.Join(path, "*"+pidSuffix))
	if err != nil {
		return err
	}

	var errs []error

	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			errs = append(errs, err)

			continue
		}

		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil || pid <= 1 || !strings.Contains(commandLine(pid), path+string(filepath.Separator)) {
			continue // cut off while it was written, or not ours
		}

		process, err := os.FindProcess(pid)
		if err == nil {
			err = process.Kill()
		}

		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, fmt.Errorf("process %d: %w", pid, err))
		}
	}

	return errors.Join(errs...)
}
