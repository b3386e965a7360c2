package eirinixtest

import (
	"os"
	"path/filepath"
	"strings"
)

// logSizes returns how long the log of each server in a folder is now, in bytes by path. No folder has none.
func logSizes(dir string) map[string]int64 {
	sizes := map[string]int64{}

	for _, path := range logFiles(dir) {
		if info, err := os.Stat(path); err == nil {
			sizes[path] = info.Size()
		}
	}

	return sizes
}

// loggedSince returns the end of what each server has logged since logSizes, bounded as logTail is. A server that
// has logged nothing is left out.
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

	// Logs have an absolute path, whatever the user has written.
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil
	}

	entries, err := os.ReadDir(dir) // not Glob, for which a folder's name is a pattern
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
