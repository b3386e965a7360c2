package convert_test

// Specs of the way to another version and back, for audits.

import (
	"context"
	"math/rand/v2"
	"reflect"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/convert"
)

var _ = Describe("A round trip for an audit", func() {
	DescribeTable("loses something of a random object if the webhook keeps something, and no more often", func(make func(chance) any, from, to string) {
		seed := uint64(GinkgoRandomSeed())
		c := chance{rand.New(rand.NewPCG(seed, 8)), true}
		k, _ := quietly(cronJobs())
		count := map[bool]int{}
		for range 200 {
			object := c.text(make(c))
			lost, noRoom, err := k.RoundTrip(context.Background(), []byte(object), from, to)
			Expect(err).NotTo(HaveOccurred(), "seed %d: %s", seed, object)
			kept := len(notesOf(converted(k, to, object))) > 0
			Expect(len(lost) > 0).To(Equal(kept), "seed %d: %s: %q", seed, object, lost)
			Expect(noRoom).To(BeFalse())
			count[kept]++
		}
		Expect(count).To(And(HaveKeyWithValue(true, BeNumerically(">", 0)), HaveKeyWithValue(false, BeNumerically(">", 0))))
	},
		Entry("of a spoke", chance.alpha, "v1alpha1", "v1"),
		Entry("of the hub", chance.job, "v1", "v1alpha1"),
	)

	DescribeTable("names the places", func(from, to, spec string, expected ...string) {
		lost, noRoom, err := cronJobs().RoundTrip(context.Background(), []byte(object(from, "", spec)), from, to)
		Expect(err).NotTo(HaveOccurred())
		Expect(noRoom).To(BeFalse())
		Expect(lost).To(Equal(append([]string(nil), expected...)))
	},
		Entry("of the hub", "v1", "v1alpha1", `"schedule":{"minute":"5","hour":"4"},"suspend":true,"timeZone":"UTC"`, "/spec/timeZone"),
		Entry("in items with names, once", "v1alpha1", "v1", `"schedule":"5 4","steps":[{"name":"a","note":"x"},{"name":"b","note":"y"}]`, "/spec/steps/*/note"),
		Entry("in items without names", "v1alpha1", "v1", `"schedule":"5 4","rules":[{"match":"a","note":"x"},{"match":"b"}]`, "/spec/rules/*/note"),
		Entry("of an item", "v1alpha1", "v1", `"schedule":"5 4","steps":[{"name":"a","local":true},{"name":"b"}]`, "/spec/steps/*"),
	)

	It("has no room for what annotations cannot hold", func() {
		k := trees(func(o map[string]any) { delete(o, "spec") }, unchanged)
		text := []byte(object("v1alpha1", "", `"a/~b":"`+strings.Repeat("x", 300<<10)+`"`))
		lost, noRoom, err := k.RoundTrip(context.Background(), text, "v1alpha1", "v1")
		Expect(err).NotTo(HaveOccurred())
		Expect(lost).To(Equal([]string{"/spec"}))
		Expect(noRoom).To(BeTrue())
		Expect(converted(k, "v1", string(text))).To(ContainSubstring(convert.Incomplete))
	})

	DescribeTable("survives a panic", func(k *convert.Kind, message string) {
		_, _, err := k.RoundTrip(context.Background(), []byte(object("v1alpha1", "", "")), "v1alpha1", "v1")
		Expect(err).To(MatchError(message))
	},
		Entry("of a function", trees(func(map[string]any) { panic("boom") }, unchanged), "to v1: the conversion panicked: boom"),
		Entry("of a type", &convert.Kind{Group: group, Versions: []convert.Version{
			{Name: "v1alpha1", Type: reflect.TypeFor[*explosive](), ToHub: alphaToHub}, {Name: "v1"},
		}}, "the conversion panicked: boom"),
	)
})

// explosive is an object that cannot be read.
type explosive struct{ Alpha }

func (*explosive) UnmarshalJSON([]byte) error { panic("boom") }
