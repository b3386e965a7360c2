package patch_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/patch"
)

// FuzzDiffRaw takes any two documents as a pod before and after a change.
func FuzzDiffRaw(f *testing.F) {
	for seed := range uint64(16) {
		r := newPotter(seed)
		p := r.pod()
		raw, _ := r.arrive(p)
		r.edit(p, byte(seed))
		r.edit(p, byte(seed+3))
		other, _ := r.arrive(p)
		f.Add(raw, other)
	}
	f.Add([]byte(`{"spec":{"containers":[{"name":"a"},null]}}`), []byte(`{"spec":{"containers":[{"name":"b","args":["\ud800"]},{}]}}`))
	f.Add([]byte(`{"metadata":{"labels":{"a":null,"":"x"}},"metadata":{}}`), []byte(`{"metadata":{"labels":{"a\/b":"~"}}}`))
	f.Fuzz(func(t *testing.T, raw, other []byte) {
		before, err := decode[corev1.Pod](raw)
		if err != nil {
			before = corev1.Pod{} // whatever it is, it must not make us panic
		}
		after, errAfter := decode[corev1.Pod](other)
		if errAfter != nil {
			return
		}
		ops, errDiff := patch.Diff(raw, &before, &after)
		if err != nil || errDiff != nil {
			mayFail(t, errDiff)
			return
		}
		text := patch.AppendJSON(nil, ops)
		applied, err := apply(raw, text)
		if err != nil {
			t.Fatalf("%v\n%s\non %s", err, text, raw)
		}
		have, err := decode[corev1.Pod](applied)
		if err != nil {
			t.Fatalf("%v\n%s", err, applied)
		}
		plain, err := json.Marshal(&after)
		if err != nil {
			return
		}
		want, err := decode[corev1.Pod](plain)
		if err != nil {
			return
		}
		if !equality.Semantic.DeepEqual(have, want) {
			t.Fatalf("the patch\n%s\non\n%s\ngives\n%s\ninstead of\n%s", text, raw, applied, plain)
		}
	})
}

// FuzzDiffTrees does the same without types: the result must be the other document, member for member.
func FuzzDiffTrees(f *testing.F) {
	f.Add([]byte(`{"a":[1,2,{"name":"x","v":1}],"b":{"c":null}}`), []byte(`{"a":[{"name":"x","v":2},1,2.5],"b":{"c":{}}}`))
	f.Add([]byte(`{"a":[1,2,3,4,5]}`), []byte(`{"a":[5,4,3,2,1,0]}`))
	f.Add([]byte(`{"a~b":{"/":[]},"":""}`), []byte(`{"a~b":{"/":[null,[]]},"":{"":0}}`))
	f.Add([]byte(`{"i":[{"name":"a","n":1},{"name":"a","n":2},{"name":"b"}]}`), []byte(`{"i":[{"name":"b","x":1e3},{"name":"a","n":2}]}`))
	f.Fuzz(func(t *testing.T, raw, other []byte) {
		var before, after unstructured.Unstructured
		if json.Unmarshal(raw, &before.Object) != nil || json.Unmarshal(other, &after.Object) != nil {
			return
		}
		ops, err := patch.Diff(raw, &before, &after)
		if err != nil {
			mayFail(t, err)
			return
		}
		text := patch.AppendJSON(nil, ops)
		applied, err := apply(raw, text)
		if err != nil {
			t.Fatalf("%v\n%s\non %s", err, text, raw)
		}
		var have map[string]any
		if err := json.Unmarshal(applied, &have); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(have, after.Object) {
			t.Fatalf("the patch\n%s\non\n%s\ngives\n%s\ninstead of\n%s", text, raw, applied, other)
		}
	})
}

// mayFail allows the errors that are promised, and none but those.
func mayFail(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, patch.ErrMismatch) && !errors.Is(err, patch.ErrDuplicate) && !errors.Is(err, jsontext.ErrSyntax) {
		t.Fatalf("unexpected kind of error: %v", err)
	}
}
