package rollout_test

// This file is about the records of versions: each decision on them, by its reason, the routes that follow from them, and
// the Lease that holds them.

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"code.cloudfoundry.org/eirinix/internal/rollout"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

func TestRollout(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "internal/rollout")
}

const prefix = "version.eirinix.cloudfoundry.org/"

var dawn = time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)

// lived is a record that nothing is due for, as the replicas of another version have seen it.
func lived(came int64, changes ...func(*rollout.Record)) rollout.Record {
	r := rollout.Record{Ordinal: came, Target: "here", Probed: 3, Answered: 3}
	for _, change := range changes {
		change(&r)
	}
	return r
}

var none rollout.Record

func asked(r *rollout.Record)    { r.Probed++ }
func answered(r *rollout.Record) { r.Answered, r.Stopping = r.Probed, false }
func left(r *rollout.Record)     { r.Stopping = true }
func gone(r *rollout.Record)     { r.Removed = true }
func polls(r *rollout.Record)    { r.Within = 45 }
func late(r *rollout.Record)     { r.Within = 1 << 60 }
func ordered(r *rollout.Record)  { r.Ordered = true }
func afar(r *rollout.Record)     { r.Target = "elsewhere" }

var _ = Describe("Decide", func() {
	record := rollout.Record{Target: "here"}

	// The other version came first and stands, and its record was seen to change so long ago.
	DescribeTable("says of two versions",
		func(why string, own, other rollout.Record, lives bool, ago, pause time.Duration, nextOwn, nextOther rollout.Record) {
			found := rollout.Versions{"other": other}
			if own.Ordinal > 0 {
				found["own"] = own
			}
			seen := map[string]rollout.Observation{
				"other": {Probed: other.Probed, Answered: other.Answered, Stopping: other.Stopping, Since: dawn.Add(-ago), Serving: lives},
			}
			d := rollout.Decide(rollout.Input{Version: "own", Record: record, Found: found, Standing: "other", Seen: seen, Now: dawn})
			Expect(d.Why).To(Equal(why))
			if why == "" {
				Expect(d.Next).To(BeNil())
				return
			}
			Expect(d.Pause).To(Equal(pause))
			Expect(d.Next).To(Equal(rollout.Versions{"own": nextOwn, "other": nextOther}))
		},
		Entry("its own is not there", "joined", none, lived(4), true, time.Second, time.Duration(0), rollout.Record{Ordinal: 5, Target: "here"}, lived(4)),
		Entry("its own was given up", "joined", lived(1, gone), lived(4), true, time.Second, time.Duration(0), rollout.Record{Ordinal: 5, Target: "here"}, lived(4)),
		Entry("it is asked", "answered", lived(5, asked), lived(4), true, time.Second, rollout.PauseLong, lived(5, asked, answered), lived(4)),
		Entry("it is asked after one of its replicas has left", "answered", lived(5, asked, left), lived(4), true, time.Second, rollout.PauseShort, lived(5, asked, answered), lived(4)),
		Entry("one of its replicas has left, and the others contradict", "answered", lived(5, left), lived(4), true, time.Second, rollout.PauseShort, lived(5), lived(4)),
		Entry("the other has answered lately", "", lived(5), lived(4), true, 9*time.Second, time.Duration(0), none, none),
		Entry("the other has answered long ago", "asked other", lived(5), lived(4), true, 10*time.Second, rollout.PauseLong, lived(5), lived(4, asked)),
		Entry("the other has not been seen to answer", "asked other", lived(5), lived(4), false, time.Second, rollout.PauseShort, lived(5), lived(4, asked)),
		Entry("a replica of the other has left", "asked other", lived(5), lived(4, left), true, time.Second, rollout.PauseShort, lived(5), lived(4, left, asked)),
		Entry("the other has been asked a moment ago", "", lived(5), lived(4, asked), true, 9*time.Second, time.Duration(0), none, none),
		Entry("the other does not answer", "found no replica of other", lived(5), lived(4, asked), true, 10*time.Second, rollout.PauseShort, lived(5), lived(4, asked, gone)),
		Entry("the other, whose replica has left, has a moment to contradict", "", lived(5), lived(4, asked, left), true, 1400*time.Millisecond, time.Duration(0), none, none),
		Entry("the other, whose replica has left, does not contradict", "found no replica of other", lived(5), lived(4, asked, left), true, 1500*time.Millisecond, rollout.PauseShort, lived(5), lived(4, asked, left, gone)),
		Entry("the other polls, so it answers later", "", lived(5), lived(4, asked, polls), true, 44*time.Second, time.Duration(0), none, none),
		Entry("the other polls, a replica of it has left, and the others may not know yet", "", lived(5), lived(4, asked, left, polls), true, 44*time.Second, time.Duration(0), none, none),
		Entry("the other polls and does not answer", "found no replica of other", lived(5), lived(4, asked, polls), true, 45*time.Second, rollout.PauseShort, lived(5), lived(4, asked, polls, gone)),
		Entry("the other claims to answer within years", "found no replica of other", lived(5), lived(4, asked, late), true, 5*time.Minute, rollout.PauseShort, lived(5), lived(4, asked, late, gone)),
		Entry("the other is gone", "", lived(5), lived(4, asked, gone), true, time.Hour, time.Duration(0), none, none),
		Entry("both at once", "answered, asked other", lived(5, asked), lived(4), true, time.Minute, rollout.PauseLong, lived(5, asked, answered), lived(4, asked)),
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
		d := rollout.Decide(rollout.Input{Version: "own", Record: record, Found: found, Seen: seen, Now: dawn})
		Expect(d.Next).To(BeNil())
		Expect(d.RequeueAt).To(Equal(dawn.Add(5 * time.Second)))
	})

	DescribeTable("another program under the same fingerprint",
		func(other, own rollout.Record, standing string, lives bool, is string, stands bool) {
			found := rollout.Versions{"own": own, "other": other}
			seen := map[string]rollout.Observation{"other": {Probed: 3, Answered: 3, Since: dawn, Serving: lives}}
			d := rollout.Decide(rollout.Input{Version: "own", Record: record, Found: found, Standing: standing, Seen: seen, Now: dawn})
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
		d := rollout.Decide(rollout.Input{Version: "own", Record: record, Found: found, Standing: "b", Seen: seen, Now: dawn})
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
			in := rollout.Input{Version: "own", Record: record, Found: found, Standing: "b", Now: dawn}
			in.Seen = rollout.Observe(nil, found, dawn, time.Time{})
			d := rollout.Decide(in)
			Expect(found).To(Equal(before), "the found records are not changed")
			Expect(d.Next.InOrder()).To(Equal(order))
			Expect(d.Next.First("b")).To(Equal("b"))
			for _, r := range d.Next {
				Expect(r.Ordinal).To(And(BeNumerically(">=", 1), BeNumerically("<=", 1<<20)))
				Expect([]int64{r.Probed, r.Answered}).To(HaveEach(BeNumerically("~", 2, 2)))
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
		d := rollout.Decide(rollout.Input{Version: "own", Record: record, Found: rollout.Versions{"a": lived(1), "b": lived(1<<53 - 1)}, Now: dawn})
		Expect(d.Why).To(HavePrefix("joined"))
		Expect(d.Next.InOrder()).To(Equal([]string{"a", "b", "own"}))
		Expect(d.Next["own"].Ordinal).To(BeEquivalentTo(3))
	})
})

var _ = Describe("Observe", func() {
	later := dawn.Add(time.Minute)

	It("counts silence from when a record is seen for the first time, and proves no life by that", func() {
		Expect(rollout.Observe(nil, rollout.Versions{"v": lived(1)}, later, time.Time{})).To(Equal(map[string]rollout.Observation{"v": {Probed: 3, Answered: 3, Since: later, Ordinal: 1}}))
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
			Expect(next.Trust("b", []byte("ca")).Order("a", rollout.Record{}).Trusted()).To(Equal([]byte("ca")), "the caBundles stay")
			Expect(rollout.Versions{"b": {Within: 45}}.Order("b", rollout.Record{})["b"].Within).To(BeEquivalentTo(45), "its replicas may poll")
		})

		It("has an earlier order end", func() {
			next := found.Order("c", rollout.Record{}).Order("b", rollout.Record{})
			Expect(next.First("")).To(Equal("b"))
			Expect(next["c"].Removed).To(BeTrue())
			Expect(next["a"].Removed).To(BeFalse())
		})

		It("has an earlier one that replicas serve live on", func() {
			record := rollout.Record{Target: "here"}
			d := rollout.Decide(rollout.Input{Version: "c", Record: record, Found: found.Order("c", record)})
			Expect(d.Why).To(ContainSubstring("answered"))
			Expect(rollout.Decide(rollout.Input{Version: "c", Record: record, Found: d.Next}).Why).NotTo(ContainSubstring("answered"))
			next := d.Next.Order("b", rollout.Record{})
			Expect(next.First("")).To(Equal("b"))
			Expect(next["c"].Removed).To(BeFalse())
		})

		It("changes nothing the second time, and something for one that is first without an order", func() {
			Expect(found.First("")).To(Equal("a"))
			next := found.Order("a", rollout.Record{})
			Expect(next.First("b")).To(Equal("a"))
			Expect(next.Order("a", rollout.Record{})).To(Equal(next))
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
			Expect(found.Routes("own", nil, dawn)).To(Equal(expect))
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
		Entry("of one that came later and is gone: no other replica has its steps",
			rollout.Versions{"own": record(1, nil), "new": {Ordinal: 2, Removed: true, Steps: paths{"/p": {"a"}}}},
			map[string]rollout.Route{"/p": {Steps: []string{"a"}, Removed: []string{"a"}}}),
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

	DescribeTable("of a version that is back are answered as before for ten seconds: API servers may lag behind", func(all bool, own, back rollout.Record, after time.Duration) {
		found := rollout.Versions{"own": own, "back": lived(1, gone)}
		seen := rollout.Observe(nil, found, dawn, time.Time{})
		back.Steps = paths{"/back": {"a"}}
		found["back"] = back
		seen = rollout.Observe(seen, found, dawn.Add(time.Hour), time.Time{})
		routes, again := found.Routes("own", seen, dawn.Add(time.Hour+after))
		Expect(routes["/back"].All).To(Equal(all))
		Expect(again.IsZero()).To(Equal(all), again.String())
	},
		Entry("while it cannot have registered again", false, lived(2), lived(3), 9*time.Second),
		Entry("not once it can", true, lived(2), lived(3), 10*time.Second),
		Entry("not where a person ordered it", true, lived(2), lived(3, ordered), time.Second),
		Entry("not where a replica of this version stops", true, lived(2, left), lived(3), time.Second),
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

	It("leave out what is no record, and a version without a name", func() {
		Expect(rollout.Read(map[string]string{prefix + "v": "nonsense", prefix + "w": `["came"]`, prefix: `{"came":1}`})).To(BeEmpty())
	})

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

var _ = Describe("The Lease", func() {
	var (
		c     *fake.FakeDynamicClient
		lease *rollout.Lease
	)
	in := func(objects ...runtime.Object) {
		c = fake.NewSimpleDynamicClient(runtime.NewScheme(), objects...)
		lease = &rollout.Lease{Client: c.Resource(rollout.Resource).Namespace("cf"), Namespace: "cf", Name: "versions"}
	}
	// stored is a Lease of a later API server, with annotations of others.
	stored := func() *unstructured.Unstructured {
		found := &unstructured.Unstructured{}
		Expect(json.Unmarshal([]byte(`{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "later": "of the object",
			"metadata": {"namespace": "cf", "name": "versions", "resourceVersion": "7", "uid": "u", "annotations": {"note": "do not touch"}, "labels": {"team": "a"}},
			"spec": {"leaseDurationSeconds": 15, "later": {"of": "the spec"}}}`), found)).To(Succeed())
		return found
	}
	read := func(ctx context.Context) *unstructured.Unstructured {
		GinkgoHelper()
		return Must(lease.Client.Get(ctx, lease.Name, metav1.GetOptions{}))
	}
	writes := func() (verbs []string) {
		for _, a := range c.Actions() {
			if a.GetVerb() != "get" {
				verbs = append(verbs, a.GetVerb())
			}
		}
		return verbs
	}
	join := func(found rollout.Versions) rollout.Versions {
		return found.Order("own", rollout.Record{Target: "here"})
	}

	It("is created with the records", func(ctx SpecContext) {
		in()
		Expect(lease.Change(ctx, join)).To(Succeed())
		found := read(ctx)
		Expect(rollout.Read(found.GetAnnotations())).To(HaveKey("own"))
		Expect(found.GroupVersionKind()).To(Equal(lease.Empty().GroupVersionKind()))
		Expect(writes()).To(Equal([]string{"create"}))
	})

	It("keeps the fields that our Go types do not know, and what others have noted on it", func(ctx SpecContext) {
		in(stored())
		Expect(lease.Change(ctx, join)).To(Succeed())
		Expect(writes()).To(Equal([]string{"update"}))
		found := read(ctx)
		Expect(rollout.Read(found.GetAnnotations())).To(HaveKey("own"))
		found.SetAnnotations(rollout.Versions{}.Write(found.GetAnnotations()))
		Expect(found).To(Equal(stored()))
	})

	It("lets the version that is first register, and no other one", func(ctx SpecContext) {
		held := stored()
		held.SetAnnotations(rollout.Versions{"own": lived(1), "other": lived(2)}.Write(held.GetAnnotations()))
		in(held)
		Expect(lease.StillFirst(ctx, "own", "")).To(Succeed())
		Expect(lease.StillFirst(ctx, "own", "other")).To(MatchError(apierrors.IsConflict, "IsConflict"))
		in()
		Expect(lease.StillFirst(ctx, "own", "")).To(Succeed(), "none is")
	})

	It("is not written where nothing changes, and what was read stays as it is", func(ctx SpecContext) {
		held := stored()
		held.SetAnnotations(join(rollout.Versions{}).Write(held.GetAnnotations()))
		in(held)
		Expect(lease.Change(ctx, func(rollout.Versions) rollout.Versions { return nil })).To(Succeed())
		Expect(lease.Change(ctx, func(found rollout.Versions) rollout.Versions { return found })).To(Succeed())
		Expect(writes()).To(BeEmpty())
		seen := stored()
		Expect(lease.Write(ctx, seen, join(rollout.Versions{}))).To(Succeed())
		Expect(seen).To(Equal(stored()))
		Expect(c.Actions()[len(c.Actions())-1].(clienttesting.UpdateAction).GetObject().(*unstructured.Unstructured).GetResourceVersion()).To(Equal("7"), "the API server refuses it if another was faster")
	})

	It("is decided anew after a lost race, up to five times", func(ctx SpecContext) {
		in(stored())
		lost := 0
		c.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			lost++
			return lost == 1, nil, apierrors.NewConflict(rollout.Resource.GroupResource(), "versions", nil)
		})
		decided := 0
		change := func() error {
			return lease.Change(ctx, func(found rollout.Versions) rollout.Versions { decided++; return join(found) })
		}
		Expect(change()).To(Succeed())
		Expect(decided).To(Equal(2))

		in(stored())
		c.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewConflict(rollout.Resource.GroupResource(), "versions", nil)
		})
		decided = 0
		Expect(change()).To(MatchError(apierrors.IsConflict, "IsConflict"))
		Expect(decided).To(Equal(5))
	}, SpecTimeout(2*time.Minute))

	It("names the rights that are missing", func(ctx SpecContext) {
		in(stored())
		c.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(rollout.Resource.GroupResource(), "versions", nil)
		})
		err := lease.Change(ctx, join)
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("the Lease cf/versions, in which versions of this program know each other (needs get, list, watch, create and update on leases.coordination.k8s.io)")))
	})
})

// FuzzRead reads hostile annotations: a client that may edit the Lease can write anything into it. It has two replicas live
// with any two records. They come to rest: nothing panics, nothing is written for ever,
// and none gets before others by a number that overflows.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		``, `null`, `[]`, `{}`, `{"came":1}`, `{"came":9223372036854775807}`, `{"came":-9223372036854775808}`, `{"came":1e300}`,
		`{"came":2,"asked":9223372036854775807}`, `{"came":2,"answered":9007199254740991}`, `{"came":2,"asked":-1,"answered":-1}`,
		`{"came":1,"steps":{"/mutate/a":["a","a"],"":null}}`, `{"came":1,"steps":["a"]}`, `{"came":"1"}`, `{"came":1,"target":"elsewhere"}`,
		`{"came":3,"gone":true,"ordered":true,"left":true}`, `{"came":1,"asked":5,"answered":4,"left":true}`,
		`{"came":9007199254740991}`, `{"came":0,"asked":-1}`, `{"came":1,"within":9223372036854775807}`, `{"came":1,"asked":1,"within":-1,"left":true}`,
	} {
		f.Add("v1", text, "v2", `{"came":2,"target":"here"}`)
		f.Add("", text, "v1", text)
	}
	f.Fuzz(func(t *testing.T, version, text, other, its string) {
		annotations := map[string]string{"kept": "as it is", prefix + version: text, prefix + other: its}
		found := rollout.Read(annotations)
		if again := rollout.Read(found.Write(annotations)); len(again) != len(found) {
			t.Fatalf("%v is read again as %v", found, again)
		}
		if found.Write(annotations)["kept"] != "as it is" {
			t.Fatal("another's annotation is lost")
		}
		const own = "own"
		before := found.First("v1")
		now, writes, seen := dawn, 0, map[string]rollout.Observation(nil)
		for range 200 {
			seen = rollout.Observe(seen, found, now, time.Time{})
			_, _ = found.Routes(own, seen, now)
			d := rollout.Decide(rollout.Input{Version: own, Record: rollout.Record{Target: "here"}, Found: found, Standing: "v1", Seen: seen, Now: now})
			if writes == 0 && before != "" && before != own && d.Next.First("v1") != before {
				t.Fatalf("%s goes before %s: %v", d.Next.First("v1"), before, d.Next)
			}
			if d.Next == nil && d.RequeueAt.IsZero() {
				return
			}
			if d.Next != nil {
				if maps.Equal(d.Next.Write(annotations), found.Write(annotations)) {
					t.Fatalf("%q writes %v as it is", d.Why, found)
				}
				annotations = d.Next.Write(annotations)
				found = rollout.Read(annotations)
				writes++
			}
			now = now.Add(time.Second)
		}
		t.Fatalf("after %d writes there is no rest: %v", writes, found)
	})
}
