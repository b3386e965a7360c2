package diagnose

// This file diagnoses a program that has just started: it repeats the diagnosis until all is well, and logs.

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

const (
	// watchSettle is how long the first canary waits for an API server that has not observed the registration.
	watchSettle = time.Second

	// watchFor is how long Watch runs.
	watchFor = 10 * time.Minute
)

// milestones are the times at which a fault that may be a delay is logged, counted from the check that found it first. At the
// last one it is logged as an error. The checks after the start are due at the same times.
var milestones = []time.Duration{10 * time.Second, 30 * time.Second, time.Minute}

// Watch makes the API server call this program, and logs the outcome. If all is well, it logs one line and returns.
// Otherwise it checks again after 10, 30 and 60 s, then every minute, and gives up after ten minutes. It also returns
// when ctx ends.
//
// A problem that waiting cannot solve is logged as an error at once: within two seconds, if the API server answers. A
// problem that may be a delay (see propagates) is logged when it is 10 s old, and again at 30 and 60 s, the last time as an
// error. Nothing else is logged twice unless it has changed.
//
// Watch makes the same checks as Run, but does not report Versions, Waiting, Modes, Reads and Others. Each
// check has a configuration of its own, because the steps can change.
func Watch(ctx context.Context, config func() Config, log logr.Logger) {
	watch(ctx, config, log, func(ctx context.Context, d *diagnostic) {
		if d.look(ctx); !d.blind && d.Sends != nil {
			d.Sends()
		}
	})
}

// propagates reports whether a problem may pass by itself, because a change has not reached every part of the cluster
// yet. A Service has no endpoints before the kubelet has observed that its pods are ready. Its address refuses
// connections before every node knows them. A problem with an unknown cause counts too.
func (d *diagnostic) propagates(c diagnosis.Code) bool {
	switch c {
	case diagnosis.NotRegistered, diagnosis.WrongTarget:
		return d.Registers
	case diagnosis.APIServerUnreachable, diagnosis.NotCalled, diagnosis.NoReadyEndpoints, diagnosis.TimedOut,
		diagnosis.NoTunnel, diagnosis.BadAnswer, diagnosis.Shadowed,
		diagnosis.UnknownAuthority, diagnosis.BundleEmpty, diagnosis.BundleUnreadable, diagnosis.Unexplained:
		return true
	case diagnosis.ConnectionRefused, diagnosis.ConnectionBroken, diagnosis.NoRoute:
		return d.serviceMode() && !d.backend.external()
	}
	return false
}

// watcher remembers which findings it has logged.
type watcher struct {
	log   logr.Logger
	began time.Time
	looks time.Time           // when the current check began
	said  map[saying]standing // the findings of the last check
	wrong bool                // a problem has been logged
}

// saying identifies a finding without its evidence, which contains another port or name every time.
type saying struct {
	code            diagnosis.Code
	object, message string
}

// standing is a finding that is there since the beginning of a check. The field logged counts its milestones at which it was
// logged; one that waiting cannot mend has one more.
type standing struct {
	since  time.Time
	logged int
}

// watch calls look with a new diagnostic until all is well.
func watch(ctx context.Context, config func() Config, log logr.Logger, look func(context.Context, *diagnostic)) {
	w := &watcher{log: log, began: time.Now(), said: map[saying]standing{}}
	for {
		w.looks = time.Now()
		c := config()
		c.Settle = watchSettle
		d := newDiagnostic(c)
		d.slow = func() { w.say(d, sorted(slices.Clone(d.findings)), false) }
		look(ctx, d)
		if ctx.Err() != nil {
			return
		}
		w.say(d, d.report(), true)
		next, again := nextLook(time.Since(w.began))
		if !again || !hasProblem(d.findings) && (d.through || d.blind) {
			w.end(d)
			return
		}
		if wait.Sleep(ctx, time.Until(w.began.Add(next))) != nil {
			return
		}
	}
}

// nextLook returns the time of the next check. Like elapsed, it is counted from the start.
func nextLook(elapsed time.Duration) (next time.Duration, again bool) {
	if n := passed(elapsed); n < len(milestones) {
		return milestones[n], true
	}
	next = elapsed.Truncate(time.Minute) + time.Minute
	return next, next <= watchFor
}

// passed returns the number of milestones that have passed.
func passed(elapsed time.Duration) (n int) {
	for n < len(milestones) && elapsed >= milestones[n] {
		n++
	}
	return n
}

// say logs the problems and warnings that are new or due again. With complete set, the report holds all findings of one
// check. A finding that was logged before and is not among them is then forgotten, so that it is logged again when it
// returns.
func (w *watcher) say(d *diagnostic, r diagnosis.Report, complete bool) {
	stands := map[saying]standing{}
	for _, f := range r.Findings {
		if f.Severity == diagnosis.Note || f.Code == diagnosis.CheckSkipped {
			continue
		}
		key := saying{f.Code, f.Object, f.Message}
		was, before := w.said[key]
		if !before {
			was.since = w.looks
		}
		due, passing := passed(time.Since(was.since)), f.Severity == diagnosis.Problem && d.propagates(f.Code)
		if !passing {
			due = len(milestones) + 1
		}
		stands[key] = standing{was.since, max(due, was.logged)}
		if due <= was.logged {
			continue
		}
		if passing {
			f.Message = "not called yet: " + f.Message + "; checking again"
		}
		if due < len(milestones) {
			w.log.Info(f.Message, f.KeysAndValues()...)
		} else {
			diagnosis.Report{Findings: []diagnosis.Finding{f}}.Log(w.log)
		}
		w.wrong = w.wrong || hasProblem([]diagnosis.Finding{f})
	}
	if !complete {
		maps.Copy(w.said, stands)
		stands = w.said
	}
	w.said = stands
}

// end logs the outcome of the watch.
func (w *watcher) end(d *diagnostic) {
	after := time.Since(w.began).Round(time.Second).String()
	switch {
	case hasProblem(d.findings):
		w.log.Error(nil, "the path from the API server to this program is still broken; this was the last check",
			"after", after, "remedy", "repair the problems that were logged before, and call Diagnose")
	case !d.through:
		w.log.Info("it is not known whether the API server calls this program",
			"reason", cmp.Or(d.inconclusive, "the canary did not get as far as this program"))
	case w.wrong:
		w.log.Info("the API server calls this program now", "after", after)
	default:
		w.log.Info("the API server calls this program")
	}
}
