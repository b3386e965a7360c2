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
	starts  = "reads_start_ext_test.go"
	readsOn = "reads_ext_test.go"
)

var promises = map[string][]promise{
	"reads.md": {
		{"share one watch", readsOn, "is watched once for all steps that declare the same, in every form"},
		{"All steps of a call see one state", readsOn, "sees one moment of them in all steps of a call"},
		{"Two declarations are two streams", "", "a limit, and no promise"},
		{"keep both values in one object", "", "advice"},
		{"is not registered before there is one", starts, "holds back a step that requires an object which is missing"},
		{"is not registered before there is one", follow, "TestARequiredObjectIsAState"},
		{"one line for each kind of reason", follow, "a reason is said once"},
		{"only reads", "", "a command"},
		{"In one run of", "", "the figures are in the next part"},
		{"Two requests at the same time", "examples/unique_host_test.go", "admits both of two requests at the same time if the step only looks"},
		{"To admit only one", "", "advice"},
		{"Only one creation succeeds", "examples/unique_host_test.go", "admits one of them if it reserves"},
		{"one minute unless given", "reads_test.go", `Entry("of a minute"`},
		{"one minute unless given", follow, "TestNothingOlderThanMaxStaleIsServed"},
		{"Less than a minute is refused", "reads_test.go", `Entry("with an age that cannot be kept"`},
		{"within 45 s, and over HTTP/1.1", follow, "TestNothingOlderThanMaxStaleIsServed"},
		{"within 45 s, and over HTTP/1.1", starts, "is watched for a short time over HTTP/1.1"},
		{"within 45 s, and over HTTP/1.1", readsOn, "notices a connection that has died without a word"},
		{"waits up to a second for it", follow, "TestCallsShareOneAttempt"},
		{"got no answer for a second", follow, "TestABrokenReadCostsACallNothing"},
		{"at most ten seconds", follow, "TestAStartWaitsForFailuresNotAtAllAndForSilenceTenSeconds"},
		{"The log says why within two seconds", follow, "TestFailuresBeforeTheFirstListAreSaidWithinTwoSecondsAndTriedAgainWithinFive"},
		{"The log says why within two seconds", starts, "holds back its own steps, says why, and is ready with all others"},
		{"follow within five seconds of the right", follow, "TestFailuresBeforeTheFirstListAreSaidWithinTwoSecondsAndTriedAgainWithinFive"},
		{"follow within five seconds of the right", follow, "TestARequiredObjectIsAState"},
		{"15,000 Secrets of 4 KB", "bench/section_reads.go", "MiB of heap above idle"},
		{"A lookup among 100,000 Ingresses", "internal/reads/bench_test.go", "takes no memory but that of its result"},
		{"for the first two minutes", "examples/unique_host_test.go", "are taken over when they are old"},
		{"for these two minutes", "examples/unique_host_test.go", "are taken over when they are old"},
		{"differ by a minute", "", "a limit, and no promise"},
	},	"calls.md": {},
	"audit.md": {},
	"rollout-of-a-rule.md": {},
	"modes.md": {},
}
