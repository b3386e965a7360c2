package eirinixtest

// This file implements CheckLossless, which looks for planted fields, labels and annotations in the result.

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

const lossless = "lossless"

// plantedField is a field that no Go type has. It represents the fields of newer API servers, which today's types
// lack.
const plantedField = "fieldThatGoTypesDoNotKnow"

func (h *Harness) lossless(object any, options []RequestOption) error {
	defer h.log.mute()()
	requests, err := h.requests(object, options)
	if err != nil {
		return err
	}
	for _, r := range requests {
		if r.Object == nil {
			continue
		}
		if _, err := h.admitted(lossless, r); err != nil {
			return err
		}
		d, err := h.server.Read(r.Object)
		if err != nil {
			return fmt.Errorf("eirinixtest: %w", err)
		}
		planted := h.plant(d)
		r.Object = planted
		result, err := h.admitted(lossless, r)
		if err != nil {
			return err
		}
		if lost := lostMetadata(result.after()); len(lost) > 0 {
			return &violation{
				property: lossless,
				what:     fmt.Sprintf("what others had put on the object was lost (%s), at %s", stepsOf(result), strings.Join(lost, ", ")),
				proof:    result.Diff(),
				remedy:   "set labels and annotations one by one (metav1.SetMetaDataLabel, metav1.SetMetaDataAnnotation) instead of assigning a new map: users, tools and other webhooks have theirs there.",
			}
		}
		lost := lostFields(result.before().Unstructured().Object, result.after().Unstructured().Object, "")
		if len(lost) == 0 {
			continue
		}
		return &violation{
			property: lossless,
			what:     fmt.Sprintf("fields that the Go type does not know were lost (%s), at %s", stepsOf(result), strings.Join(lost, ", ")),
			proof:    result.Diff(),
			remedy:   "do not marshal the object that you have decoded, since what the type does not know is not in it: use a Mutation, or return Manager.PatchFromPod; and where you replace a part of an object, change it in place instead.",
		}
	}
	return nil
}

// plant adds a label, an annotation, and an unknown field in every struct of the object. If the kind has no Go type,
// every map gets the field. Maps whose names suggest user-defined keys, such as labels, are left alone.
func (h *Harness) plant(d apiserver.Document) apiserver.Document {
	var t reflect.Type
	for _, scheme := range []interface {
		AllKnownTypes() map[schema.GroupVersionKind]reflect.Type
	}{h.server.Scheme, clientgoscheme.Scheme} {
		if known, ok := scheme.AllKnownTypes()[d.Kind]; ok {
			t = known
			break
		}
	}
	return d.With(func(u *unstructured.Unstructured) {
		count := 0
		plantIn(u.Object, t, "", &count)
		if metadata, ok := u.Object["metadata"].(map[string]any); ok {
			for _, member := range othersMembers {
				values, ok := metadata[member].(map[string]any)
				if !ok {
					values = map[string]any{}
				}
				values[plantedKey] = "kept"
				metadata[member] = values
			}
		}
	})
}

// plantedKey is the key of a label and an annotation of another owner.
const plantedKey = "somebody-else.example/planted"

var othersMembers = []string{"annotations", "labels"}

// lostMetadata returns the places where the planted label and annotation are missing.
func lostMetadata(d apiserver.Document) []string {
	u := d.Unstructured()
	if _, ok := u.Object["metadata"]; !ok {
		return nil
	}
	var lost []string
	for _, member := range othersMembers {
		if value, _, _ := unstructured.NestedString(u.Object, "metadata", member, plantedKey); value != "kept" {
			lost = append(lost, "metadata."+member)
		}
	}
	return lost
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// mapsOfStrings are the members of API objects whose keys are chosen by users.
var mapsOfStrings = []string{
	"labels", "annotations", "matchLabels", "nodeSelector", "data", "stringData", "binaryData", "parameters", "limits", "requests", "capacity", "allocatable", "hard", "used",
}

func plantIn(tree any, t reflect.Type, name string, count *int) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t != nil && reflect.PointerTo(t).Implements(unmarshaler) {
		return // its JSON has a special form: quantities, times
	}
	switch tree := tree.(type) {
	case map[string]any:
		for key, value := range tree {
			plantIn(value, memberType(t, key), key, count)
		}
		if t == nil && !slices.Contains(mapsOfStrings, name) || t != nil && t.Kind() == reflect.Struct {
			*count++
			tree[plantedField] = map[string]any{"number": int64(*count)}
		}
	case []any:
		var item reflect.Type
		if t != nil && t.Kind() == reflect.Slice {
			item = t.Elem()
		}
		for _, value := range tree {
			plantIn(value, item, "", count)
		}
	}
}

// memberType returns the type of a member by its JSON name, or nil if it is unknown.
func memberType(t reflect.Type, name string) reflect.Type {
	switch {
	case t == nil:
		return nil
	case t.Kind() == reflect.Map:
		return t.Elem()
	case t.Kind() != reflect.Struct:
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name {
			return f.Type
		}
		if f.Anonymous && tag == "" {
			embedded := f.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			if found := memberType(embedded, name); found != nil {
				return found
			}
		}
	}
	return nil
}

// lostFields looks for the planted fields of one tree in another, and returns the paths of the missing ones. If a part
// was removed as a whole, its fields do not count as lost.
func lostFields(before, after any, path string) []string {
	var lost []string
	switch before := before.(type) {
	case map[string]any:
		now, ok := after.(map[string]any)
		if !ok {
			return nil
		}
		for _, key := range slices.Sorted(maps.Keys(before)) {
			at := path + "." + key
			if key == plantedField && !reflect.DeepEqual(before[key], now[key]) {
				lost = append(lost, strings.TrimPrefix(at, "."))
			} else if value, there := now[key]; there {
				lost = append(lost, lostFields(before[key], value, at)...)
			}
		}
	case []any:
		now, ok := after.([]any)
		if !ok {
			return nil
		}
		for i, item := range before {
			if counterpart, there := findItem(item, i, before, now); there {
				lost = append(lost, lostFields(item, counterpart, fmt.Sprintf("%s[%d]", path, i))...)
			}
		}
	}
	return lost
}

// identities are the fields that distinguish the items of the API's lists.
var identities = []string{"name", "key", "containerPort", "mountPath", "devicePath", "port", "ip", "uid", "topologyKey", "type", "path"}

// findItem finds the item of a list in the list's new version. It compares identities. An item without an identity is
// found by equal content, or by its position if the length of the list is unchanged.
func findItem(item any, index int, before, now []any) (any, bool) {
	if m, ok := item.(map[string]any); ok {
		for _, field := range identities {
			if m[field] == nil {
				continue
			}
			for _, candidate := range now {
				if c, ok := candidate.(map[string]any); ok && reflect.DeepEqual(c[field], m[field]) {
					return candidate, true
				}
			}
			return nil, false
		}
	}
	for _, candidate := range now {
		if reflect.DeepEqual(withoutPlanted(candidate), withoutPlanted(item)) {
			return candidate, true
		}
	}
	if len(before) == len(now) {
		return now[index], true
	}
	return nil, false
}

func withoutPlanted(tree any) any {
	switch tree := tree.(type) {
	case map[string]any:
		stripped := map[string]any{}
		for key, value := range tree {
			if key != plantedField {
				stripped[key] = withoutPlanted(value)
			}
		}
		return stripped
	case []any:
		stripped := make([]any, 0, len(tree))
		for _, item := range tree {
			stripped = append(stripped, withoutPlanted(item))
		}
		return stripped
	}
	return tree
}
