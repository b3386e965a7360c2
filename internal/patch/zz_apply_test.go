package patch_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestZZApply(t *testing.T) {
	if os.Getenv("ZZ") == "" {
		t.SkipNow()
	}
	for _, pad := range []int{0, 200} {
		for _, n := range []int{70, 200, 1000, 4000} {
			item := func(i int) string {
				return fmt.Sprintf(`{"name":"ENV_%d","value":"value %d%s"}`, i, i, strings.Repeat("x", pad))
			}
			var items []string
			for i := range n {
				items = append(items, item(i))
			}
			raw := []byte(`{"metadata":{"name":"x"},"spec":{"containers":[{"name":"a","env":[` + strings.Join(items, ",") + `]}]}}`)
			_ = json.Valid
			pairs := func(k int) []byte {
				var ops []string
				for i := range k {
					at := n - 1 - i*(n/(k+1))
					ops = append(ops, fmt.Sprintf(`{"op":"remove","path":"/spec/containers/0/env/%d"}`, at))
				}
				for i := range k {
					ops = append(ops, fmt.Sprintf(`{"op":"add","path":"/spec/containers/0/env/%d","value":%s}`, i*(n/(k+1)), item(n-1-i)))
				}
				return []byte("[" + strings.Join(ops, ",") + "]")
			}
			replace := []byte(`[{"op":"replace","path":"/spec/containers/0/env","value":[` + strings.Join(items, ",") + `]}]`)
			none := []byte(`[{"op":"replace","path":"/metadata/name","value":1}]`)
			time := func(p []byte) int64 {
				best := int64(1 << 60)
				for range 7 {
					c := 0
					start := cpu()
					for cpu()-start < 20e6 {
						if _, err := apply(raw, p); err != nil {
							t.Fatal(err, string(p))
						}
						c++
					}
					best = min(best, (cpu()-start)/int64(c))
				}
				return best / 1000
			}
			fmt.Printf("n %d pad %d: none %d replace %d |", n, pad, time(none), time(replace))
			for _, k := range []int{1, 8, 16, 32, 64} {
				if k < n {
					fmt.Printf(" %d:%d", k, time(pairs(k)))
				}
			}
			fmt.Println()
		}
	}
}
