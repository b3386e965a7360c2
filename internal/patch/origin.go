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

// OriginOf follows a path of field.Path ("spec.containers[0].image", "metadata.labels[app]") through both objects. Items of
// lists are paired as in a patch. It returns false if an item is new, or the path is none. What the Go type does not know,
// or an object lacks, counts as being at the same place in both. before and after are of one type, and not nil.
func OriginOf(before, after any, path string) (o Origin, ok bool) {
	a, b := reflect.ValueOf(before), reflect.ValueOf(after)
	if tree, is := after.(*unstructured.Unstructured); is {
		a, b = reflect.ValueOf(before.(*unstructured.Unstructured).Object), reflect.ValueOf(tree.Object)
	}
	var mergeKey string
	for rest := path; rest != ""; {
		name, inBrackets, tail, valid := cutSegment(rest)
		if !valid {
			return Origin{}, false
		}
		a, b, rest = behindPointers(a), behindPointers(b), tail
		was := name
		if b.IsValid() && b.Kind() == reflect.Slice {
			i, j := originOf(a, b, mergeKey, name)
			if !inBrackets || i < 0 {
				return Origin{}, false
			}
			was, a, b = strconv.Itoa(i), a.Index(i), b.Index(j)
			mergeKey = ""
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

// originOf returns which item of the list before is that item of the list after, or -1, and the number of the latter.
func originOf(a, b reflect.Value, mergeKey, number string) (i, j int) {
	j, err := strconv.Atoi(number)
	if err != nil || j < 0 || j >= b.Len() || !a.IsValid() || a.Type() != b.Type() {
		return -1, 0
	}
	t, m, n := jsontype.Of(b.Type()), a.Len(), b.Len()
	head, tail := 0, 0
	for head < m && head < n && equal(t.Elem, a.Index(head), b.Index(head)) {
		head++
	}
	for tail < m-head && tail < n-head && equal(t.Elem, a.Index(m-1-tail), b.Index(n-1-tail)) {
		tail++
	}
	switch {
	case j < head:
		return j, j
	case j >= n-tail:
		return j + m - n, j
	}
	pairs := align(&stretch{list: t, a: a, b: b, head: head, m: m - head - tail, n: n - head - tail}, mergeKey)
	if i = pairs.from[j-head]; i >= 0 {
		i += head
	}
	return i, j
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
