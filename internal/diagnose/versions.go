package diagnose

// This file reports the versions of this program that live side by side.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// VersionInfo is one live version of this program. A version is a set of steps: replicas with equal steps are of one
// version.
type VersionInfo struct {
	Version    string   // its digest
	Ours       bool     // the version of this process
	Registered bool     // the API server calls its paths
	Came       int64    // increases in the order of arrival
	Steps      []string // its steps
}

// versions reports which version waits for which. That is normal during a rollout, but new steps of a waiting version
// are not in force.
func (d *diagnosis) versions() {
	if d.Versions == nil {
		return
	}
	all := slices.Clone(d.Versions())
	slices.SortStableFunc(all, func(a, b VersionInfo) int { return cmp.Compare(a.Came, b.Came) })
	at := slices.IndexFunc(all, func(v VersionInfo) bool { return v.Registered })
	if at < 0 {
		return // the registration itself is missing, which is another finding
	}
	first := all[at]
	for i, v := range all {
		if i == at {
			continue
		}
		f := Finding{
			Code: SeveralVersions, Severity: Note, Object: "version " + v.Version,
			Message: fmt.Sprintf("the registration of %s stands as long as its replicas answer; %s comes after %s", first, v, before(all, i, at)),
			Remedy:  "finish the rollout, or stop the other version",
		}
		if v.Ours {
			f.Severity = Warning
			f.Message += v.newSteps(first)
		}
		d.add(f)
	}
}

// String names the version in a sentence.
func (v VersionInfo) String() string {
	if v.Ours {
		return "this version " + v.Version
	}
	return "version " + v.Version
}

// before names the version that came before the i-th. first is the registered one, which the sentence has already
// named.
func before(all []VersionInfo, i, first int) string {
	if i == 0 || i-1 == first {
		return "it"
	}
	return "version " + all[i-1].Version
}

// newSteps names the steps that are not in force yet.
func (v VersionInfo) newSteps(first VersionInfo) string {
	added := slices.DeleteFunc(slices.Clone(v.Steps), func(s string) bool { return slices.Contains(first.Steps, s) })
	if len(added) == 0 {
		return ""
	}
	return ", and until then its new steps are not called: " + strings.Join(added, ", ")
}
