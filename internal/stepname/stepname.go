// Package stepname derives the names of steps: DNS labels that become paths, metric labels and names of webhooks.
package stepname

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Max is the maximum length of a name, which is that of a DNS label. It keeps the webhook's name,
// <step>.<fingerprint>.<domain>, within its limit of 253.
const Max = validation.DNS1123LabelMaxLength

var (
	wordStart    = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z]+)([A-Z][a-z])`)
	majorVersion = regexp.MustCompile(`^v[0-9]+$`)
	notInLabel   = regexp.MustCompile(`[^a-z0-9]+`)
)

// Clean converts a name from a user or of a Go type to a DNS label: MyExtension -> my-extension.
func Clean(s string) string {
	s = wordStart.ReplaceAllString(s, "${1}${3}-${2}${4}")
	s = strings.Trim(notInLabel.ReplaceAllString(strings.ToLower(s), "-"), "-")
	return strings.TrimRight(s[:min(len(s), Max)], "-")
}

// OfStep returns the name of a typed step: its ID, or else a name derived from the kind.
func OfStep(id, kind, suffix string) string {
	if id != "" {
		return Clean(id)
	}
	return strings.Trim(Clean(kind)+"-"+suffix, "-")
}

// Quoted returns an ID in the form that messages use.
func Quoted(id string) string {
	if id == "" {
		return "(without ID)"
	}
	return fmt.Sprintf("%q", id)
}

// Unique returns name, with a number appended if it is taken.
func Unique(name string, taken func(string) bool) string {
	base := name
	for i := 2; taken(name); i++ {
		suffix := fmt.Sprintf("-%d", i)
		name = strings.TrimRight(base[:min(len(base), Max-len(suffix))], "-") + suffix
	}
	return name
}

// OfType returns the name of v's type. For a type that is just called Extension, it returns the name of its package,
// because pancake.Extension and volumes.Extension must not both become "extension".
func OfType(v any) string {
	t := reflect.TypeOf(v)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name, _, _ := strings.Cut(t.Name(), "[") // type parameters are not part of a name
	pkg := Package(t.PkgPath())
	if strings.EqualFold(name, "extension") && pkg != "" && pkg != "main" {
		return pkg
	}
	return name
}

// Package returns the name of the package with an import path. It skips a major version at the end of the path.
func Package(path string) string {
	segments := strings.Split(path, "/")
	last := len(segments) - 1
	if last > 0 && majorVersion.MatchString(segments[last]) {
		last--
	}
	return segments[last]
}
