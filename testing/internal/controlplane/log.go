package controlplane

// This file reads the part of the servers' logs that belongs to one test.

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// LogSizes is the size in bytes of each server's log at one moment, by file name.
type LogSizes map[string]int64

// LogSizesIn returns the current sizes of the logs in a folder. An empty folder name has no logs.
func LogSizesIn(dir string) LogSizes {
	sizes := LogSizes{}
	names, _ := fs.Glob(os.DirFS(dir), "*.log") // the folder's name itself can look like a pattern
	for _, name := range names {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
			sizes[name] = info.Size()
		}
	}
	return sizes
}

// LoggedSince returns the end of each server's log since the sizes were taken: at most 4 KiB each. Servers that have
// logged nothing are left out.
func (s LogSizes) LoggedSince(dir string) string {
	var tails strings.Builder
	sizes := LogSizesIn(dir)
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		if sizes[name] > s[name] {
			tails.WriteString(logTail(filepath.Join(dir, name), s[name]))
		}
	}
	if tails.Len() == 0 {
		return "the control plane has logged nothing since the test began"
	}
	return tails.String()
}
