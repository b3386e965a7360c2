package eirinixtest

// This file holds the matchers for patches and for the admitted object.

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/onsi/gomega/types"
	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
	"code.cloudfoundry.org/eirinix/internal/diff"
)

// BeUnchanged matches a request that is allowed and whose object is exactly as it was sent.
func BeUnchanged() types.GomegaMatcher {
	return &resultMatcher{
		want: "be allowed with its object unchanged",
		match: func(r *Result) (bool, error) {
			return r.Allowed && sameJSON(r.before().Raw, r.after().Raw), nil
		},
		why: func(r *Result) string {
			if r.Allowed && r.Diff() == "" {
				return "but the patch says more than the diff shows:\n" + indented(patchText(r.Patch))
			}
			return ""
		},
	}
}

// HavePatched matches a request that is allowed and patched with exactly these operations, in this order. Values are
// compared as JSON.
//
//	HavePatched(eirinixtest.Operation("add", "/metadata/labels/app", "web"))
func HavePatched(operations ...jsonpatch.Operation) types.GomegaMatcher {
	return &resultMatcher{
		want: "be patched with\n" + indented(patchText(operations)),
		match: func(r *Result) (bool, error) {
			if !r.Allowed || len(r.Patch) != len(operations) {
				return false, nil
			}
			for i, o := range operations {
				if !sameJSON([]byte(o.Json()), []byte(r.Patch[i].Json())) {
					return false, nil
				}
			}
			return true, nil
		},
		why: func(r *Result) string { return "but the patch was\n" + indented(patchText(r.Patch)) },
	}
}

// Operation returns an operation for HavePatched: add, replace or remove. The value of a remove is nil.
func Operation(op, path string, value any) jsonpatch.Operation {
	return jsonpatch.NewOperation(op, path, value)
}

// HaveChanged matches a request that is allowed and whose object is changed exactly as the function changes it. Fields
// that the Go type does not know are not compared.
//
//	HaveChanged(func(pod *corev1.Pod) { pod.Labels["app"] = "web" })
func HaveChanged[T runtime.Object](change func(T)) types.GomegaMatcher {
	expected := func(r *Result) (apiserver.Document, error) {
		object, err := r.before().In(r.h.server.Scheme)
		if err != nil {
			return apiserver.Document{}, err
		}
		t, ok := object.(T)
		if !ok {
			return apiserver.Document{}, fmt.Errorf("the object is a %T, but the function is for %T", object, t)
		}
		change(t)
		raw, err := json.Marshal(t)
		return apiserver.NewDocument(r.before().Kind, raw), err
	}
	return becoming("be allowed with just that change", expected)
}

// HaveBecome matches a request that is allowed and whose object equals this one: a Go object, or JSON or YAML as
// []byte or string. Fields are equal if the API treats them as equal, such as an empty list and none, or 1000m and 1.
func HaveBecome(object any) types.GomegaMatcher {
	return becoming("be allowed with that object", func(r *Result) (apiserver.Document, error) {
		expected, err := r.h.server.Read(object)
		if err != nil || expected.Kind == r.after().Kind {
			return expected, err
		}
		return expected, fmt.Errorf("a %s is expected of a request for a %s", expected.Kind, r.after().Kind)
	})
}

func becoming(want string, expected func(*Result) (apiserver.Document, error)) types.GomegaMatcher {
	return &resultMatcher{
		want: want,
		match: func(r *Result) (bool, error) {
			if !r.Allowed {
				return false, nil
			}
			d, err := expected(r)
			if err != nil {
				return false, err
			}
			return r.equivalent(d)
		},
		why: func(r *Result) string {
			d, err := expected(r)
			if err != nil || !r.Allowed {
				return ""
			}
			return "The difference:\n" + indented(diff.Unified("expected", d.YAML(), "admitted", r.after().YAML()))
		},
	}
}

// equivalent compares the admitted object with another one. It compares Go values if the scheme knows the kind.
func (r *Result) equivalent(d apiserver.Document) (bool, error) {
	a, err := r.after().In(r.h.server.Scheme)
	if err != nil {
		return false, err
	}
	b, err := d.In(r.h.server.Scheme)
	if err != nil {
		return false, err
	}
	return equality.Semantic.DeepEqual(a, b), nil
}

func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && equality.Semantic.DeepEqual(x, y)
}

func patchText(operations []jsonpatch.Operation) string {
	if len(operations) == 0 {
		return "(no operation)"
	}
	var b bytes.Buffer
	for _, o := range operations {
		fmt.Fprintln(&b, o.Json())
	}
	return b.String()
}
