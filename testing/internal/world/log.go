package world

// This file takes the logs of processes into the story, and looks at their errors.

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/types"
)

// mostRepeated is how often a process may log a line in a minute that is about no call.
const mostRepeated = 25

// relogs sees that a process does not log a line again and again.
func (w *World) relogs(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := rateOf(&w.watch.lines, text)
	if of.add(time.Now()); len(of.recent) > mostRepeated {
		w.breaks("a line is logged %d times in a minute: %s", len(of.recent), text)
	}
}

// fewRepairs is in a line about a tool that has reverted a configuration, up to five times, which may be chance.
var fewRepairs = regexp.MustCompile(`\b[0-5] times\b`)

// recorder takes the log of a process into the story.
type recorder struct {
	w      *World
	who    string
	fields []zapcore.Field
}

func (r *recorder) Enabled(l zapcore.Level) bool { return l >= zapcore.InfoLevel }

func (r *recorder) With(fields []zapcore.Field) zapcore.Core {
	return &recorder{r.w, r.who, append(slices.Clip(r.fields), fields...)}
}

func (r *recorder) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if r.Enabled(e.Level) {
		return c.AddCore(e, r)
	}
	return c
}

func (r *recorder) Write(e zapcore.Entry, fields []zapcore.Field) error {
	text := e.Message
	all := zapcore.NewMapObjectEncoder()
	for _, f := range append(slices.Clip(r.fields), fields...) {
		f.AddTo(all)
	}
	for _, key := range []string{"reason", "error", "code", "step", "version", "remedy", "missing"} {
		if value, ok := all.Fields[key]; ok {
			text += fmt.Sprintf(" (%s: %v)", key, value)
		}
	}
	if e.Level >= zapcore.WarnLevel {
		text = e.Level.CapitalString() + " " + text
	}
	r.w.note(line{who: r.who, text: text, minor: e.Level < zapcore.WarnLevel})
	if !strings.Contains(text, "(step: ") && !strings.Contains(text, "refused") && !strings.HasPrefix(text, "webhook of this version") {
		r.w.relogs(r.who + ": " + text)
	}
	if failed, _ := all.Fields["failed"].(int64); failed > 0 && e.Message == "recording ended" {
		r.w.mu.Lock()
		if !slices.ContainsFunc(r.w.story, func(l line) bool { return l.who == r.who && strings.Contains(l.text, "a call was not recorded") }) {
			r.w.breaks("%s has not recorded %d calls, and its log does not say why", r.who, failed)
		}
		r.w.mu.Unlock()
	}
	if remedy := "leave out webhooks"; strings.Contains(text, "another client keeps reverting") {
		if strings.Contains(fmt.Sprint(all.Fields["configuration"]), definitionName) {
			remedy = "leave out spec.conversion"
		}
		if !strings.Contains(text, remedy) {
			r.w.violate("%s logs no remedy (%s): %s", r.who, remedy, text)
		}
		if few := fewRepairs.FindString(text); few != "" {
			r.w.violate("%s tells of a contest after few repairs: %s", r.who, text)
		}
	}
	r.w.mu.Lock()
	if e.Message == toldOf {
		if r.w.watch.toldDenials == nil {
			r.w.watch.toldDenials = map[types.UID]bool{}
		}
		r.w.watch.toldDenials[types.UID(fmt.Sprint(all.Fields["uid"]))] = true
	}
	if e.Message == "the mode of a step has changed" {
		r.w.retells(r.who, fmt.Sprint(all.Fields["step"]), fmt.Sprint(all.Fields["mode"]))
	}
	r.w.imagines(r.who, text)
	r.w.isAlone(r.who, text)
	r.w.renewsSoon(r.who, e.Message)
	r.w.alike(r.who, text, all.Fields)
	r.w.mu.Unlock()
	if isSwapped(text) {
		r.w.mu.Lock()
		r.w.swaps(r.who)
		r.w.mu.Unlock()
	}
	if e.Level >= zapcore.ErrorLevel && all.Fields["step"] != ghost && all.Fields["step"] != lenient+"-sets" && !strings.HasPrefix(fmt.Sprint(all.Fields["step"]), boxed) && !strings.HasPrefix(fmt.Sprint(all.Fields["entry"]), boxed) &&
		!(all.Fields["step"] == ager && strings.Contains(text, "to its Settings.Reads")) { // they hang and fail
		r.w.mu.Lock()
		defer r.w.mu.Unlock()
		if !r.w.troubled() && !r.w.watch.killed[r.who] && !r.w.unlearned(text) && !(r.w.plan.blind() && time.Since(r.w.began) < settling) && !(e.Message == "a mode cannot be used" && time.Now().Before(r.w.watch.spells)) &&
			!(strings.Contains(text, "an object could not be converted") && time.Now().Before(r.w.watch.clings)) && !(strings.HasPrefix(e.Message, lostValues) && time.Now().Before(r.w.watch.overflows)) {
			r.w.breaks("%s logs an error although nothing is wrong: %s", r.who, text)
		}
	}
	return nil
}

func (*recorder) Sync() error { return nil }

// mostSilent is how long a state that needs a person may last before a log tells it.
const mostSilent = 2 * time.Minute

// saidSince reports whether these words were said after the last time that those were: what stays wrong is told once.
func (w *World) saidSince(those, words string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range slices.Backward(w.story) {
		if strings.Contains(l.text, words) || strings.Contains(l.text, those) {
			return strings.Contains(l.text, words)
		}
	}
	return false
}

// expects sees that a log tells of a state that lasts for d, in these words. Another fault may have ended it.
func (w *World) expects(d time.Duration, words string, still func() bool) {
	began := time.Now()
	if d <= mostSilent {
		return
	}
	w.tasks.Go(func() {
		if !w.wait(mostSilent) || !still() {
			return
		}
		w.alarmed(words, began, still)
		w.mu.Lock()
		defer w.mu.Unlock()
		looks := func(p *process) bool { return !p.leaving && time.Since(p.began) > mostSilent/2 }
		// The same is told once a minute.
		told := func(l line) bool { return !l.at.Before(began.Add(-time.Minute)) && strings.Contains(l.text, words) }
		if slices.ContainsFunc(w.processes, looks) && !slices.ContainsFunc(w.story, told) && !w.troubledSince(began, rough, slow, apart) {
			w.breaks("no log tells within %s: %s", mostSilent, words)
		}
	})
}

// unlearned reports whether an error is that of a replica without the third version of shops, which the definition serves.
func (w *World) unlearned(text string) bool {
	names := func(words string) bool { return strings.Contains(text, words) }
	return w.learns() && (names("serves or stores "+third) || names(group+"/"+third) || names("is still broken"))
}
