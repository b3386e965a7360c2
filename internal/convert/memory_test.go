package convert_test

// This file bounds the memory of an answer.

import (
	"context"
	"errors"
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

	DescribeTable("allocates for an object, with its garbage, no more than twice what it asks room for:", Label("sequential"), func(from, to, step string) {
		spec := `"schedule":"5 4","owner":{"team":"t"},"steps":[` + strings.Repeat(step+",", 293<<10/len(step)) + step + `]`
		var before, after runtime.MemStats
		asked, rooms := int64(0), 0
		body := review(to, object(from, "", spec), object(from, "", spec), object(to, "", `"schedule":"5 4"`))
		_, err := cronJobs().Answer(context.Background(), body, func(_ context.Context, bytes int64) (func(), error) {
			rooms++
			asked = bytes
			runtime.ReadMemStats(&before)
			return func() { rooms--; runtime.ReadMemStats(&after) }, nil
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(rooms).To(BeZero(), "one object at a time")
		Expect(asked).To(BeNumerically(">", 40*len(spec)))
		Expect(after.TotalAlloc - before.TotalAlloc).To(And(BeNumerically(">", 0), BeNumerically("<=", 2*asked)))
	},
		Entry("of Go types that lose a member of each item", "v1alpha1", "v1", `{"name":"nnnnnnnn","image":"example.org/images/app:1","note":"a note of common length"}`),
		Entry("of Go types that lose little", "v1alpha1", "v1", `{"name":"nnnnnnnn","image":"example.org/images/app:1"}`),
		Entry("of trees", "v1beta1", "v1", `{"name":"nnnnnnnn","image":"example.org/images/app:1"}`),
		Entry("with members that no type knows", "v1", "v1alpha1", `{"name":"nnnnnnnn","unknown":{"a":1,"b":[1,2,3]}}`),
	)

	It("ends with the reason for which there is no room", func() {
		body := review("v1", object("v1alpha1", "", `"schedule":"5 4"`))
		answer, err := cronJobs().Answer(context.Background(), body, func(context.Context, int64) (func(), error) {
			return nil, errors.New("it waited for memory")
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(string(answer)).To(And(ContainSubstring("it waited for memory"), ContainSubstring(`"Failure"`)))
	})
})
