package decode

import (
	"math/rand/v2"
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// FuzzInto reads any bytes into types of every kind with both decoders: errors and results must be the same.
func FuzzInto(f *testing.F) {
	targets := []reflect.Type{
		reflect.TypeFor[corev1.Pod](), reflect.TypeFor[appsv1.Deployment](), crdType, reflect.TypeFor[map[string]any](),
		reflect.TypeFor[scalars](), reflect.TypeFor[pointers](), reflect.TypeFor[lists](), reflect.TypeFor[maps](),
		reflect.TypeFor[embedding](), reflect.TypeFor[quoting](), reflect.TypeFor[naming](), reflect.TypeFor[methods](),
		reflect.TypeFor[interfaces](), reflect.TypeFor[tree](), reflect.TypeFor[hiding](), reflect.TypeFor[diamond](), sameTags,
	}
	r := rand.New(rand.NewPCG(3, 4))
	for _, t := range append(targets[:3:3], oddTypes[:10]...) {
		if t != reflect.TypeFor[scalars]() {
			for _, name := range names(t) {
				f.Add([]byte(`{"` + name + `":` + values[r.IntN(len(values))] + `}`))
			}
		}
	}
	for _, t := range apiTypes {
		for range 3 {
			if raw := randomText(r, t); len(raw) < 4000 {
				f.Add(raw)
			}
		}
	}
	for _, v := range values {
		f.Add([]byte(v))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 1<<12 {
			t.Skip("long texts only repeat themselves")
		}
		for _, target := range targets {
			if d := disagreement(raw, target); d != "" {
				t.Fatal(d)
			}
		}
	})
}
