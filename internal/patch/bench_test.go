package patch_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/patch"
)

// arrivedPod is a pod with n containers of some 3 KB, a third of all in managed fields, as pods arrive.
func arrivedPod(containers, env int) ([]byte, *corev1.Pod) {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "app-0", Namespace: "cf", Labels: map[string]string{"app": "app", "cloudfoundry.org/guid": "0123"}},
	}
	var fields []byte
	for i := range containers {
		c := corev1.Container{Name: fmt.Sprintf("container-%d", i), Image: "registry.example.org/images/app:1.2.3"}
		c.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("512Mi")}
		for e := range env {
			v := corev1.EnvVar{Name: fmt.Sprintf("ENVIRONMENT_%d", e), Value: "some value of common length"}
			fields = fmt.Appendf(fields, `,"k:{\"name\":\"%s-%d\"}":{".":{},"f:name":{}}`, v.Name, i)
			c.Env = append(c.Env, v)
		}
		for m := range 5 {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: fmt.Sprintf("volume-%d", m), MountPath: fmt.Sprintf("/mnt/%d", m)})
		}
		c.Ports = []corev1.ContainerPort{{ContainerPort: 8080, Protocol: "TCP"}}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	for m := range 5 {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprintf("volume-%d", m)})
	}
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: &metav1.FieldsV1{Raw: append(append([]byte(`{"f:spec":{}`), fields...), '}')}}}
	raw, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	decoded, err := decode[corev1.Pod](raw)
	if err != nil {
		panic(err)
	}
	return raw, &decoded
}

// addSidecar is a typical change: it adds a container, a volume, and a mount and a variable to every container.
func addSidecar(p *corev1.Pod) {
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, "example.org/injected", "yes")
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.Env = append(c.Env, corev1.EnvVar{Name: "INJECTED", Value: "yes"})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "shared", MountPath: "/shared"})
	}
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "shared"})
	p.Spec.Containers = append([]corev1.Container{{Name: "sidecar", Image: "sidecar:1"}}, p.Spec.Containers...)
}

func addOne(p *corev1.Pod) {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "sidecar", Image: "sidecar:1"})
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, "example.org/injected", "yes")
}

func BenchmarkDiff(b *testing.B) {
	for _, size := range []struct{ containers, env int }{{2, 16}, {5, 34}, {40, 60}} {
		raw, before := arrivedPod(size.containers, size.env)
		for _, c := range []struct {
			name string
			edit func(*corev1.Pod)
		}{{"none", func(*corev1.Pod) {}}, {"one", addOne}, {"sidecar", addSidecar}} {
			after := before.DeepCopy()
			c.edit(after)
			name := fmt.Sprintf("%dKB/%s/", len(raw)/1024, c.name)
			b.Run(name+"Diff", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := patch.Diff(raw, before, after); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(name+"CreatePatch", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					// The cost of its use includes the text of the changed object.
					text, err := json.Marshal(after)
					if err != nil {
						b.Fatal(err)
					}
					if _, err := jsonpatch.CreatePatch(raw, text); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkContainers(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		raw, before := arrivedPod(n, 10)
		after := before.DeepCopy()
		addSidecar(after)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := patch.Diff(raw, before, after); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/container")
		})
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	raw, before := arrivedPod(5, 30)
	after := before.DeepCopy()
	addSidecar(after)
	ops, err := patch.Diff(raw, before, after)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("AppendJSON", func(b *testing.B) {
		b.ReportAllocs()
		var buf []byte
		for b.Loop() {
			buf = patch.AppendJSON(buf[:0], ops)
		}
	})
	b.Run("Marshal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := json.Marshal(ops); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkApply compares the API server's work for the patch of a reordered or grown list with that for a list that is
// replaced.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{10, 200, 1000, 4000} {
		raw, before := arrivedPod(1, n)
		for _, c := range []struct {
			name string
			edit func([]corev1.EnvVar) []corev1.EnvVar
		}{
			{"swap", func(e []corev1.EnvVar) []corev1.EnvVar { e[0], e[n-1] = e[n-1], e[0]; return e }},
			{"reverse", func(e []corev1.EnvVar) []corev1.EnvVar { slices.Reverse(e); return e }},
			{"insert", func(e []corev1.EnvVar) []corev1.EnvVar { return slices.Insert(e, 0, corev1.EnvVar{Name: "NEW"}) }},
			{"append", func(e []corev1.EnvVar) []corev1.EnvVar {
				for i := range n {
					e = append(e, corev1.EnvVar{Name: fmt.Sprint("NEW_", i)})
				}
				return e
			}},
		} {
			after := before.DeepCopy()
			env := &after.Spec.Containers[0].Env
			*env = c.edit(*env)
			ops, err := patch.Diff(raw, before, after)
			if err != nil {
				b.Fatal(err)
			}
			list, err := json.Marshal(*env)
			if err != nil {
				b.Fatal(err)
			}
			for kind, text := range map[string][]byte{
				"patch":   patch.AppendJSON(nil, ops),
				"replace": fmt.Appendf(nil, `[{"op":"replace","path":"/spec/containers/0/env","value":%s}]`, list),
			} {
				b.Run(fmt.Sprintf("%d/%s/%s", n, c.name, kind), func(b *testing.B) {
					for b.Loop() {
						if _, err := apply(raw, text); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(len(text)), "patch-bytes")
				})
			}
		}
	}
}

// BenchmarkApplyMany shows whether the time of a patch grows with its operations alone: twice the operations on an object
// of twice the size must not take much more than twice the time.
func BenchmarkApplyMany(b *testing.B) {
	for _, n := range []int{10_000, 20_000, 40_000} {
		object, list := map[string]string{}, make([]string, n)
		var names, first []string
		for i := range n {
			name := fmt.Sprint("key-", i)
			object[name], list[i] = "value", "value"
			if i%2 == 0 {
				names = append(names, fmt.Sprintf(`{"op":"remove","path":"/object/%s"}`, name))
				first = append(first, `{"op":"remove","path":"/list/0"}`)
			}
		}
		raw, err := json.Marshal(map[string]any{"object": object, "list": list})
		if err != nil {
			b.Fatal(err)
		}
		for kind, operations := range map[string][]string{"members": names, "items": first} {
			text := []byte("[" + strings.Join(operations, ",") + "]")
			b.Run(fmt.Sprintf("%d/%s", n, kind), func(b *testing.B) {
				for b.Loop() {
					if _, _, err := patch.Apply(raw, text); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkResult makes the JSON that results from a patch, for the next step that needs it.
func BenchmarkResult(b *testing.B) {
	for _, size := range []struct{ containers, env int }{{1, 12}, {5, 34}, {40, 60}} {
		raw, before := arrivedPod(size.containers, size.env)
		for _, c := range []struct {
			name string
			edit func(*corev1.Pod)
		}{{"one", addOne}, {"sidecar", addSidecar}} {
			after := before.DeepCopy()
			c.edit(after)
			p, err := patch.Compare(raw, jsontext.Index{}, before, after)
			if err != nil {
				b.Fatal(err)
			}
			wire := p.AppendJSON(nil)
			for kind, result := range map[string]func() error{
				"own":  func() error { _, err := p.Apply(raw); return err },
				"wire": func() error { _, _, err := patch.Apply(raw, wire); return err },
			} {
				b.Run(fmt.Sprintf("%dKB/%s/%s", len(raw)/1024, c.name, kind), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						if err := result(); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
