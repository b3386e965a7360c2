// Package stepname makes names of steps: DNS labels that become paths, metric labels and names of webhooks.
package stepname

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Max is the length of a name: that of a DNS label. It keeps the webhook's name, <step>.<fingerprint>.<domain>, within its
// 253.
const Max = validation.DNS1123LabelMaxLength

var (
	wordStart    = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z]+)([A-Z][a-z])`)
	majorVersion = regexp.MustCompile(`^v[0-9]+$`)
	notInLabel   = regexp.MustCompile(`[^a-z0-9]+`)
)

// Clean makes a DNS label of what a user or a Go type is called: MyExtension -> my-extension.
func Clean(s string) string {
	s = wordStart.ReplaceAllString(s, "${1}${3}-${2}${4}")
	s = strings.Trim(notInLabel.ReplaceAllString(strings.ToLower(s), "-"), "-")
	return strings.TrimRight(s[:min(len(s), Max)], "-")
}

// OfStep is the name of a typed step: its ID, else one made from the kind.
func OfStep(id, kind, suffix string) string {
	if id != "" {
		return Clean(id)
	}
	return strings.Trim(Clean(kind)+"-"+suffix, "-")
}

// Quoted is an ID in a message.
func Quoted(id string) string {
	if id == "" {
		return "(without ID)"
	}
	return fmt.Sprintf("%q", id)
}

// Unique gives the name a number where it is taken.
func Unique(name string, taken func(string) bool) string {
	base := name
	for i := 2; taken(name); i++ {
		suffix := fmt.Sprintf("-%d", i)
		name = strings.TrimRight(base[:min(len(base), Max-len(suffix))], "-") + suffix
	}
	return name
}

// OfType is the name of v's type, or, for a type called plainly Extension, that of its package:
// two programs' worth of pancake.Extension and volumes.Extension must not both be "extension".
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

// Package is the word that a package's import path stands for: not the major version at its end.
func Package(path string) string {
	segments := strings.Split(path, "/")
	last := len(segments) - 1
	if last > 0 && majorVersion.MatchString(segments[last]) {
		last--
	}
	return segments[last]
}
