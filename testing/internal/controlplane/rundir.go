package controlplane

// This file manages the private folders of control planes, and cleans up after owners that were killed.

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

// runDir is the private folder (mode 0700) of one control plane: keys, data, logs, process IDs. Its owner holds a lock
// in it, which the kernel releases however the owner ends. Another process that obtains the lock therefore knows that
// the owner is gone, without relying on process IDs, and can clean up.
type runDir struct {
	path     string
	lock     *os.File
	borrowed bool // from the process that started the control plane; lock is then that of the one who uses it
}

// runRoot returns the folder that holds all control-plane folders of a user, each named <process ID of the
// owner>-<random>. It is not in the system's temporary folder, which is shared and gets cleaned. It must be the same
// at the next start.
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

// newRunDir removes the leftovers of dead owners and creates a folder for a new control plane.
func newRunDir() (*runDir, error) {
	root, err := runRoot()
	if err != nil {
		return nil, err
	}
	// A folder is locked a moment after its creation. The root lock keeps sweeps out in between.
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

// remove removes the folder, unless it is borrowed, and then releases the lock, so that no sweep sees it half removed.
func (d *runDir) remove() (err error) {
	if !d.borrowed {
		err = os.RemoveAll(d.path)
	}
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
			continue // its owner is alive
		}
		if err == nil {
			err = errors.Join(killLeftOver(path), os.RemoveAll(path), lock.Close())
		}
		// The folder can have vanished since ReadDir, because its owner removes it without the root's lock.
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove the left-over folder %s by hand: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// killLeftOver kills the servers whose process IDs are in the folder. A process ID can belong to another program by
// now. So the command line must contain the folder's path, as that of each of our servers does.
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
			continue // written incompletely, or not ours
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
