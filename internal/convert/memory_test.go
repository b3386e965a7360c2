package convert_test

// This file bounds the memory of an answer.

import (
	"context"
	"runtime"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	kruntime "k8s.io/apimachinery/pkg/runtime"
)

var _ = Describe("The memory of an answer", Serial, func() {
	It("holds one object at a time, beside the review and the answer", func() {
		spec := `"schedule":"5 4","steps":[` + strings.Repeat(`{"name":"`+strings.Repeat("n", 8)+`"},`, 20) + `{"name":"z"}]`
		body := review("v1", slices.Repeat([]string{object("v1alpha1", "", spec)}, 10_000)...)
		live := map[int]uint64{}
		calls := 0
		k := with(cronJobs(), func(ctx context.Context, o kruntime.Object) (kruntime.Object, error) {
			if calls++; calls == 10 || calls == 9_990 {
				var m runtime.MemStats
				runtime.GC()
				runtime.GC() // pools live through one collection
				runtime.ReadMemStats(&m)
				live[calls] = m.HeapAlloc
			}
			return alphaToHub(ctx, o)
		}, nil)
		r := answered(k, body)
		Expect(r.ConvertedObjects).To(HaveLen(10_000))
		grown := int64(live[9_990]) - int64(live[10])
		Expect(grown).To(BeNumerically("<", len(body)/4), "of %d bytes", len(body))
		runtime.KeepAlive(body)
	})
})
