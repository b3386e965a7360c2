package rollout_test

// This file is about each decision, by its reason.

import (
	"encoding/json"
	"maps"
	"math"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/rollout"
)

var dawn = time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)

// lived is a record that nothing is due for, as the replicas of another version have seen it.
func lived(came int64, changes ...func(*rollout.Record)) rollout.Record {
	r := rollout.Record{Ordinal: came, Target: "here", Probed: 3, Answered: 3}
	for _, change := range changes {
		change(&r)
	}
	return r
}

func asked(r *rollout.Record)   { r.Probed++ }
func left(r *rollout.Record)    { r.Stopping = true }
func gone(r *rollout.Record)    { r.Removed = true }
func polls(r *rollout.Record)   { r.Within = 45 }
func ordered(r *rollout.Record) { r.Ordered = true }
func afar(r *rollout.Record)    { r.Target = "elsewhere" }

var _ = Describe("Decide", func() {
	// The other version came first and stands, and its record was seen to change so long ago.
	DescribeTable("says of two versions",
		func(why string, own, other rollout.Record, lives bool, ago time.Duration, pause time.Duration, expect func(next rollout.Versions)) {
			found := rollout.Versions{"other": other}
			if own.Ordinal > 0 {
				found["own"] = own
			}
			seen := map[string]rollout.Observation{
				"other": {Probed: other.Probed, Answered: other.Answered, Stopping: other.Stopping, Since: dawn.Add(-ago), Serving: lives},
			}
			d := rollout.Decide(rollout.Input{Version: "own", Record: rollout.Record{Target: "here"}, Found: found, Standing: "other", Seen: seen, Now: dawn})
			Expect(d.Why).To(Equal(why))
			if why == "" {
				Expect(d.Next).To(BeNil())
				return
			}
			Expect(d.Pause).To(Equal(pause))
			expect(d.Next)
		},
		Entry("its own is not there", "joined", rollout.Record{}, lived(4), true, time.Second, time.Duration(0), func(next rollout.Versions) {
			Expect(next["own"].Ordinal).To(BeEquivalentTo(5))
			Expect(next.First("other")).To(Equal("other"))
		}),
		Entry("its own was given up", "joined", lived(1, gone), lived(4), true, time.Second, time.Duration(0), func(next rollout.Versions) {
			Expect(next["own"]).To(Equal(rollout.Record{Ordinal: 5, Target: "here"}))
		}),
		Entry("it is asked", "answered", lived(5, asked), lived(4), true, time.Second, rollout.PauseLong, func(next rollout.Versions) {
			Expect(next["own"].Answered).To(BeEquivalentTo(4))
		}),
		Entry("it is asked after one of its replicas has left", "answered", lived(5, asked, left), lived(4), true, time.Second, rollout.PauseShort, func(next rollout.Versions) {
			Expect(next["own"].Stopping).To(BeFalse())
		}),
		Entry("one of its replicas has left, and the others contradict", "answered", lived(5, left), lived(4), true, time.Second, rollout.PauseShort, func(next rollout.Versions) {
			Expect(next["own"]).To(Equal(lived(5)))
		}),
		Entry("the other has answered lately", "", lived(5), lived(4), true, 9*time.Second, time.Duration(0), nil),
		Entry("the other has answered long ago", "asked other", lived(5), lived(4), true, 10*time.Second, rollout.PauseLong, func(next rollout.Versions) {
			Expect(next["other"].Probed).To(BeEquivalentTo(4))
		}),
		Entry("the other has not been seen to answer", "asked other", lived(5), lived(4), false, time.Second, rollout.PauseShort, func(next rollout.Versions) {
			Expect(next["other"].Probed).To(BeEquivalentTo(4))
		}),
		Entry("a replica of the other has left", "asked other", lived(5), lived(4, left), true, time.Second, rollout.PauseShort, func(next rollout.Versions) {
			Expect(next["other"].Stopping).To(BeTrue())
		}),
		Entry("the other has been asked a moment ago", "", lived(5), lived(4, asked), true, 9*time.Second, time.Duration(0), nil),
		Entry("the other does not answer", "found no replica of other", lived(5), lived(4, asked), true, 10*time.Second, rollout.PauseShort, func(next rollout.Versions) {
			Expect(next["other"].Removed).To(BeTrue())
			Expect(next.First("other")).To(Equal("own"))
		}),
		Entry("the other, whose replica has left, has a moment to contradict", "", lived(5), lived(4, asked, left), true, 1400*time.Millisecond, time.Duration(0), nil),
		Entry("the other, whose replica has left, does not contradict", "found no replica of other", lived(5), lived(4, asked, left), true, 1500*time.Millisecond, rollout.PauseShort, func(next rollout.Versions) {
			Expect(next["other"].Removed).To(BeTrue())
		}),
		Entry("the other polls, so it answers later", "", lived(5), lived(4, asked, polls), true, 44*time.Second, time.Duration(0), nil),
		Entry("the other polls, a replica of it has left, and the others may not know yet", "", lived(5), lived(4, asked, left, polls), true, 44*time.Second, time.Duration(0), nil),
		Entry("the other polls and does not answer", "found no replica of other", lived(5), lived(4, asked, polls), true, 45*time.Second, rollout.PauseShort, func(next rollout.Versions) {
			Expect(next["other"].Removed).To(BeTrue())
		}),
		Entry("the other claims to answer within years", "found no replica of other", lived(5),
			lived(4, asked, func(r *rollout.Record) { r.Within = 1 << 60 }), true, 5*time.Minute, rollout.PauseShort, func(next rollout.Versions) {
				Expect(next["other"].Removed).To(BeTrue())
			}),
		Entry("the other is gone", "", lived(5), lived(4, asked, gone), true, time.Hour, time.Duration(0), nil),
		Entry("both at once", "answered, asked other", lived(5, asked), lived(4), true, time.Minute, rollout.PauseLong, func(next rollout.Versions) {
			Expect(next["own"].Answered).To(BeEquivalentTo(4))
			Expect(next["other"].Probed).To(BeEquivalentTo(4))
		}),
	)

	It("decides only on a long pause with one live version", func() {
		d := rollout.Decide(rollout.Input{Version: "own", Found: rollout.Versions{"own": lived(1), "old": lived(2, gone)}, Now: dawn})
		Expect(d).To(Equal(rollout.Decision{Pause: rollout.PauseLong}))
	})

	It("says when to look again: when the first answer or question is due", func() {
		found := rollout.Versions{"own": lived(3), "a": lived(1), "b": lived(2, asked)}
		seen := map[string]rollout.Observation{
			"a": {Probed: 3, Answered: 3, Since: dawn.Add(-2 * time.Second), Serving: true},
			"b": {Probed: 4, Answered: 3, Since: dawn.Add(-5 * time.Second), Serving: true},
		}
		d := rollout.Decide(rollout.Input{Version: "own", Record: rollout.Record{Target: "here"}, Found: found, Seen: seen, Now: dawn})
		Expect(d.Next).To(BeNil())
		Expect(d.RequeueAt).To(Equal(dawn.Add(5 * time.Second)))
	})

	DescribeTable("another program under the same fingerprint",
		func(other, own rollout.Record, standing string, lives bool, is string, stands bool) {
			found := rollout.Versions{"own": own, "other": other}
			seen := map[string]rollout.Observation{"other": {Probed: 3, Answered: 3, Since: dawn, Serving: lives}}
			d := rollout.Decide(rollout.Input{Version: "own", Record: rollout.Record{Target: "here"}, Found: found, Standing: standing, Seen: seen, Now: dawn})
			Expect(d.Other).To(Equal(is))
			Expect(d.Stands).To(Equal(stands))
		},
		Entry("it stands and answers", lived(1, afar), lived(2), "other", true, "elsewhere", true),
		Entry("it stands although it came later", lived(3, afar), lived(2), "other", true, "elsewhere", true),
		Entry("it stands and may be dead", lived(1, afar), lived(2), "other", false, "", false),
		Entry("it is the newcomer: this one stands", lived(3, afar), lived(2), "own", true, "elsewhere", false),
		Entry("it comes back: this one stands although it came later", lived(1, afar), lived(2), "own", true, "elsewhere", false),
		Entry("nothing stands, and it came first", lived(1, afar), lived(2), "", true, "elsewhere", true),
		Entry("nothing stands, and it came later", lived(3, afar), lived(2), "", true, "elsewhere", false),
		Entry("it is gone", lived(1, afar, gone), lived(2), "other", true, "", false),
		Entry("it is called at the same place, so it is another version", lived(1), lived(2), "other", true, "", false),
	)

	It("sees the program that stands behind another one that does not", func() {
		found := rollout.Versions{"own": lived(1), "a": lived(2, afar), "b": lived(3, func(r *rollout.Record) { r.Target = "third" }), "c": lived(4, afar)}
		seen := map[string]rollout.Observation{}
		for version := range found {
			seen[version] = rollout.Observation{Probed: 3, Answered: 3, Since: dawn, Serving: true}
		}
		d := rollout.Decide(rollout.Input{Version: "own", Record: rollout.Record{Target: "here"}, Found: found, Standing: "b", Seen: seen, Now: dawn})
		Expect(d.Other).To(Equal("third"))
		Expect(d.Stands).To(BeTrue())
	})

	It("has a record grow with what its version declares, and lose nothing", func() {
		found := rollout.Versions{"own": lived(1, func(r *rollout.Record) { r.Steps = map[string][]string{"/p": {"a"}, "/q": {"b"}} })}
		in := rollout.Input{Version: "own", Record: rollout.Record{Target: "here", Steps: map[string][]string{"/p": {"c"}, "/r": {"d"}}}, Found: found, Now: dawn}
		d := rollout.Decide(in)
		Expect(d.Pause).To(Equal(rollout.PauseShort))
		Expect(d.Next["own"].Steps).To(Equal(map[string][]string{"/p": {"a", "c"}, "/q": {"b"}, "/r": {"d"}}))
		Expect(found["own"].Steps).To(Equal(map[string][]string{"/p": {"a"}, "/q": {"b"}}), "the found records are not changed")
		in.Found = d.Next
		Expect(rollout.Decide(in).Next).To(BeNil())
	})

	It("says at once that a replica of the version answers late, and keeps that", func() {
		found := rollout.Versions{"own": lived(1)}
		d := rollout.Decide(rollout.Input{Version: "own", Record: rollout.Record{Within: 45}, Found: found, Now: dawn})
		Expect(d.Pause).To(Equal(rollout.PauseShort))
		Expect(d.Next["own"]).To(Equal(lived(1, polls)))
		Expect(rollout.Decide(rollout.Input{Version: "own", Found: d.Next, Now: dawn}).Next).To(BeNil())
		found = rollout.Versions{"own": lived(1, polls, asked)}
		Expect(rollout.Decide(rollout.Input{Version: "own", Found: found, Now: dawn}).Next["own"].Within).To(BeEquivalentTo(45))
	})

	DescribeTable("replaces numbers that a person has edited, in one write, and keeps the order of arrival",
		func(edit func(rollout.Versions), order ...string) {
			found := rollout.Versions{"a": lived(4, gone), "b": lived(5), "own": lived(6)}
			edit(found)
			before := maps.Clone(found)
			in := rollout.Input{Version: "own", Record: rollout.Record{Target: "here"}, Found: found, Standing: "b", Now: dawn}
			in.Seen = rollout.Observe(nil, found, dawn, time.Time{})
			d := rollout.Decide(in)
			Expect(found).To(Equal(before), "the found records are not changed")
			Expect(d.Next.InOrder()).To(Equal(order))
			Expect(d.Next.First("b")).To(Equal("b"))
			for _, r := range d.Next {
				Expect(r.Ordinal).To(BeNumerically("~", 2, 1<<20))
				Expect(r.Probed).To(BeNumerically("~", 2, 2))
				Expect(r.Answered).To(BeNumerically("~", 2, 2))
			}
			in.Found, in.Seen = d.Next, rollout.Observe(in.Seen, d.Next, dawn, time.Time{})
			Expect(rollout.Decide(in).Next).To(BeNil(), "one write is enough")
		},
		Entry("a place after which there is hardly any", func(v rollout.Versions) { v["b"] = lived(1<<53 - 1) }, "a", "own", "b"),
		Entry("a place after which there is none", func(v rollout.Versions) { v["b"] = lived(math.MaxInt64) }, "a", "own", "b"),
		Entry("a place before all others", func(v rollout.Versions) { v["b"] = lived(-1) }, "b", "a", "own"),
		Entry("its own place", func(v rollout.Versions) { v["own"] = lived(1<<53 - 1) }, "a", "b", "own"),
		Entry("no place", func(v rollout.Versions) { v["own"] = lived(0) }, "own", "a", "b"),
		Entry("a number that no question has", func(v rollout.Versions) { v["b"] = rollout.Record{Ordinal: 5, Target: "here", Probed: 1<<53 - 1} }, "a", "b", "own"),
		Entry("negative numbers", func(v rollout.Versions) {
			v["b"] = rollout.Record{Ordinal: 5, Target: "here", Probed: -1, Answered: -9}
		}, "a", "b", "own"),
	)

	It("joins behind a record with an edited place, and replaces it by the same write", func() {
		d := rollout.Decide(rollout.Input{Version: "own", Record: rollout.Record{Target: "here"}, Found: rollout.Versions{"a": lived(1), "b": lived(1<<53 - 1)}, Now: dawn})
		Expect(d.Why).To(HavePrefix("joined"))
		Expect(d.Next.InOrder()).To(Equal([]string{"a", "b", "own"}))
		Expect(d.Next["own"].Ordinal).To(BeEquivalentTo(3))
	})
})

var _ = Describe("Observe", func() {
	later := dawn.Add(time.Minute)

	It("counts silence from when a record is seen for the first time, and proves no life by that", func() {
		Expect(rollout.Observe(nil, rollout.Versions{"v": lived(1)}, later, time.Time{})).To(Equal(map[string]rollout.Observation{"v": {Probed: 3, Answered: 3, Since: later}}))
	})

	DescribeTable("compares a record with the last sight of it", func(changes func(*rollout.Record), since time.Time, lives bool) {
		seen := rollout.Observe(nil, rollout.Versions{"v": lived(1)}, dawn, time.Time{})
		s := rollout.Observe(seen, rollout.Versions{"v": lived(1, changes)}, later, time.Time{})["v"]
		Expect(s.Since).To(Equal(since))
		Expect(s.Serving).To(Equal(lives))
	},
		Entry("nothing", func(*rollout.Record) {}, dawn, false),
		Entry("a question", asked, later, false),
		Entry("an answer", func(r *rollout.Record) { r.Probed++; r.Answered++ }, later, true),
		Entry("a replica that left", left, later, false),
		Entry("an answer that an older backup takes back", func(r *rollout.Record) { r.Probed--; r.Answered-- }, later, false),
	)

	DescribeTable("counts no silence before it proves something: an outage restarts the clock", func(found rollout.Record, proves, since time.Time) {
		seen := rollout.Observe(nil, rollout.Versions{"v": lived(1)}, dawn, time.Time{})
		Expect(rollout.Observe(seen, rollout.Versions{"v": found}, later, proves)["v"].Since).To(Equal(since))
	},
		Entry("of a record that has not changed", lived(1), later.Add(time.Second), later.Add(time.Second)),
		Entry("of one that has", lived(1, asked), later.Add(time.Second), later.Add(time.Second)),
		Entry("an outage that was over before", lived(1), dawn.Add(-time.Second), dawn),
		Entry("an outage that ended since", lived(1), dawn.Add(time.Second), dawn.Add(time.Second)),
	)

	It("forgets a version whose record has gone", func() {
		seen := rollout.Observe(nil, rollout.Versions{"v": lived(1)}, dawn, time.Time{})
		Expect(rollout.Observe(seen, rollout.Versions{}, later, time.Time{})).To(BeEmpty())
	})
})

var _ = Describe("The records of a Lease", func() {
	DescribeTable("say which version is first", func(found rollout.Versions, standing, first string) {
		Expect(found.First(standing)).To(Equal(first))
	},
		Entry("none: there is none", rollout.Versions{}, "a", ""),
		Entry("the one that stands, although another came before", rollout.Versions{"a": lived(1), "b": lived(2)}, "b", "b"),
		Entry("the one that stands, whatever the order of their names", rollout.Versions{"a": lived(2), "b": lived(1)}, "a", "a"),
		Entry("the one that a person ordered, before the one that stands", rollout.Versions{"a": lived(1, ordered), "b": lived(2)}, "b", "a"),
		Entry("the same, which came later", rollout.Versions{"a": lived(2, ordered), "b": lived(1)}, "b", "a"),
		Entry("not one that was ordered and is gone", rollout.Versions{"a": lived(1), "b": lived(2, ordered, gone)}, "", "a"),
		Entry("not one that stands and is gone", rollout.Versions{"a": lived(1, gone), "b": lived(2), "c": lived(3)}, "a", "b"),
		Entry("not one that stands and has no record", rollout.Versions{"b": lived(2), "c": lived(3)}, "a", "b"),
		Entry("the one that came first, if none stands", rollout.Versions{"b": lived(1, gone), "c": lived(2), "a": lived(3)}, "", "c"),
		Entry("the same for all replicas", rollout.Versions{"b": lived(1), "a": lived(1)}, "", "a"),
	)

	It("say how many live", func() {
		Expect(rollout.Versions{"b": lived(1), "a": lived(2, gone)}.Serving()).To(Equal(1))
	})

	It("say which steps other live versions of the program declare", func() {
		at := func(path string, keys ...string) func(*rollout.Record) {
			return func(r *rollout.Record) { r.Steps = map[string][]string{path: keys} }
		}
		declares := rollout.Versions{
			"own": lived(1, at("/a", "own")), "old": lived(2, at("/b", "old", "both")), "dead": lived(3, gone, at("/c", "dead")),
			"theirs": lived(4, afar, at("/d", "theirs")),
		}.Declares("own")
		for key, is := range map[string]bool{"own": false, "old": true, "both": true, "dead": false, "theirs": false} {
			Expect(declares(key)).To(Equal(is), key)
		}
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
			Expect(next.First("a")).To(Equal("b"))
			Expect(next.InOrder()).To(Equal([]string{"a", "b"}))
			Expect(found["b"].Ordered).To(BeFalse(), "the found versions are not changed")
		})

		It("has an earlier order end", func() {
			next := found.Order("c", rollout.Record{}).Order("b", rollout.Record{})
			Expect(next.First("")).To(Equal("b"))
			Expect(next["c"].Removed).To(BeTrue())
			Expect(next["a"].Removed).To(BeFalse())
		})

		It("changes nothing the second time", func() {
			next := found.Order("b", rollout.Record{})
			Expect(next.Order("b", rollout.Record{})).To(Equal(next))
		})

		It("gives way to the one that came first when no replica of it answers", func() {
			next := found.Order("c", rollout.Record{})
			r := next["c"]
			r.Removed = true
			next["c"] = r
			Expect(next.First("")).To(Equal("a"))
		})
	})
})

var _ = Describe("Routes", func() {
	record := func(came int64, steps map[string][]string) rollout.Record {
		return rollout.Record{Ordinal: came, Steps: steps}
	}
	type paths = map[string][]string

	DescribeTable("are the paths of all versions",
		func(found rollout.Versions, expect map[string]rollout.Route) {
			Expect(found.Routes("own")).To(Equal(expect))
		},
		Entry("our own: another replica of the version may have registered it first",
			rollout.Versions{"own": record(1, paths{"/p": {"a"}})}, map[string]rollout.Route{"/p": {Steps: []string{"a"}}}),
		Entry("our own, which a later version has too",
			rollout.Versions{"own": record(1, paths{"/p": {"a"}}), "new": record(2, paths{"/p": {"a", "b"}})}, map[string]rollout.Route{"/p": {Steps: []string{"a", "b"}}}),
		Entry("of one that came first: with the steps that there are",
			rollout.Versions{"old": record(1, paths{"/p": {"a", "b"}}), "own": record(2, nil)},
			map[string]rollout.Route{"/p": {Steps: []string{"a", "b"}}}),
		Entry("of one that came later: with all steps or none",
			rollout.Versions{"new": record(3, paths{"/p": {"a"}}), "own": record(2, nil)},
			map[string]rollout.Route{"/p": {Steps: []string{"a"}, All: true}}),
		Entry("of one that is gone: an API server may lag behind",
			rollout.Versions{"old": {Ordinal: 1, Removed: true, Steps: paths{"/p": {"a"}}}, "own": record(2, nil)},
			map[string]rollout.Route{"/p": {Steps: []string{"a"}, Removed: []string{"a"}}}),
		Entry("of one that is gone and one that lives",
			rollout.Versions{"old": {Ordinal: 1, Removed: true, Steps: paths{"/p": {"a", "b"}}}, "own": record(2, nil), "new": record(3, paths{"/p": {"b"}})},
			map[string]rollout.Route{"/p": {Steps: []string{"a", "b"}, Removed: []string{"a"}}}),
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
		v := rollout.Versions{"a": lived(1, left), "b": {Ordinal: 2, Target: "here", Steps: map[string][]string{"/p": {"s"}}}}
		text := v.Write(map[string]string{"theirs": "kept", prefix + "c": "dropped"})
		Expect(text).To(HaveLen(3))
		Expect(text).To(HaveKeyWithValue("theirs", "kept"))
		Expect(rollout.Read(text)).To(Equal(v))
	})

	DescribeTable("leave out what is no record", func(text string) {
		Expect(rollout.Read(map[string]string{prefix + "v": text})).To(BeEmpty())
	},
		Entry("no JSON", "nonsense"),
		Entry("another shape", `["came"]`),
		Entry("a fraction", `{"came":1.5}`),
	)

	It("take each record, whatever its numbers, because a version that finds none of its own joins again", func() {
		for _, text := range []string{`{"came":-1}`, `{"came":0}`, `{"came":9223372036854775807}`, `{"came":1,"asked":-1}`, `{"came":1,"answered":-1}`} {
			Expect(rollout.Read(map[string]string{prefix + "v": text})).To(HaveLen(1), text)
		}
	})

	It("understand the records of a build from before versions stood", func() {
		text := `{"came":3,"target":"https://x","program":2,"steps":{"/p":["a@v1/Pod"]},"asked":4,"answered":4,"left":true}`
		Expect(rollout.Read(map[string]string{prefix + "v": text})).To(Equal(rollout.Versions{
			"v": {Ordinal: 3, Target: "https://x", Steps: map[string][]string{"/p": {"a@v1/Pod"}}, Probed: 4, Answered: 4, Stopping: true},
		}))
	})

	It("leave out a version without a name", func() {
		text, _ := json.Marshal(lived(1))
		Expect(rollout.Read(map[string]string{prefix: string(text)})).To(BeEmpty())
	})
})

var _ = Describe("The steps that the API server calls", func() {
	routes := func() map[string]rollout.Route {
		return map[string]rollout.Route{"/later": {Steps: []string{"a"}, All: true}}
	}

	It("are served beside those of the records, which do not change", func() {
		before := routes()
		Expect(rollout.With(before, map[string][]string{"/later": {"a", "b"}, "/lost": {"c"}}, nil)).To(Equal(map[string]rollout.Route{
			"/later": {Steps: []string{"a", "b"}, All: true}, "/lost": {Steps: []string{"c"}},
		}))
		Expect(before).To(Equal(routes()))
	})

	It("are served by every replica where this version's own registration keeps the path for a later one", func() {
		inForce := map[string][]string{"/later": {"a"}}
		Expect(rollout.With(routes(), inForce, inForce)["/later"].All).To(BeFalse())
	})
})
