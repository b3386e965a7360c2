package rollout_test

// This file is about each decision, by its reason.

import (
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/rollout"
)

var dawn = time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)

// lived is a record that nothing is due for, as the replicas of another version have seen it.
func lived(came int64, changes ...func(*rollout.Record)) rollout.Record {
	r := rollout.Record{Came: came, Target: "here", Asked: 3, Answered: 3}
	for _, change := range changes {
		change(&r)
	}
	return r
}

func asked(r *rollout.Record)   { r.Asked++ }
func left(r *rollout.Record)    { r.Left = true }
func gone(r *rollout.Record)    { r.Gone = true }
func ordered(r *rollout.Record) { r.Ordered = true }
func afar(r *rollout.Record)    { r.Target = "elsewhere" }

var _ = Describe("Decide", func() {
	// The other version came first, and its record was seen to change so long ago.
	DescribeTable("says of two versions",
		func(why string, own, other rollout.Record, lives bool, ago time.Duration, pause time.Duration, expect func(next rollout.Versions)) {
			found := rollout.Versions{"other": other}
			if own.Came > 0 {
				found["own"] = own
			}
			seen := map[string]rollout.Sighting{
				"other": {Asked: other.Asked, Answered: other.Answered, Left: other.Left, Since: dawn.Add(-ago), Lives: lives},
			}
			d := rollout.Decide(rollout.Input{Version: "own", Record: rollout.Record{Target: "here"}, Found: found, Seen: seen, Now: dawn})
			Expect(d.Why).To(Equal(why))
			if why == "" {
				Expect(d.Next).To(BeNil())
				return
			}
			Expect(d.Pause).To(Equal(pause))
			expect(d.Next)
		},
		Entry("its own is not there", "joined", rollout.Record{}, lived(4), true, time.Second, time.Duration(0), func(next rollout.Versions) {
			Expect(next["own"].Came).To(BeEquivalentTo(5))
			Expect(next.First()).To(Equal("other"))
		}),
		Entry("its own was given up", "joined", lived(1, gone), lived(4), true, time.Second, time.Duration(0), func(next rollout.Versions) {
			Expect(next["own"]).To(Equal(rollout.Record{Came: 5, Target: "here", Program: 1}), "it is of the program that came first")
		}),
		Entry("it is asked", "answered", lived(5, asked), lived(4), true, time.Second, rollout.PauseLong, func(next rollout.Versions) {
			Expect(next["own"].Answered).To(BeEquivalentTo(4))
		}),
		Entry("it is asked after one of its replicas has left", "answered", lived(5, asked, left), lived(4), true, time.Second, rollout.PauseShort, func(next rollout.Versions) {
			Expect(next["own"].Left).To(BeFalse())
		}),
		Entry("one of its replicas has left, and the others wait until they are asked", "", lived(5, left), lived(4), true, time.Second, time.Duration(0), nil),
		Entry("the other has answered lately", "", lived(5), lived(4), true, 9*time.Second, time.Duration(0), nil),
		Entry("the other has answered long ago", "asked other", lived(5), lived(4), true, 10*time.Second, rollout.PauseLong, func(next rollout.Versions) {
			Expect(next["other"].Asked).To(BeEquivalentTo(4))
		}),
		Entry("the other has not been seen to answer", "asked other", lived(5), lived(4), false, time.Second, rollout.PauseShort, func(next rollout.Versions) {
			Expect(next["other"].Asked).To(BeEquivalentTo(4))
		}),
		Entry("a replica of the other has left", "asked other", lived(5), lived(4, left), true, time.Second, rollout.PauseShort, func(next rollout.Versions) {
			Expect(next["other"].Left).To(BeTrue())
		}),
		Entry("the other has been asked a moment ago", "", lived(5), lived(4, asked), true, 9*time.Second, time.Duration(0), nil),
		Entry("the other does not answer", "found no replica of other", lived(5), lived(4, asked), true, 10*time.Second, rollout.PauseShort, func(next rollout.Versions) {
			Expect(next["other"].Gone).To(BeTrue())
			Expect(next.First()).To(Equal("own"))
		}),
		Entry("the other, whose replica has left, has a moment to contradict", "", lived(5), lived(4, asked, left), true, 1400*time.Millisecond, time.Duration(0), nil),
		Entry("the other, whose replica has left, does not contradict", "found no replica of other", lived(5), lived(4, asked, left), true, 1500*time.Millisecond, rollout.PauseShort, func(next rollout.Versions) {
			Expect(next["other"].Gone).To(BeTrue())
		}),
		Entry("the other is gone", "", lived(5), lived(4, asked, gone), true, time.Hour, time.Duration(0), nil),
		Entry("both at once", "answered, asked other", lived(5, asked), lived(4), true, time.Minute, rollout.PauseLong, func(next rollout.Versions) {
			Expect(next["own"].Answered).To(BeEquivalentTo(4))
			Expect(next["other"].Asked).To(BeEquivalentTo(4))
		}),
	)

	It("decides only on a long pause with one live version", func() {
		d := rollout.Decide(rollout.Input{Version: "own", Found: rollout.Versions{"own": lived(1), "old": lived(2, gone)}, Now: dawn})
		Expect(d).To(Equal(rollout.Decision{Pause: rollout.PauseLong}))
	})

	It("says when to look again: when the first answer or question is due", func() {
		found := rollout.Versions{"own": lived(3), "a": lived(1), "b": lived(2, asked)}
		seen := map[string]rollout.Sighting{
			"a": {Asked: 3, Answered: 3, Since: dawn.Add(-2 * time.Second), Lives: true},
			"b": {Asked: 4, Answered: 3, Since: dawn.Add(-5 * time.Second), Lives: true},
		}
		d := rollout.Decide(rollout.Input{Version: "own", Record: rollout.Record{Target: "here"}, Found: found, Seen: seen, Now: dawn})
		Expect(d.Next).To(BeNil())
		Expect(d.Again).To(Equal(dawn.Add(5 * time.Second)))
	})

	DescribeTable("another program under the same fingerprint",
		func(other rollout.Record, own rollout.Record, lives bool, is string) {
			found := rollout.Versions{"own": own, "other": other}
			seen := map[string]rollout.Sighting{"other": {Asked: 3, Answered: 3, Since: dawn, Lives: lives}}
			Expect(rollout.Decide(rollout.Input{Version: "own", Record: rollout.Record{Target: "here"}, Found: found, Seen: seen, Now: dawn}).Other).To(Equal(is))
		},
		Entry("it came first and answers", lived(1, afar), lived(2), true, "elsewhere"),
		Entry("it came first and may be dead", lived(1, afar), lived(2), false, ""),
		Entry("it came later, so it is the one that gives way", lived(3, afar), lived(2), true, ""),
		Entry("it is gone", lived(1, afar, gone), lived(2), true, ""),
		Entry("it is called at the same place, so it is another version", lived(1), lived(2), true, ""),
	)
})

var _ = Describe("Sight", func() {
	later := dawn.Add(time.Minute)

	It("counts silence from when a record is seen for the first time, and proves no life by that", func() {
		Expect(rollout.Sight(nil, rollout.Versions{"v": lived(1)}, later)).To(Equal(map[string]rollout.Sighting{"v": {Asked: 3, Answered: 3, Since: later}}))
	})

	DescribeTable("compares a record with the last sight of it", func(changes func(*rollout.Record), since time.Time, lives bool) {
		seen := rollout.Sight(nil, rollout.Versions{"v": lived(1)}, dawn)
		s := rollout.Sight(seen, rollout.Versions{"v": lived(1, changes)}, later)["v"]
		Expect(s.Since).To(Equal(since))
		Expect(s.Lives).To(Equal(lives))
	},
		Entry("nothing", func(*rollout.Record) {}, dawn, false),
		Entry("a question", asked, later, false),
		Entry("an answer", func(r *rollout.Record) { r.Asked++; r.Answered++ }, later, true),
		Entry("a replica that left", left, later, false),
	)

	It("forgets a version whose record has gone", func() {
		seen := rollout.Sight(nil, rollout.Versions{"v": lived(1)}, dawn)
		Expect(rollout.Sight(seen, rollout.Versions{}, later)).To(BeEmpty())
	})
})

var _ = Describe("The records of a Lease", func() {
	It("are first those of the version that came first and lives", func() {
		Expect(rollout.Versions{}.First()).To(BeEmpty())
		Expect(rollout.Versions{"b": lived(1, gone), "c": lived(2), "a": lived(3)}.First()).To(Equal("c"))
		Expect(rollout.Versions{"b": lived(1), "a": lived(1)}.First()).To(Equal("a"), "the same for all replicas")
		Expect(rollout.Versions{"b": lived(1), "a": lived(2, ordered)}.First()).To(Equal("a"), "a person has asked for it")
		Expect(rollout.Versions{"b": lived(1), "a": lived(2, ordered, gone)}.First()).To(Equal("b"))
		// The versions "a" and "c" are of one program, "other" is one that was refused between them.
		at := func(r rollout.Record, target string) rollout.Record { r.Target = target; return r }
		Expect(rollout.Versions{"a": at(lived(1, gone), "A"), "other": at(lived(2), "B"), "c": at(lived(3), "A")}.First()).
			To(Equal("c"), "the program that came first keeps its place")
		Expect(rollout.Versions{"a": at(lived(1, gone), "A"), "other": at(lived(2), "B")}.First()).To(Equal("other"))
		Expect(rollout.Versions{"b": lived(1), "a": lived(2, gone)}.Living()).To(Equal(1))
	})

	It("keep two versions that are gone, for API servers that lag behind", func() {
		found := rollout.Versions{"a": lived(1, gone), "b": lived(2, gone), "c": lived(3, gone), "d": lived(4), "e": lived(5, gone)}
		next := rollout.Decide(rollout.Input{Version: "f", Found: found, Now: dawn}).Next
		Expect(next.InOrder()).To(Equal([]string{"c", "d", "e", "f"}))
	})

	DescribeTable("a replica that stops", func(own rollout.Record, last bool, expect *rollout.Record) {
		found := rollout.Versions{"own": own, "other": lived(9)}
		next := found.Leave("own", last)
		if expect == nil {
			Expect(next).To(BeNil())
			return
		}
		Expect(next).To(Equal(rollout.Versions{"own": *expect, "other": lived(9)}))
		Expect(found["own"]).To(Equal(own), "the found versions are not changed")
	},
		Entry("says so", lived(1), false, new(lived(1, left))),
		Entry("has been said so already", lived(1, left), false, nil),
		Entry("is the last one", lived(1, left), true, new(lived(1, left, gone))),
		Entry("is of a version that is gone", lived(1, gone), true, nil),
	)

	It("do not know a version without one", func() {
		Expect(rollout.Versions{}.Leave("own", true)).To(BeNil())
	})

	Describe("when a person orders a version", func() {
		found := rollout.Versions{"a": lived(1), "b": lived(2)}

		It("puts it first, whenever it came", func() {
			next := found.Order("b", rollout.Record{Target: "here"})
			Expect(next.First()).To(Equal("b"))
			Expect(next.InOrder()).To(Equal([]string{"a", "b"}))
			Expect(found["b"].Ordered).To(BeFalse(), "the found versions are not changed")
		})

		It("has an earlier order end", func() {
			next := found.Order("c", rollout.Record{}).Order("b", rollout.Record{})
			Expect(next.First()).To(Equal("b"))
			Expect(next["c"].Gone).To(BeTrue())
			Expect(next["a"].Gone).To(BeFalse())
		})

		It("changes nothing the second time", func() {
			next := found.Order("b", rollout.Record{})
			Expect(next.Order("b", rollout.Record{})).To(Equal(next))
		})

		It("gives way to the one that came first when no replica of it answers", func() {
			next := found.Order("c", rollout.Record{})
			r := next["c"]
			r.Gone = true
			next["c"] = r
			Expect(next.First()).To(Equal("a"))
		})
	})
})

var _ = Describe("Routes", func() {
	record := func(came int64, steps map[string][]string) rollout.Record {
		return rollout.Record{Came: came, Steps: steps}
	}
	type paths = map[string][]string

	DescribeTable("are the paths of other versions",
		func(found rollout.Versions, expect map[string]rollout.Route) {
			Expect(found.Routes("own")).To(Equal(expect))
		},
		Entry("none but ours", rollout.Versions{"own": record(1, paths{"/p": {"a"}})}, map[string]rollout.Route{}),
		Entry("of one that came first: with the steps that there are",
			rollout.Versions{"old": record(1, paths{"/p": {"a", "b"}}), "own": record(2, nil)},
			map[string]rollout.Route{"/p": {Steps: []string{"a", "b"}}}),
		Entry("of one that came later: with all steps or none",
			rollout.Versions{"new": record(3, paths{"/p": {"a"}}), "own": record(2, nil)},
			map[string]rollout.Route{"/p": {Steps: []string{"a"}, All: true}}),
		Entry("of one that is gone: an API server may lag behind",
			rollout.Versions{"old": {Came: 1, Gone: true, Steps: paths{"/p": {"a"}}}, "own": record(2, nil)},
			map[string]rollout.Route{"/p": {Steps: []string{"a"}, Gone: []string{"a"}}}),
		Entry("of one that is gone and one that lives",
			rollout.Versions{"old": {Came: 1, Gone: true, Steps: paths{"/p": {"a", "b"}}}, "own": record(2, nil), "new": record(3, paths{"/p": {"b"}})},
			map[string]rollout.Route{"/p": {Steps: []string{"a", "b"}, Gone: []string{"a"}}}),
		Entry("for a process without a record: it comes last",
			rollout.Versions{"old": record(7, paths{"/p": {"a"}})},
			map[string]rollout.Route{"/p": {Steps: []string{"a"}}}),
		Entry("of two that came first: with the steps of both, once",
			rollout.Versions{"a": record(1, paths{"/p": {"a", "b"}}), "b": record(2, paths{"/p": {"b", "c"}}), "own": record(3, nil)},
			map[string]rollout.Route{"/p": {Steps: []string{"a", "b", "c"}}}),
		Entry("of one before and one after: it is answered anyway, and skips no step that there is",
			rollout.Versions{"a": record(1, paths{"/p": {"a"}}), "own": record(2, nil), "c": record(3, paths{"/p": {"c"}})},
			map[string]rollout.Route{"/p": {Steps: []string{"a", "c"}}}),
		Entry("of two that came later",
			rollout.Versions{"own": record(2, nil), "c": record(3, paths{"/p": {"c"}}), "d": record(4, paths{"/p": {"d"}, "/q": {"d"}})},
			map[string]rollout.Route{"/p": {Steps: []string{"c", "d"}, All: true}, "/q": {Steps: []string{"d"}, All: true}}),
	)
})

var _ = Describe("Read and Write", func() {
	It("return the written records, and leave the data of others alone", func() {
		v := rollout.Versions{"a": lived(1, left), "b": {Came: 2, Target: "here", Steps: map[string][]string{"/p": {"s"}}}}
		text := v.Write(map[string]string{"theirs": "kept", prefix + "c": "dropped"})
		Expect(text).To(HaveLen(3))
		Expect(text).To(HaveKeyWithValue("theirs", "kept"))
		Expect(rollout.Read(text)).To(Equal(v))
	})

	DescribeTable("leave out a record that cannot be counted on", func(text string) {
		Expect(rollout.Read(map[string]string{prefix + "v": text})).To(BeEmpty())
	},
		Entry("no JSON", "nonsense"),
		Entry("another shape", `["came"]`),
		Entry("nothing", `null`),
		Entry("a place before all others", `{"came":-1}`),
		Entry("no place", `{"came":0}`),
		Entry("a place after which there is none", `{"came":9223372036854775807}`),
		Entry("a number that no question has", `{"came":1,"asked":9223372036854775807}`),
		Entry("a negative one", `{"came":1,"asked":-1}`),
		Entry("a negative answer", `{"came":1,"answered":-1}`),
	)

	It("leave out a version without a name, and take no answer for a question that was never asked", func() {
		text, _ := json.Marshal(lived(1))
		Expect(rollout.Read(map[string]string{prefix: string(text)})).To(BeEmpty())
		Expect(rollout.Read(map[string]string{prefix + "v": `{"came":1,"asked":1,"answered":100}`})["v"].Answered).To(BeEquivalentTo(1))
	})
})
