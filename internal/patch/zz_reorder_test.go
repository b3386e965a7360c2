package patch_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix/internal/patch"
)

func TestZZReorder(t *testing.T) {
	if os.Getenv("ZZ") == "" {
		t.SkipNow()
	}
	for _, n := range []int{3, 10, 70, 200, 1000, 4000} {
		for name, f := range map[string]func([]corev1.EnvVar){
			"swap2": func(e []corev1.EnvVar) { e[0], e[len(e)-1] = e[len(e)-1], e[0] }, "reverse": func(e []corev1.EnvVar) { slices.Reverse(e) },
			"rev20": func(e []corev1.EnvVar) { slices.Reverse(e[:min(20, len(e))]) }, "rev60": func(e []corev1.EnvVar) { slices.Reverse(e[:min(60, len(e))]) },
		} {
			p := &corev1.Pod{}
			c := corev1.Container{Name: "a"}
			for i := range n {
				c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("ENV_%d", i), Value: fmt.Sprintf("value %d", i)})
			}
			p.Spec.Containers = []corev1.Container{c}
			raw, _ := json.Marshal(p)
			after := p.DeepCopy()
			f(after.Spec.Containers[0].Env)
			ops, err := patch.Diff(raw, p, after)
			if err != nil {
				t.Fatal(err)
			}
			ours := patch.AppendJSON(nil, ops)
			l, _ := json.Marshal(after.Spec.Containers[0].Env)
			whole := []byte(`[{"op":"replace","path":"/spec/containers/0/env","value":` + string(l) + `}]`)
			time := func(p []byte) int64 {
				best := int64(1 << 60)
				for range 9 {
					c := 0
					start := cpu()
					for cpu()-start < 10e6 {
						if _, err := apply(raw, p); err != nil {
							t.Fatal(err, string(p))
						}
						c++
					}
					best = min(best, (cpu()-start)/int64(c))
				}
				return best / 1000
			}
			a, b := time(ours), time(whole)
			fmt.Printf("ZR n %d %s ops %d bytes %d apply %d whole: %d bytes %d ratio %.2f\n", n, name, len(ops), len(ours), a, len(whole), b, float64(a)/float64(b))
		}
	}
}
