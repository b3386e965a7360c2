package rollout_test

// This file reads hostile annotations: a client that may edit the Lease can write anything into it.

import (
	"maps"
	"testing"
	"time"

	"code.cloudfoundry.org/eirinix/internal/rollout"
)

const prefix = "version.eirinix.cloudfoundry.org/"

// FuzzRead has two replicas live with any two records. They come to rest: nothing panics, nothing is written for ever,
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
			_ = found.Routes(own)
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
