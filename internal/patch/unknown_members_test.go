package patch_test

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// identities are the members by which items of a list are known, for the lists that the potter makes.
var identities = map[string]string{
	"containers": "name", "initContainers": "name", "volumes": "name", "env": "name", "ports": "containerPort", "volumeMounts": "mountPath",
}

// opaque members hold no objects of a Go type.
var opaque = map[string]bool{
	"labels": true, "annotations": true, "nodeSelector": true, "limits": true, "requests": true, "fieldsV1": true,
}

// visit calls f for every object that is a Go struct, with the path of names that identify it wherever it moves.
func visit(v any, path string, f func(path string, object map[string]any)) {
	object, ok := v.(map[string]any)
	if !ok {
		return
	}
	f(path, object)
	for name, member := range object {
		if opaque[name] {
			continue
		}
		at := path + "/" + name
		if items, ok := member.([]any); ok {
			seen := map[string]int{}
			for _, item := range items {
				id := identity(name, item)
				seen[id]++
				visit(item, fmt.Sprintf("%s[%s#%d]", at, id, seen[id]), f)
			}
			continue
		}
		visit(member, at, f)
	}
}

func identity(list string, item any) string {
	object, ok := item.(map[string]any)
	if !ok {
		return ""
	}
	if key := identities[list]; key != "" {
		return fmt.Sprint(object[key])
	}
	text, _ := json.Marshal(known(item))
	return string(text)
}

// known is a tree without planted members.
func known(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, member := range v {
			if !strings.HasPrefix(k, "x-") {
				out[k] = known(member)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = known(item)
		}
		return out
	}
	return v
}

// arrive turns a pod into JSON as it might come from an API server of another version than our types: with members that they
// do not know at every level, without some that they always write, and with some that they never do.
func (r *potter) arrive(p *corev1.Pod) (raw []byte, planted map[string]bool) {
	tree := treeOf(p)
	spec := tree["spec"].(map[string]any)
	if r.maybe() {
		delete(tree, "status")
		for _, c := range spec["containers"].([]any) {
			if res := c.(map[string]any)["resources"].(map[string]any); len(res) == 0 {
				delete(c.(map[string]any), "resources")
			}
		}
	}
	if r.maybe() {
		spec["hostNetwork"], spec["nodeName"], spec["overhead"], spec["imagePullSecrets"] = false, "", nil, []any{}
	}
	planted = map[string]bool{}
	visit(tree, "", func(path string, object map[string]any) {
		planted[path] = true
		object["x-unknown"] = path
	})
	raw, _ = json.Marshal(tree)
	if r.IntN(4) == 0 {
		raw, _ = json.MarshalIndent(tree, "", "\t")
	}
	return raw, planted
}

func treeOf(v any) map[string]any {
	text, _ := json.Marshal(v)
	var tree map[string]any
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		panic(err)
	}
	return tree
}
