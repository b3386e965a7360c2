package decode

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
)

// BenchmarkInto reads pods that were captured on their way from a real API server, beside sigs.k8s.io/json.
func BenchmarkInto(b *testing.B) {
	for _, size := range []string{"4KB", "22KB", "310KB"} {
		raw := capturedPod(b, size)
		for _, target := range []struct {
			name string
			make func() any
		}{
			{"Pod", func() any { return new(corev1.Pod) }},
			{"map", func() any { return new(map[string]any) }},
		} {
			for _, decoder := range []struct {
				name string
				into func([]byte, any) error
			}{{"Into", Into}, {"kjson", kjson.UnmarshalCaseSensitivePreserveInts}} {
				b.Run(size+"/"+target.name+"/"+decoder.name, func(b *testing.B) {
					b.SetBytes(int64(len(raw)))
					b.ReportAllocs()
					for b.Loop() {
						if err := decoder.into(raw, target.make()); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

func capturedPod(tb testing.TB, size string) []byte {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "bench", "testdata", "pod-"+size+".json"))
	if err != nil {
		tb.Skip(err)
	}
	var review struct {
		Request struct{ Object json.RawMessage }
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &struct {
		Request *struct {
			Object *json.RawMessage `json:"object"`
		} `json:"request"`
	}{&struct {
		Object *json.RawMessage `json:"object"`
	}{&review.Request.Object}}); err != nil {
		tb.Fatal(err)
	}
	return review.Request.Object
}
