package webhookconf

import (
	"slices"
	"strings"
)

// SetsAnnotation holds, for every entry, a digest of the steps that are to run when it is called. Steps share entries, so
// webhooks may be the same for two versions that do not have the same steps; a replica of the one must not answer for the
// other.
const SetsAnnotation = "eirinix.cloudfoundry.org/sets"

// sets is the annotation for the entries of one kind; empty for none.
func (w Writer) sets(validating bool) string {
	var all []string
	for _, e := range w.Entries {
		if set, ok := w.Sets[e.Name]; ok && e.Validating == validating {
			all = append(all, e.Name+"="+set)
		}
	}
	return strings.Join(slices.Sorted(slices.Values(all)), ",")
}

// readSets is the annotation taken apart; what cannot be read is left out.
func readSets(annotation string) map[string]string {
	sets := map[string]string{}
	for part := range strings.SplitSeq(annotation, ",") {
		if name, set, ok := strings.Cut(part, "="); ok {
			sets[name] = set
		}
	}
	return sets
}

// elsewhere gives the paths of those entries of ours that are registered with other steps.
func (w Writer) elsewhere(annotations map[string]string, validating bool) (paths []string) {
	registered := readSets(annotations[SetsAnnotation])
	for _, e := range w.Entries {
		set, told := registered[e.Name]
		if own, ok := w.Sets[e.Name]; ok && told && e.Validating == validating && set != own {
			paths = append(paths, e.Path)
		}
	}
	return paths
}
