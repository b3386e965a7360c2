package world

// This file is changes to boxes of which kind and place are drawn. They are made to a tree: by a step, whose tree lacks what Go types do
// not know, and by callers, whose tree is the object as it was sent.

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	noteKey    = "note-" // begins annotations that are altered
	beyond     = 1<<53 + 1
	manyNotes  = 40
	manyOfEnv  = 150 // more than a patch changes one by one
	unknownKey = "unknown"
)

// spelled are texts that JSON can write in several ways.
var spelled = []string{
	"", "plain", "<a> & 'b'", `"quoted" \ and \\`, "two\nlines\tand a tab", "é, 漢 and 😀", "\u2028 and \u2029", "a/b~c~1", strings.Repeat("long ", 100),
}

// alteration changes a container of a box, its spec, or its metadata. It looks at nothing that Go types do not know, nor at whether a
// list or a map is empty or missing.
type alteration func(o *altered)

// altered is a box that a step alters.
type altered struct {
	metadata, spec, container map[string]any
	step                      string
	rng                       *rand.Rand
}

var ofContainers = []alteration{
	(*altered).args, (*altered).args, (*altered).addsEnv, (*altered).addsEnv, (*altered).dropsEnv, (*altered).setsEnv, (*altered).movesEnv, (*altered).thins, (*altered).reverses,
	(*altered).limits, (*altered).secures, (*altered).secures, (*altered).probes, (*altered).mounts, (*altered).unmounts,
	(*altered).tolerates, (*altered).selects, (*altered).selects, (*altered).waits, (*altered).hosts, (*altered).stores,
}

// alters makes some changes, which the name of the step and the nonce of the box decide.
func alters(tree map[string]any, step string) {
	o := &altered{step: step}
	o.metadata, _ = tree["metadata"].(map[string]any)
	o.spec, _ = tree["spec"].(map[string]any)
	notes, _ := o.metadata["annotations"].(map[string]any)
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%v", step, notes[nonceKey])
	o.rng = rand.New(rand.NewPCG(h.Sum64(), 5)) //nolint:gosec // a seed decides
	all := []alteration{(*altered).notes}
	if containers := itemsOf(o.spec, "containers"); len(containers) > 1 {
		o.container, _ = containers[1].(map[string]any)
		all = append(all, ofContainers...)
	}
	for range 1 + o.rng.IntN(4) {
		all[o.rng.IntN(len(all))](o)
	}
}

// altersTyped does the same to an object of a Go type.
func altersTyped(o client.Object, step string) {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err) // which fails the step
	}
	alters(tree, step)
	switch o := o.(type) {
	case *corev1.Pod:
		*o = corev1.Pod{}
	case *corev1.Namespace:
		*o = corev1.Namespace{}
	case *corev1.Node:
		*o = corev1.Node{}
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, o); err != nil {
		panic(err)
	}
}

// oddly leaves lists of texts in a tree in the form that Go programs write, and that no decoder makes.
func oddly(o *unstructured.Unstructured) {
	spec, _ := o.Object["spec"].(map[string]any)
	for _, one := range itemsOf(spec, "containers") {
		of, _ := one.(map[string]any)
		if args := itemsOf(of, "args"); len(args) > 0 {
			var texts []string
			for _, a := range args {
				texts = append(texts, fmt.Sprint(a))
			}
			of["args"] = texts
		}
	}
}

func itemsOf(of map[string]any, name string) []any {
	list, _ := of[name].([]any)
	return list
}

// lists sets a list. One without items is not written.
func lists(of map[string]any, name string, items []any) {
	if len(items) == 0 {
		delete(of, name)
		return
	}
	of[name] = items
}

// within returns the object at a place, and makes it if there is none.
func within(of map[string]any, names ...string) map[string]any {
	for _, name := range names {
		next, ok := of[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			of[name] = next
		}
		of = next
	}
	return of
}

// takes removes a member of the map at a place, and the map with its last member.
func takes(of map[string]any, name, key string) {
	all, _ := of[name].(map[string]any)
	if _, ok := all[key]; !ok {
		return
	}
	if delete(all, key); len(all) == 0 {
		delete(of, name)
	}
}

// text is one that no other step writes.
func (o *altered) text() string {
	return fmt.Sprintf("%s of %s (%d)", spelled[o.rng.IntN(len(spelled))], o.step, o.rng.IntN(1000))
}

func (o *altered) named(items []any, key string) int {
	return slices.IndexFunc(items, func(item any) bool { return item.(map[string]any)[key] == any(o.step) })
}

// puts inserts an item with the name of the step, unless there is one.
func (o *altered) puts(of map[string]any, list, key string, item map[string]any) {
	items, at := itemsOf(of, list), o.rng.IntN(1000)
	if o.named(items, key) < 0 {
		item[key] = o.step
		of[list] = slices.Insert(slices.Clone(items), at%(len(items)+1), any(item))
	}
}

// cuts removes an item.
func (o *altered) cuts(of map[string]any, list string) {
	items, at := itemsOf(of, list), o.rng.IntN(1000)
	if len(items) > 0 {
		at %= len(items)
		lists(of, list, slices.Delete(slices.Clone(items), at, at+1))
	}
}

// one is an item of a list; nil for none.
func (o *altered) one(of map[string]any, list string) map[string]any {
	items, at := itemsOf(of, list), o.rng.IntN(1000)
	if len(items) == 0 {
		return nil
	}
	item, _ := items[at%len(items)].(map[string]any)
	return item
}

func (o *altered) args() {
	items := slices.Clone(itemsOf(o.container, "args"))
	switch at := o.rng.IntN(1000); o.rng.IntN(4) {
	case 0:
		items = nil
		for range o.rng.IntN(5) {
			items = append(items, o.text())
		}
	case 1:
		if len(items) > 0 {
			items = slices.Delete(items, at%len(items), at%len(items)+1)
		}
	case 2:
		slices.Reverse(items)
	default:
		items = slices.Insert(items, at%(len(items)+1), any(o.text()))
	}
	if len(items) > 0 || len(itemsOf(o.container, "args")) > 0 {
		lists(o.container, "args", items)
	}
}

func (o *altered) addsEnv() {
	o.puts(o.container, "env", "name", map[string]any{"value": o.text()})
}
func (o *altered) dropsEnv() { o.cuts(o.container, "env") }

func (o *altered) setsEnv() {
	if v := o.one(o.container, "env"); v != nil {
		v["value"] = o.text()
	}
}

func (o *altered) movesEnv() {
	items, from, to := slices.Clone(itemsOf(o.container, "env")), o.rng.IntN(1000), o.rng.IntN(1000)
	if len(items) > 0 {
		moved := items[from%len(items)]
		items = slices.Delete(items, from%len(items), from%len(items)+1)
		o.container["env"] = slices.Insert(items, to%(len(items)+1), moved)
	}
}

func (o *altered) thins() {
	var left []any
	for i, item := range itemsOf(o.container, "env") {
		if i%2 == 0 {
			left = append(left, item)
		}
	}
	if len(left) > 0 {
		o.container["env"] = left
	}
}

func (o *altered) reverses() {
	if items := slices.Clone(itemsOf(o.container, "env")); len(items) > 2 {
		slices.Reverse(items[:len(items)-1-o.rng.IntN(2)])
		o.container["env"] = items
	}
}

func (o *altered) limits() {
	resources, _ := o.container["resources"].(map[string]any)
	switch n := o.rng.IntN(5); n {
	case 0, 1:
		takes(resources, "limits", []string{"cpu", "memory"}[n])
	default:
		within(o.container, "resources", "limits")["cpu"] = []string{"250m", "1500m", "2"}[n-2]
	}
}

func (o *altered) secures() {
	switch o.rng.IntN(5) {
	case 0: // nothing else touches it
		if o.container["livenessProbe"] != nil {
			delete(o.container, "livenessProbe")
		}
	case 1:
		within(o.container, "securityContext")["runAsUser"] = int64(o.rng.IntN(2))
	case 2:
		within(o.container, "securityContext")["privileged"] = o.rng.IntN(2) == 0
	case 3:
		within(o.container, "securityContext", "capabilities")["add"] = []any{o.step, "ALL"}
	default:
		if context, ok := o.container["securityContext"].(map[string]any); ok {
			delete(context, "runAsUser")
		}
	}
}

func (o *altered) probes() {
	of := within(o.container, "readinessProbe", "httpGet")
	if of["port"] = any("http"); o.rng.IntN(2) == 0 {
		of["port"] = int64(o.rng.IntN(1000))
	}
}

func (o *altered) mounts() {
	o.puts(o.spec, "volumes", "name", map[string]any{"configMap": map[string]any{"name": o.step}})
	items, path := itemsOf(o.container, "volumeMounts"), "/"+o.step
	if !slices.ContainsFunc(items, func(item any) bool { return item.(map[string]any)["mountPath"] == any(path) }) {
		o.container["volumeMounts"] = append(slices.Clone(items), any(map[string]any{"name": o.step, "mountPath": path}))
	}
}

func (o *altered) unmounts() { o.cuts(o.container, "volumeMounts") }

func (o *altered) stores() {
	if v := o.one(o.spec, "volumes"); v != nil && v["configMap"] == nil {
		within(v, "emptyDir")["medium"] = "Memory"
	}
}

func (o *altered) tolerates() {
	switch o.rng.IntN(3) {
	case 0:
		o.puts(o.spec, "tolerations", "key", map[string]any{"operator": "Equal", "value": o.text()})
	case 1:
		o.cuts(o.spec, "tolerations")
	default:
		if t := o.one(o.spec, "tolerations"); t != nil {
			t["tolerationSeconds"] = int64(o.rng.IntN(2))
		}
	}
}

func (o *altered) selects() {
	chosen, _ := o.spec["nodeSelector"].(map[string]any)
	switch o.rng.IntN(4) {
	case 0:
		if len(chosen) > 0 {
			delete(o.spec, "nodeSelector")
		}
	case 1:
		if len(chosen) > 0 {
			takes(o.spec, "nodeSelector", slices.Sorted(maps.Keys(chosen))[0])
		}
	default:
		within(o.spec, "nodeSelector")["example.com/"+o.step] = o.text()
	}
}

func (o *altered) waits() {
	if before, ok := o.spec["activeDeadlineSeconds"].(int64); ok && o.rng.IntN(3) > 0 {
		o.spec["activeDeadlineSeconds"] = before + 1
	} else {
		o.spec["activeDeadlineSeconds"] = int64(beyond)
	}
}

func (o *altered) hosts() {
	if h := o.one(o.spec, "hostAliases"); h != nil {
		h["hostnames"] = []any{o.step}
	}
}

// notes sets some annotations, and removes others.
func (o *altered) notes() {
	all, _ := o.metadata["annotations"].(map[string]any)
	var names []string
	for name := range all {
		if strings.HasPrefix(name, noteKey) {
			names = append(names, name)
		}
	}
	for _, name := range slices.Sorted(slices.Values(names)) {
		switch o.rng.IntN(6) {
		case 0:
			delete(all, name)
		case 1:
			all[name] = o.text()
		}
	}
	all[noteKey+o.step] = o.text()
}

// furnish puts something into a box, to which steps can do more.
func furnish(o *unstructured.Unstructured, rng *rand.Rand) {
	notes := o.GetAnnotations()
	for n := range []int{0, 3, manyNotes}[rng.IntN(3)] {
		notes[fmt.Sprint(noteKey, n)] = spelled[rng.IntN(len(spelled))]
	}
	o.SetAnnotations(notes)
	spec, _ := o.Object["spec"].(map[string]any)
	containers := itemsOf(spec, "containers")
	if len(containers) < 2 {
		return
	}
	of := containers[1].(map[string]any)
	n, several := 1+rng.IntN(6), func(most int, item func(n int) any) (all []any) {
		for n := range rng.IntN(most + 1) {
			all = append(all, item(n))
		}
		return all
	}
	if rng.IntN(6) == 0 {
		n = manyOfEnv
	}
	var env []any
	for i := range n {
		env = append(env, map[string]any{"name": fmt.Sprint("E", i), "value": spelled[i%(len(spelled)-1)], unknownKey: int64(i)})
	}
	of["env"] = env
	set := func(of map[string]any, name string, value any) {
		switch rng.IntN(4) {
		case 0:
		case 1:
			of[name] = nil
		default:
			of[name] = value
		}
	}
	set(of, "args", several(4, func(int) any { return spelled[rng.IntN(len(spelled))] }))
	set(of, "resources", map[string]any{unknownKey: "r", "limits": map[string]any{"cpu": "0.5", "memory": "1024Mi"}})
	set(of, "securityContext", map[string]any{unknownKey: "s", "runAsUser": int64(0), "capabilities": map[string]any{unknownKey: "c", "drop": []any{"ALL"}}})
	set(of, "readinessProbe", map[string]any{unknownKey: "p", "httpGet": map[string]any{unknownKey: "h", "port": int64(80)}})
	set(of, "livenessProbe", map[string]any{unknownKey: "l", "periodSeconds": int64(7)})
	set(of, "volumeMounts", several(3, func(n int) any {
		return map[string]any{"name": fmt.Sprint("v", n), "mountPath": fmt.Sprint("/v", n), unknownKey: int64(n)}
	}))
	set(spec, "volumes", several(3, func(n int) any {
		return map[string]any{"name": fmt.Sprint("v", n), "emptyDir": map[string]any{unknownKey: int64(n)}}
	}))
	set(spec, "tolerations", several(4, func(n int) any {
		return map[string]any{"key": fmt.Sprint("t", n), "operator": "Exists", unknownKey: int64(n)}
	}))
	set(spec, "nodeSelector", map[string]any{"zone": "a", "disk": "<fast>"})
	set(spec, "activeDeadlineSeconds", int64(beyond+int64(rng.IntN(5))))
	set(spec, "hostAliases", several(3, func(n int) any {
		return map[string]any{"ip": fmt.Sprint("10.0.0.", n), "hostnames": []any{"h"}, unknownKey: int64(n)}
	}))
}
