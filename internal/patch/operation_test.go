package patch_test

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"

	"code.cloudfoundry.org/eirinix/internal/patch"
)

var _ = Describe("AppendJSON", func() {
	DescribeTable("writes the same as json.Marshal, also for operations that are not ours",
		func(op jsonpatch.Operation) {
			want, err := json.Marshal([]jsonpatch.Operation{op, op})
			Expect(err).NotTo(HaveOccurred())
			Expect(string(patch.AppendJSON([]byte("before"), []jsonpatch.Operation{op, op}))).To(Equal("before" + string(want)))
		},
		Entry("remove", jsonpatch.NewOperation("remove", `/a~1"<é`, nil)),
		Entry("add nothing", jsonpatch.NewOperation("add", "/a", nil)),
		Entry("replace by nothing", jsonpatch.NewOperation("replace", "/a", nil)),
		Entry("text", jsonpatch.NewOperation("add", "/a", "<\u2028\x00>")),
		Entry("JSON", jsonpatch.NewOperation("add", "/a", json.RawMessage("{\"<\":\"&\u2029\u2027\"}"))),
		Entry("no JSON", jsonpatch.NewOperation("add", "/a", json.RawMessage(nil))),
		Entry("a tree", jsonpatch.NewOperation("test", "/a", map[string]any{"b": []int{1}, "a": 1.5})),
	)
	It("writes an empty patch", func() {
		Expect(string(patch.AppendJSON(nil, nil))).To(Equal(`[]`))
	})
	It("leaves a patch malformed that has a value which cannot be written", func() {
		Expect(json.Valid(patch.AppendJSON(nil, []jsonpatch.Operation{jsonpatch.NewOperation("add", "/a", make(chan int))}))).To(BeFalse())
	})
})
