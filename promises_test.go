package eirinix_test

// This file names, for each sentence of some pages that promises something, the spec that fails when it no longer holds.

import (
	"os"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// promise is a part of a sentence, and the spec: a file, and a part of its text there.
type promise struct{ says, file, spec string }

// promised are words that make a sentence a promise.
var promised = regexp.MustCompile(`(?i)\b(never|always|every|none|at most|at least|within|one|two|three|five|ten|\d+)\b|\b(a|half a) (second|minute)\b`)

// promisesOf returns the sentences of a page that promise something. Code and headings do not.
func promisesOf(page string) (all []string) {
	text := regexp.MustCompile("(?s)\n```.*?\n```").ReplaceAllString(page, "\n")
	var paragraph strings.Builder
	end := func() {
		for _, s := range regexp.MustCompile(`[.;:]\s+`).Split(paragraph.String(), -1) {
			if promised.MatchString(s) {
				all = append(all, strings.TrimSpace(s))
			}
		}
		paragraph.Reset()
	}
	numbered := regexp.MustCompile(`^\d+\. `)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "    ") { // code
			continue
		}
		line = strings.TrimSpace(line)
		item := numbered.ReplaceAllString(strings.TrimPrefix(line, "- "), "")
		if line == "" || item != line || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "#") {
			end()
		}
		if !strings.HasPrefix(line, "#") {
			paragraph.WriteString(item + " ")
		}
	}
	end()
	return all
}

func TestEachPromiseOfAPageHasASpec(t *testing.T) {
	for page, promises := range promises {
		t.Run(page, func(t *testing.T) {
			g := NewWithT(t)
			text, err := os.ReadFile("docs/" + page)
			g.Expect(err).NotTo(HaveOccurred())
			used := map[int]bool{}
			for _, sentence := range promisesOf(string(text)) {
				found := false
				for i, p := range promises {
					if strings.Contains(sentence, p.says) {
						found, used[i] = true, true
					}
				}
				if !found {
					t.Errorf("no spec is named for: %s", sentence)
				}
			}
			for i, p := range promises {
				if !used[i] {
					t.Errorf("the page no longer says: %s", p.says)
				}
				if p.file == "" {
					continue // spec says why there is none
				}
				source, err := os.ReadFile(p.file)
				g.Expect(err).NotTo(HaveOccurred())
				if !strings.Contains(string(source), p.spec) {
					t.Errorf("%s has no spec %q", p.file, p.spec)
				}
			}
		})
	}
}

const (
	follow  = "internal/reads/follow_test.go"
	readsOn = "reads_ext_test.go"

	chains    = "internal/admit/chain_test.go"
	malformed = "internal/admit/request_test.go"
	budget    = "internal/chain/late_test.go"
	grouping  = "internal/webhookconf/group_test.go"
	audits    = "internal/audit/audit_test.go"
	exits     = "audit/audit_test.go"
)

var promises = map[string][]promise{
	"reads.md": {
		{"All steps of a call see one state", readsOn, "sees one moment of them in all steps of a call"},
		{"Two declarations are two streams", "", "a limit, and no promise"},
		{"keep both values in one object", "", "advice"},
		{"is not registered before there is one", readsOn, "holds back a step that requires an object which is missing"},
		{"is not registered before there is one", follow, "TestARequiredObjectIsAState"},
		{"only reads", "", "a command"},
		{"In one run of", "", "the figures are in the next part"},
		{"Two requests at the same time", "examples/unique_host_test.go", "admits both of two requests at the same time if the step only looks"},
		{"To admit only one", "", "advice"},
		{"Only one creation succeeds", "examples/unique_host_test.go", "admits one of them if it reserves"},
		{"one minute unless given", "step_test.go", `Entry("of a minute"`},
		{"one minute unless given", follow, "TestNothingOlderThanMaxStaleIsServed"},
		{"Less than a minute is refused", "step_test.go", `Entry("with an age that cannot be kept"`},
		{"within 45 s, and over HTTP/1.1", follow, "TestNothingOlderThanMaxStaleIsServed"},
		{"within 45 s, and over HTTP/1.1", readsOn, "is watched for a short time over HTTP/1.1"},
		{"waits up to a second for it", follow, "TestCallsShareOneAttempt"},
		{"got no answer for a second", follow, "TestABrokenReadCostsACallNothing"},
		{"at most ten seconds", follow, "TestAStartWaitsForFailuresNotAtAllAndForSilenceTenSeconds"},
		{"The log says why within two seconds", follow, "TestFailuresBeforeTheFirstListAreSaidWithinTwoSecondsAndTriedAgainWithinFive"},
		{"The log says why within two seconds", readsOn, "holds back its own steps, says why, and is ready with all others"},
		{"follow within five seconds of the right", follow, "TestFailuresBeforeTheFirstListAreSaidWithinTwoSecondsAndTriedAgainWithinFive"},
		{"follow within five seconds of the right", follow, "TestARequiredObjectIsAState"},
		{"15,000 Secrets of 4 KB", "bench/section_reads.go", "MiB of heap above idle"},
		{"A lookup among 100,000 Ingresses", "internal/reads/source_test.go", "takes no memory but that of its result"},
		{"for the first two minutes", "examples/unique_host_test.go", "are taken over when they are old"},
		{"for these two minutes", "examples/unique_host_test.go", "are taken over when they are old"},
		{"differ by a minute", "", "a limit, and no promise"},
	}, "steps.md": {
		{"within five seconds of its CustomResourceDefinition", "step_ext_test.go", "holds back its own step alone, and is registered once it can be"},
		{"a `Rule` about one object", "testing/rule_test.go", "judges each object that is created, and no object that is deleted"},
		{"an API status of 400, 403 or 422", "step_ext_test.go", "accepts and refuses with the code and causes of its error, on CREATE, UPDATE and DELETE"},
		{"refuses it with 400, the path", "step_ext_test.go", "is denied by typed steps with its path"},
		{"gets HTTP 500 with the step's name", "internal/admit/answer_test.go", "a panic with an error"},
		{"has none if `*Call.DryRun`", "", "a duty of the step"},
		{"with a code of 500 or more", chains, "in EiriniX's form"},
		{"a step runs again when a later one", chains, "runs a step again that a later one has given something to do, once"},
		{"can be the last one of a call that is registered with `Fail`", chains, "but not where another version has a step in the call that may not"},
		{"The object is decoded once", chains, "is one operation, however many steps made it"},
		{"Beyond 30 s, there are several calls", grouping, "is followed by another one where it has no time for a step"},
		{"| a call |", grouping, "5 s for all that name none, together"},
		{"mutating steps with Ignore", "internal/webhookconf/check_test.go", "to 30 s together"},
		{"While 100 of its runs hang", "internal/admit/deadline_test.go", "is begun no more when many of its runs still hang, and counted"},
		{"While 100 of its runs hang", "internal/chain/late_test.go", "TestTheMemoryOfARunThatIsLeftBehindNoLongerDelaysCalls"},
		{"| a request |", malformed, "too large, by its own word"},
		{"can arrive as 12 MB", "", "a fact about the API server, and the reason for the bound"},
		{"| requests at work |", "internal/admit/served_test.go", "lets so many work and so many wait, and sends the rest away to come back in a second"},
		{"Others get 503", "internal/admit/served_test.go", "lets so many work and so many wait, and sends the rest away to come back in a second"},
		{"slower than 4 MiB/s", "internal/admit/request_test.go", "makes room for others when it arrives slowly"},
		{"| memory for one object |", "internal/decode/decode_test.go", "is bounded: beyond that nothing more is made of"},
		{"share 64 MiB", budget, "TestMemoryIsSharedByTheObjectsThatAreLarge"},
		{"| the rest of a review |", malformed, "is refused for the size of its other members"},
		{"| an answer |", malformed, "bounds the time to read and to answer"},
		{"| a header, connections |", "internal/serving/connections_test.go", "64 KiB are not"},
		{"These bounds keep a program within the memory limit", "bench/section_hostile.go", "memory"},
	},
	"preview-and-audit.md": {
		{"`log.Fatal` then exits with 1", "preview/preview_test.go", "ends with an error where an object would be denied, and names the step"},
		{"With `-o json` one document holds `objects`", "preview/preview_test.go", "is JSON for programs"},
		{"by pages of 500 objects, at most ten in a second", "audit_ext_test.go", "lists pages of 500 objects, at most ten in a second"},
		{"at most 50 in a second on average", audits, "waits for the rate of the requests that steps send"},
		{"never values", "audit_ext_test.go", "reports denials and drift with the object, writes nothing and registers nothing"},
		{"answers to three users differ", audits, "runs a step once for each object, and for few of them as other users"},
		{"takes a minute is a gap", "internal/audit/play_test.go", "TestConversionsThatDoNotEnd"},
		{"There is one", "", "the list says for what"},
		{"are not listed within ten seconds", follow, "TestAStartWaitsForFailuresNotAtAllAndForSilenceTenSeconds"},
		{"at most 20 findings", exits, "lists at most 20 findings of a step and result, or all"},
		{"| 0 |", exits, "tells clean, violated and other ends apart by the exit code"},
		{"| 1 |", exits, "tells clean, violated and other ends apart by the exit code"},
		{"| 2 |", exits, "tells clean, violated and other ends apart by the exit code"},
		{"With `-o json` one document holds `findings`", exits, "writes JSON, also of an audit that did not finish"},
		{"`-o sarif` is a SARIF 2.1.0 log", exits, "writes SARIF for code scanning"},
	},
	"rollout-of-a-rule.md": {
		{"| log of the program |", "internal/admit/mode_test.go", "reports"},
		{"| metric `eirinix_admission_decisions_total` |", "internal/admit/mode_test.go", "would_deny"},
		{"at most ten, and never with values", "internal/admit/mode_test.go", "names ten paths at most"},
		{"Of each shadow one run is at work, and at most 200 wait", "internal/admit/mode_test.go", "runs only for a bounded number of requests that wait"},
		{"Of each shadow one run is at work, and at most 200 wait", "internal/admit/mode_test.go", "cost the others none of 2,000 counts if one of them hangs"},
		{"at most 32 MiB of objects", "internal/admit/mode_test.go", "leave room for the large objects of others"},
		{"and 2 s longer", "internal/modes/modes_test.go", "stay Shadow until API servers have observed the failurePolicy of the step"},
		{"If none fits", "internal/modes/modes_test.go", "are the program's own without an entry, and those of the first line that fits otherwise"},
		{"the last good one stays in force", "modes_ext_test.go", "change the mode without a rollout and without a write, but for Shadow"},
		{"the last good one stays in force", "internal/modes/modes_test.go", "are the program's own if the first entry is a bad one"},
		{"Each object draws one number", "internal/modes/modes_test.go", "is the same for all requests that carry the object"},
		{"warns for 40 %", "internal/modes/modes_test.go", "hold for a percentage of objects"},
		{"so the next one of a Deployment draws as the last", "internal/modes/modes_test.go", "the ReplicaSet of a pod, without its hash"},
	},
}
