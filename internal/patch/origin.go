package patch

// This file finds where a value of the object after stood in the object before, for a path that a validation reports.

import (
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/jsontype"
)

// An Origin is the place of a value in two objects, by the names of members and the numbers of items on the way to it.
type Origin struct {
	Path          string // in the object before, in the form of field.Path
	Before, After []string
}

// Origins finds Origins in two objects. Each list is paired once, however many paths lead into it.
type Origins struct {
	before, after reflect.Value
	pairs         map[string][]int // the origin of each item of a list, by the list's path in the object before
}

// OriginsOf returns the Origins of two objects of one type, which are not nil and must not change meanwhile.
func OriginsOf(before, after any) *Origins {
	o := &Origins{reflect.ValueOf(before), reflect.ValueOf(after), map[string][]int{}}
	if tree, ok := after.(*unstructured.Unstructured); ok {
		o.before, o.after = reflect.ValueOf(before.(*unstructured.Unstructured).Object), reflect.ValueOf(tree.Object)
	}
	return o
}

// Of follows a path of field.Path ("spec.containers[0].image", "metadata.labels[app]") through both objects. Items of
// lists are paired as in a patch. It returns false if an item is new, or the path is none. What the Go type does not know,
// or an object lacks, counts as being at the same place in both.
func (all *Origins) Of(path string) (o Origin, ok bool) {
	a, b := all.before, all.after
	var mergeKey string
	for rest := path; rest != ""; {
		name, inBrackets, tail, valid := cutSegment(rest)
		if !valid {
			return Origin{}, false
		}
		a, b, rest = behindPointers(a), behindPointers(b), tail
		was := name
		if b.IsValid() && b.Kind() == reflect.Slice {
			if !a.IsValid() || a.Type() != b.Type() {
				return Origin{}, false
			}
			from, known := all.pairs[o.Path]
			if !known {
				from = originsIn(a, b, mergeKey)
				all.pairs[o.Path] = from
			}
			j, err := strconv.Atoi(name)
			if !inBrackets || err != nil || j < 0 || j >= len(from) || from[j] < 0 {
				return Origin{}, false
			}
			was, a, b, mergeKey = strconv.Itoa(from[j]), a.Index(from[j]), b.Index(j), ""
		} else {
			mergeKey = mergeKeyOf(b, name)
			a, b = memberNamed(a, name), memberNamed(b, name)
		}
		o.Before, o.After = append(o.Before, was), append(o.After, name)
		switch {
		case inBrackets:
			o.Path += "[" + was + "]"
		case o.Path != "":
			o.Path += "." + was
		default:
			o.Path = was
		}
	}
	return o, path != ""
}

// cutSegment returns the first member, item or key of a path.
func cutSegment(path string) (name string, inBrackets bool, rest string, ok bool) {
	if path[0] == '[' {
		if name, rest, ok = strings.Cut(path[1:], "]"); !ok {
			return "", true, "", false
		}
		inBrackets = true
	} else if end := strings.IndexAny(path, ".["); end >= 0 {
		name, rest = path[:end], path[end:]
	} else {
		name = path
	}
	if rest != "" && rest[0] == '.' {
		rest = rest[1:]
		return name, inBrackets, rest, name != "" && rest != "" && rest[0] != '.' && rest[0] != '['
	}
	return name, inBrackets, rest, name != "" && (rest == "" || rest[0] == '[')
}

// originsIn returns for each item of the list after which item of the list before it is, or -1.
func originsIn(a, b reflect.Value, mergeKey string) []int {
	t, m, n := jsontype.Of(b.Type()), a.Len(), b.Len()
	head, tail := 0, 0
	for head < m && head < n && equal(t.Elem, a.Index(head), b.Index(head)) {
		head++
	}
	for tail < m-head && tail < n-head && equal(t.Elem, a.Index(m-1-tail), b.Index(n-1-tail)) {
		tail++
	}
	pairs := align(&stretch{list: t, a: a, b: b, head: head, m: m - head - tail, n: n - head - tail}, mergeKey)
	from := make([]int, n)
	for j := range from {
		switch {
		case j < head:
			from[j] = j
		case j >= n-tail:
			from[j] = j + m - n
		case pairs.from[j-head] < 0:
			from[j] = -1
		default:
			from[j] = head + pairs.from[j-head]
		}
	}
	return from
}

func fieldNamed(v reflect.Value, name string) *jsontype.Field {
	if !v.IsValid() || v.Kind() != reflect.Struct {
		return nil
	}
	return jsontype.Of(v.Type()).Field([]byte(name))
}

func mergeKeyOf(v reflect.Value, name string) string {
	if f := fieldNamed(v, name); f != nil {
		return f.MergeKey
	}
	return ""
}

// memberNamed returns a member of a struct or map; an invalid value if there is none.
func memberNamed(v reflect.Value, name string) reflect.Value {
	if f := fieldNamed(v, name); f != nil {
		return f.Get(v)
	}
	if v.IsValid() && v.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String {
		return v.MapIndex(reflect.ValueOf(name).Convert(v.Type().Key()))
	}
	return reflect.Value{}
}
