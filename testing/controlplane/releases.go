package main

// This file holds the releases of Kubernetes that can be built.

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// The module files are embedded in the program, so that it runs from any folder and from a read-only module cache. The
// newest release is this module itself. Each older release is a go.mod and a go.sum under another name. A folder with
// a go.mod could neither be embedded nor be part of this module's zip. The go command accepts the other names with
// -modfile:
//
//	go mod tidy -modfile=releases/v1.34.mod
var (
	//go:embed go.mod
	goMod []byte
	//go:embed go.sum
	goSum []byte
	//go:embed releases
	older embed.FS
)

// release is a minor release of Kubernetes, given by the module that requires its sources. Every k8s.io module is
// replaced by the one of the same release. etcd has the version of its client that the release requires, or a later
// patch of it. So all compiled code has the release's own versions. The godebug setting is the release's own too.
type release struct {
	name     string // for example 1.37
	mod, sum []byte
}

// releases returns all known releases, the oldest first.
func releases() ([]release, error) {
	all := []release{{name: minorOf(required(goMod)), mod: goMod, sum: goSum}}

	mods, err := fs.Glob(older, "releases/v*.mod")
	if err != nil {
		return nil, err
	}

	for _, file := range mods {
		mod, err := older.ReadFile(file)
		if err != nil {
			return nil, err
		}

		sum, err := older.ReadFile(strings.TrimSuffix(file, ".mod") + ".sum")
		if err != nil {
			return nil, err
		}

		name := strings.TrimPrefix(strings.TrimSuffix(path.Base(file), ".mod"), "v")
		all = append(all, release{name: name, mod: mod, sum: sum})
	}

	slices.SortFunc(all, func(a, b release) int { return cmp.Compare(minorNumber(a.name), minorNumber(b.name)) })

	return all, nil
}

// releaseNamed returns a release by its name, a minor release with or without v. An empty name means the newest.
func releaseNamed(name string) (release, error) {
	all, err := releases()
	if err != nil {
		return release{}, err
	}

	if name == "" {
		return all[len(all)-1], nil
	}

	var known []string

	for _, r := range all {
		if r.name == strings.TrimPrefix(name, "v") {
			return r, nil
		}

		known = append(known, r.name)
	}

	return release{}, fmt.Errorf("choose one of the releases %s: there is no Kubernetes %q here", strings.Join(known, ", "), name)
}

var requirement = regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(kubernetesModule) + ` (v1\.[0-9]+\.[0-9]+)( |$)`)

// required returns the version of Kubernetes that a go.mod requires, or an empty string.
func required(mod []byte) string {
	if match := requirement.FindSubmatch(mod); match != nil {
		return string(match[1])
	}

	return ""
}

// minorOf returns 1.37 for v1.37.1.
func minorOf(version string) string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")

	return major + "." + minor
}

// minorNumber returns 37 for 1.37.
func minorNumber(name string) int {
	_, minor, _ := strings.Cut(name, ".")
	n, _ := strconv.Atoi(minor)

	return n
}

// folderName returns the name of the cache folder, which contains the cache's key.
func (r release) folderName(version string) string {
	hash := sha256.New()

	for _, part := range [][]byte{r.mod, r.sum, []byte(recipe)} {
		sum := sha256.Sum256(part)
		hash.Write(sum[:])
	}

	return fmt.Sprintf("%s-%s-%s-%x", version, runtime.GOOS, runtime.GOARCH, hash.Sum(nil)[:6])
}
