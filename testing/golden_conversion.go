package eirinixtest

// This file implements GoldenConversions.

import (
	"errors"
	"fmt"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

// GoldenConversions converts every document of every file <name>.yaml in a folder to each other version of its
// Conversion. It compares the results with the file <name>.golden.yaml beside it, which holds them one after the other,
// the Hub first. A comment holds the reason why an object cannot be converted. Golden says how to write the golden files.
func (h *Harness) GoldenConversions(folder string) {
	h.t.Helper()
	h.report(h.golden("GoldenConversions", folder, h.convertedText))
}

// convertedText converts the documents of a file to each other version.
func (h *Harness) convertedText(text []byte) (string, error) {
	if len(h.conversions) == 0 {
		return "", errors.New("there is no Conversion; give one to NewHarness, or a Manager that has one")
	}
	var results []string
	err := eachDocument(text, func(part []byte) error {
		if isBlank(part) {
			return nil
		}
		d, err := apiserver.ReadDocument(part)
		if err != nil {
			return err
		}
		converted, err := h.convertedToOthers(d)
		results = append(results, converted...)
		return err
	})
	return joined(results, err)
}

// convertedToOthers returns the object in each other version, as YAML.
func (h *Harness) convertedToOthers(d apiserver.Document) (results []string, err error) {
	c, found := h.conversionOf(d)
	if !found {
		return nil, fmt.Errorf("no Conversion has %s; the program converts %s", d.Kind, h.convertedKinds())
	}
	for _, version := range c.Versions {
		kind := version.GetObjectKind().GroupVersionKind()
		if kind.Version == d.Kind.Version {
			continue
		}
		kind.Kind = d.Kind.Kind
		converted, err := c.convert(kind, []apiserver.Document{d})
		if err != nil {
			results = append(results, remark("failed in %s: %v", kind.GroupVersion(), err))
			continue
		}
		results = append(results, converted[0].YAML())
	}
	return results, nil
}

// conversionOf returns the Conversion that an object belongs to. A group can have several, which then differ in the
// plural of the kind.
func (h *Harness) conversionOf(d apiserver.Document) (conversion, bool) {
	at, err := h.server.PlaceOf(d.Kind)
	for _, c := range h.conversions {
		for _, version := range c.Versions {
			kind := version.GetObjectKind().GroupVersionKind()
			if kind.GroupVersion() != d.Kind.GroupVersion() {
				continue
			}
			if err != nil && len(h.conversions) == 1 && kind.Kind == "" || err == nil && at.Resource.GroupResource().String() == c.CRD {
				return c, true
			}
		}
	}
	return conversion{}, false
}

// convertedKinds names the definitions that have a Conversion.
func (h *Harness) convertedKinds() string {
	text := ""
	for i, c := range h.conversions {
		if i > 0 {
			text += ", "
		}
		text += c.CRD
	}
	return text
}
