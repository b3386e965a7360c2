package eirinixtest

// This file reads the part of the servers' logs that belongs to one test.

import (
	"os"
	"path/filepath"
	"strings"
)

// logSizes returns the current size in bytes of each server's log in a folder, by path. An empty folder name has no
// logs.
func logSizes(dir string) map[string]int64 {
	sizes := map[string]int64{}

	for _, path := range logFiles(dir) {
		if info, err := os.Stat(path); err == nil {
			sizes[path] = info.Size()
		}
	}

	return sizes
}

// loggedSince returns the end of each server's log since logSizes, bounded as logTail is. Servers that have logged
// nothing are left out.
func loggedSince(dir string, sizes map[string]int64) string {
	var tails strings.Builder

	for _, path := range logFiles(dir) {
		from := sizes[path]
		if info, err := os.Stat(path); err == nil && info.Size() <= from {
			continue
		}

		tails.WriteString(logTail(path, from))
	}

	if tails.Len() == 0 {
		return "the control plane has logged nothing since the test began"
	}

	return tails.String()
}

func logFiles(dir string) []string {
	if dir == "" {
		return nil
	}

	// The paths of the logs are absolute, even if the user's folder is relative.
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil
	}

	entries, err := os.ReadDir(dir) // not Glob, which would treat the folder's name as a pattern
	if err != nil {
		return nil
	}

	var paths []string

	for _, entry := range entries {
		if filepath.Ext(entry.Name()) == ".log" {
			paths = append(paths, filepath.Join(dir, entry.Name()))
		}
	}

	return paths
}
