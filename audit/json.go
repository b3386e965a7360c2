package audit

// This file prints findings as JSON, and as SARIF 2.1.0 for code scanning. Both are written finding by finding.

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix"
)

// stream writes the elements of a JSON array.
type stream struct {
	w       io.Writer
	started bool
}

func (s *stream) add(element any) error {
	text, err := json.Marshal(element)
	if err != nil {
		return err
	}
	separator := ",\n"
	if !s.started {
		separator, s.started = "\n", true
	}
	_, err = fmt.Fprintf(s.w, "%s    %s", separator, text)
	return err
}

// jsonPrinter writes one document for programs. The field names are stable and documented in docs/preview-and-audit.md#audit.
type jsonPrinter struct {
	w        io.Writer
	findings stream
}

type jsonFinding struct {
	Result     Result       `json:"result"`
	Step       string       `json:"step"`
	Mode       eirinix.Mode `json:"mode,omitempty"`
	Operation  string       `json:"operation,omitempty"`
	APIVersion string       `json:"apiVersion,omitempty"`
	Kind       string       `json:"kind,omitempty"`
	Resource   string       `json:"resource,omitempty"`
	Namespace  string       `json:"namespace,omitempty"`
	Name       string       `json:"name,omitempty"`
	UID        string       `json:"uid,omitempty"`
	Message    string       `json:"message,omitempty"`
	Paths      []string     `json:"paths,omitempty"`
	Frozen     bool         `json:"frozen,omitempty"`
}

type jsonStep struct {
	Step    string `json:"step"`
	Asked   int    `json:"asked"`
	Denied  int    `json:"denied"`
	Failed  int    `json:"failed"`
	Drift   int    `json:"drift"`
	Unknown int    `json:"unknown"`
}

type jsonGap struct {
	Step      string `json:"step"`
	Group     string `json:"group,omitempty"`
	Resource  string `json:"resource,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Objects   int    `json:"objects,omitempty"`
	Reason    string `json:"reason"`
	Remedy    string `json:"remedy"`
}

func (p *jsonPrinter) begin() error {
	p.findings.w = p.w
	_, err := io.WriteString(p.w, "{\n  \"findings\": [")
	return err
}

func (p *jsonPrinter) finding(f Finding) error {
	apiVersion, kind := f.Kind.ToAPIVersionAndKind()
	return p.findings.add(jsonFinding{
		Result: f.Result, Step: f.Step, Mode: f.Mode, Operation: string(f.Operation), APIVersion: apiVersion, Kind: kind,
		Resource: f.Resource.Resource, Namespace: f.Namespace, Name: f.Name, UID: string(f.UID), Message: f.Message, Paths: f.Paths, Frozen: f.Frozen,
	})
}

func (p *jsonPrinter) end(s Summary, failed error) error {
	steps := []jsonStep{}
	for _, step := range stepsOf(s) {
		found := s.Findings[step]
		steps = append(steps, jsonStep{
			step, s.Asked[step], found[Denied], found[Failed], found[Drift], found[Unknown],
		})
	}
	gaps := []jsonGap{}
	for _, g := range s.Gaps {
		gaps = append(gaps, jsonGap{g.Step, g.Resource.Group, g.Resource.Resource, g.Namespace, g.Objects, g.Reason, g.Remedy})
	}
	summary, err := json.Marshal(struct {
		Objects int        `json:"objects"`
		Steps   []jsonStep `json:"steps"`
		Gaps    []jsonGap  `json:"gaps"`
	}{s.Objects, steps, gaps})
	if err != nil {
		return err
	}
	end := ""
	if failed != nil {
		text, err := json.Marshal(failed.Error())
		if err != nil {
			return err
		}
		end = fmt.Sprintf(",\n  \"error\": %s", text)
	}
	_, err = fmt.Fprintf(p.w, "\n  ],\n  \"summary\": %s%s\n}\n", summary, end)
	return err
}

// stepsOf returns the names of all steps in a summary, in order.
func stepsOf(s Summary) []string {
	all := map[string]bool{}
	for step := range s.Asked {
		all[step] = true
	}
	for step := range s.Findings {
		all[step] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// sarifPrinter writes a SARIF log with one run. The format is that of
// https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html. A result is a finding about one object.
type sarifPrinter struct {
	w       io.Writer
	results stream
	rules   map[string]bool // the steps of the results so far
}

type (
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID              string            `json:"ruleId"`
		Level               string            `json:"level"`
		Message             sarifText         `json:"message"`
		Locations           []sarifLocation   `json:"locations,omitempty"`
		PartialFingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		PhysicalLocation sarifPhysical  `json:"physicalLocation"`
		LogicalLocations []sarifLogical `json:"logicalLocations"`
	}
	sarifPhysical struct {
		ArtifactLocation sarifURI `json:"artifactLocation"`
	}
	sarifURI struct {
		URI string `json:"uri"`
	}
	sarifLogical struct {
		Name               string `json:"name"`
		FullyQualifiedName string `json:"fullyQualifiedName"`
		Kind               string `json:"kind"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
	}
)

var levels = map[Result]string{
	Denied: "error", Failed: "error", Drift: "warning", Unknown: "note",
}

func (p *sarifPrinter) begin() error {
	p.results.w, p.rules = p.w, map[string]bool{}
	_, err := io.WriteString(p.w, `{
  "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
  "version": "2.1.0",
  "runs": [{
    "results": [`)
	return err
}

func (p *sarifPrinter) finding(f Finding) error {
	p.rules[f.Step] = true
	r := sarifResult{RuleID: f.Step, Level: levels[f.Result], Message: sarifText{f.Text()}}
	identity := f.Step + "\x00" + string(f.Result)
	if f.Name != "" {
		r.Locations = []sarifLocation{{
			PhysicalLocation: sarifPhysical{sarifURI{uriOf(f.Resource, f.Namespace, f.Name)}},
			LogicalLocations: []sarifLogical{{
				Name: f.Name, Kind: "resource",
				FullyQualifiedName: strings.TrimPrefix(strings.Join([]string{f.Namespace, f.Kind.Kind, f.Name}, "/"), "/"),
			}},
		}}
		identity += "\x00" + uriOf(f.Resource, f.Namespace, f.Name)
	} else { // the message tells findings about a step as a whole apart
		identity += "\x00\x00" + f.Message
	}
	sum := sha256.Sum256([]byte(identity))
	r.PartialFingerprints = map[string]string{"object/v1": hex.EncodeToString(sum[:16])}
	return p.results.add(r)
}

// uriOf returns the path of an object in the API as a relative reference: apis/apps/v1/namespaces/default/deployments/web.
func uriOf(r schema.GroupVersionResource, namespace, name string) string {
	parts := []string{"apis", r.Group, r.Version}
	if r.Group == "" {
		parts = []string{"api", r.Version}
	}
	if namespace != "" {
		parts = append(parts, "namespaces", namespace)
	}
	parts = append(parts, r.Resource, name)
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}

func (p *sarifPrinter) end(s Summary, failed error) error {
	for _, step := range stepsOf(s) {
		p.rules[step] = true
	}
	rules := []sarifRule{}
	for _, step := range slices.Sorted(maps.Keys(p.rules)) {
		rules = append(rules, sarifRule{step, sarifText{"Extension " + step}})
	}
	driver, err := json.Marshal(map[string]any{"name": "eirinix", "informationUri": "https://code.cloudfoundry.org/eirinix", "rules": rules})
	if err != nil {
		return err
	}
	type notification struct {
		Level   string    `json:"level"`
		Message sarifText `json:"message"`
	}
	invocation := struct {
		Successful    bool           `json:"executionSuccessful"`
		Notifications []notification `json:"toolExecutionNotifications,omitempty"`
	}{Successful: failed == nil}
	for _, g := range s.Gaps {
		invocation.Notifications = append(invocation.Notifications, notification{"error", sarifText{g.String()}})
	}
	if _, incomplete := errors.AsType[*IncompleteError](failed); failed != nil && !incomplete {
		invocation.Notifications = append(invocation.Notifications, notification{"error", sarifText{failed.Error()}})
	}
	invoked, err := json.Marshal(invocation)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.w, "\n    ],\n    \"tool\": {\"driver\": %s},\n    \"invocations\": [%s]\n  }]\n}\n", driver, invoked)
	return err
}
