package patch_test

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix/internal/patch"
)

func cpu() int64 {
	var r syscall.Rusage
	syscall.Getrusage(0, &r)
	return r.Utime.Nano() + r.Stime.Nano()
}

func TestZZCPU(t *testing.T) {
	if os.Getenv("ZZ") == "" {
		t.SkipNow()
	}
	runtime.GOMAXPROCS(1)
	for _, size := range []struct{ containers, env int }{{1, 10}, {5, 30}, {40, 60}} {
		raw, before := arrivedPod(size.containers, size.env)
		for _, c := range []struct {
			name string
			edit func(*corev1.Pod)
		}{{"none", func(*corev1.Pod) {}}, {"one", addOne}, {"sidecar", addSidecar}} {
			after := before.DeepCopy()
			c.edit(after)
			measure := func(f func()) int64 {
				best := int64(1 << 60)
				for range 15 {
					n := 0
					start := cpu()
					for cpu()-start < 20e6 {
						for range 10 {
							f()
						}
						n += 10
					}
					best = min(best, (cpu()-start)/int64(n))
				}
				return best
			}
			d := measure(func() { patch.Diff(raw, before, after) })
			p := measure(func() { text, _ := json.Marshal(after); jsonpatch.CreatePatch(raw, text) })
			dc := measure(func() { before.DeepCopy() })
			fmt.Printf("%4dKB %-8s Diff %8d  Create %9d  ratio %.3f deepcopy %d\n", len(raw)/1024, c.name, d, p, float64(d)/float64(p), dc)
		}
	}
}
