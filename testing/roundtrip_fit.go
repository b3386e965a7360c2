package eirinixtest

// This file replaces random values that a schema refuses by random ones that it allows.

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"unicode/utf8"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

// fitter fits values into schemas. What it cannot fit stays, and the schema refuses it: rules of CEL, anyOf, oneOf and
// not, most formats, and values of another type.
type fitter struct {
	*rand.Rand
	adds bool // also members that are not required
}

// fit returns the value, or another one if the schema refuses it. Nothing becomes a value of the schema's type.
func (f fitter) fit(s *structuralschema.Structural, v any) any {
	limits := s.ValueValidation
	if limits == nil {
		limits = &structuralschema.ValueValidation{}
	}
	if v == nil && s.Nullable {
		return nil
	}
	if v == nil {
		v = f.zero(s)
	}
	for i := range limits.AllOf {
		v = f.fit(&structuralschema.Structural{Generic: s.Generic, Extensions: s.Extensions, ValueValidation: &limits.AllOf[i].ValueValidation}, v)
	}
	if allowed := limits.Enum; len(allowed) > 0 {
		if slices.ContainsFunc(allowed, func(one structuralschema.JSON) bool { return reflect.DeepEqual(one.Object, v) }) {
			return v
		}
		return runtime.DeepCopyJSONValue(allowed[f.IntN(len(allowed))].Object)
	}
	switch v := v.(type) {
	case map[string]any:
		f.fitMembers(s, limits, v)
	case []any:
		return f.fitItems(s, limits, v)
	case string:
		return f.fitText(limits, v)
	case int64:
		if n := f.fitNumber(limits, float64(v), 1); n != float64(v) {
			return int64(n)
		}
	case float64:
		return f.fitNumber(limits, v, 0)
	}
	return v
}

func (f fitter) zero(s *structuralschema.Structural) any {
	switch {
	case s.Type == "array":
		return []any{nil} // an empty list is absent in most Go types
	case s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil:
		return map[string]any{"key": nil}
	case s.Type == "string":
		return words[f.IntN(len(words))]
	case s.Type == "integer", s.XIntOrString:
		return f.Int64N(100)
	case s.Type == "number":
		return float64(f.IntN(400)) / 4
	case s.Type == "boolean":
		return f.IntN(2) == 0
	}
	return map[string]any{}
}

func (f fitter) fitMembers(s *structuralschema.Structural, limits *structuralschema.ValueValidation, object map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		member := s.Properties[name]
		value, there := object[name]
		if value != nil || there && member.Nullable || slices.Contains(limits.Required, name) || !there && f.adds && f.IntN(2) == 0 {
			object[name] = f.fit(&member, value)
		}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		for _, name := range slices.Sorted(maps.Keys(object)) {
			object[name] = f.fit(s.AdditionalProperties.Structural, object[name])
		}
		for i := 0; int64(len(object)) < limit(limits.MinProperties, 0) || f.adds && f.IntN(2) == 0; i++ {
			object[fmt.Sprint("key-", i)] = f.fit(s.AdditionalProperties.Structural, nil)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if int64(len(object)) > limit(limits.MaxProperties, math.MaxInt64) && !slices.Contains(limits.Required, name) {
			delete(object, name)
		}
	}
}

func (f fitter) fitItems(s *structuralschema.Structural, limits *structuralschema.ValueValidation, list []any) []any {
	if s.Items == nil {
		return list
	}
	fitted := []any{}
	add := func(item any) {
		item = f.fit(s.Items, item)
		if !limits.UniqueItems && (s.XListType == nil || *s.XListType == "atomic") ||
			!slices.ContainsFunc(fitted, func(other any) bool { return reflect.DeepEqual(keyOf(s, item), keyOf(s, other)) }) {
			fitted = append(fitted, item)
		}
	}
	for _, item := range list {
		add(item)
	}
	for tries := maxTries; tries > 0 && (int64(len(fitted)) < limit(limits.MinItems, 0) || f.adds && f.IntN(2) == 0); tries-- {
		add(nil)
	}
	return fitted[:min(int64(len(fitted)), limit(limits.MaxItems, math.MaxInt64))]
}

// keyOf returns what no other item of the list may have.
func keyOf(s *structuralschema.Structural, item any) any {
	object, ok := item.(map[string]any)
	if !ok || len(s.XListMapKeys) == 0 {
		return item
	}
	var key []any
	for _, name := range s.XListMapKeys {
		key = append(key, object[name])
	}
	return key
}

// fitNumber returns a number near the limits, if they refuse the given one. An integer has the step 1.
func (f fitter) fitNumber(limits *structuralschema.ValueValidation, n, step float64) float64 {
	step = limit(limits.MultipleOf, step)
	least, most := limit(limits.Minimum, math.Inf(-1)), limit(limits.Maximum, math.Inf(1))
	if limits.ExclusiveMaximum { // an exclusive minimum is met by chance alone
		most = math.Nextafter(most, math.Inf(-1))
	}
	if off := f.Float64() * min(100, most-least); n < least {
		n = least + off
	} else if n > most {
		n = most - off
	}
	if step > 0 && math.Mod(n, step) != 0 {
		if n = math.Ceil(n/step) * step; n > most {
			n -= step
		}
	}
	return n
}

// maxTries bounds the tries to make a value.
const maxTries = 30

// formats has values of formats that Go types seldom have on their own.
var formats = map[string][]string{
	"date": {"2001-02-03", "2030-12-31"}, "date-time": {"2001-02-03T04:05:06Z", "2030-12-31T23:59:59Z"}, "duration": {"1h", "90s"},
	"ipv4": {"10.0.0.1", "192.168.1.255"}, "ipv6": {"::1", "2001:db8::2"}, "cidr": {"10.0.0.0/8", "2001:db8::/32"}, "uuid": {"6ba7b810-9dad-11d1-80b4-00c04fd430c8"},
	"uri": {"https://example.org/a", "mailto:a@example.org"}, "hostname": {"example.org", "a"}, "email": {"a@example.org"}, "byte": {"", "YQ=="},
}

func (f fitter) fitText(limits *structuralschema.ValueValidation, text string) string {
	pattern, err := regexp.Compile(limits.Pattern)
	if err != nil {
		return text
	}
	least, most := int(limit(limits.MinLength, 0)), int(limit(limits.MaxLength, math.MaxInt32))
	allowed := func(text string) bool {
		n := utf8.RuneCountInString(text)
		return n >= least && n <= most && pattern.MatchString(text) && (formats[limits.Format] == nil || strfmt.Default.Validates(limits.Format, text))
	}
	made := text
	for tries := maxTries; tries > 0 && !allowed(made); tries-- {
		switch values := formats[limits.Format]; {
		case values != nil:
			made = values[f.IntN(len(values))]
		case limits.Pattern != "":
			if tree, err := syntax.Parse(limits.Pattern, syntax.Perl); err == nil {
				made = f.matching(tree)
			}
		default:
			made += words[f.IntN(len(words))]
			made = string([]rune(made)[:min(utf8.RuneCountInString(made), most)])
		}
	}
	return made
}

// matching returns a text for a regular expression, except for its anchors.
func (f fitter) matching(tree *syntax.Regexp) (text string) {
	switch tree.Op {
	case syntax.OpLiteral:
		return string(tree.Rune)
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return string(rune(' ' + f.IntN('~'-' '+1)))
	case syntax.OpCharClass:
		for range maxTries { // most often a printable one
			char := rune(' ' + f.IntN('~'-' '+1))
			for i := 0; i < len(tree.Rune); i += 2 {
				if tree.Rune[i] <= char && char <= tree.Rune[i+1] {
					return string(char)
				}
			}
		}
		return string(tree.Rune[2*f.IntN(len(tree.Rune)/2)])
	case syntax.OpAlternate:
		return f.matching(tree.Sub[f.IntN(len(tree.Sub))])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		least, most := tree.Min, tree.Max
		switch tree.Op {
		case syntax.OpStar:
			least, most = 0, -1
		case syntax.OpPlus:
			least, most = 1, -1
		case syntax.OpQuest:
			least, most = 0, 1
		}
		if most < 0 {
			most = least + 4
		}
		for range least + f.IntN(most-least+1) {
			text += f.matching(tree.Sub[0])
		}
		return text
	}
	for _, part := range tree.Sub {
		text += f.matching(part)
	}
	return text
}

// limit returns a limit, or what holds without it.
func limit[T any](l *T, without T) T {
	if l == nil {
		return without
	}
	return *l
}
