// Package chain runs the steps of a webhook entry on one request. It knows no HTTP: a server, an audit and a replay use it
// alike. New makes a Chain of a Config, Chain.Select returns the steps that want a request, and Runner.Run runs them within
// the deadline of a context. Shadows run after the answer.
package chain

// This file defines chains of steps, and selects the steps of a chain that want a request.

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"

	"code.cloudfoundry.org/eirinix/internal/hang"
	"code.cloudfoundry.org/eirinix/internal/lograte"
	"code.cloudfoundry.org/eirinix/internal/settled"
)

// A Config declares the steps that one webhook entry calls. They run in order on the same object, and each sees the
// changes of the steps before it. One decode and one patch serve all of them.
type Config struct {
	Steps      []Step
	Validating bool // every step runs, and their denials are joined; else the first denial ends the chain
	Reinvoke   bool // reinvocationPolicy IfNeeded: a step runs once more if a later one changed the object
	Partial    bool // other versions have further steps in the entry, so its failurePolicy can be Fail
}

// A Chain is a Config that is ready to run. All calls share it, and it is safe for concurrent use. New makes it.
type Chain struct {
	Webhook string // the entry's name
	Name    string // of the only step, or else of the webhook

	validating, reinvoke bool // see Config
	allIgnore            bool // the failurePolicy of every step is Ignore, whatever its mode, and so is that of the webhook
	answered             bool // its requests have been answered
	steps                []*step
	metrics              *webhookMetrics
	denials, failures    lograte.Sampler
}

// step is a Step that is ready to run.
type step struct {
	Step
	made        reflect.Type // the type that New makes; nil without New
	sameObjects int          // the first step with the same objectSelector, perhaps itself
	warned      *sync.Once   // the zero Response is logged once, not for every request
	metrics     *stepMetrics
	left        *lasting
	shadow      *Chain // the step alone, if its mode can be ModeShadow
}

// lasting is what outlives the chain of a step: the runs that were left behind, and the shadows.
type lasting struct {
	hang.Runs
	shadows shadowQueue
}

// New makes the chain of an entry in place of before, which can be nil. The runs of before that were left behind, and its
// shadows, count as those of the new chain.
func New(webhook string, config Config, metrics *Metrics, before *Chain) *Chain {
	c := &Chain{
		Webhook: webhook, Name: webhook, validating: config.Validating, reinvoke: config.Reinvoke, allIgnore: !config.Partial,
		metrics: metrics.webhook(webhook),
	}
	if len(config.Steps) == 1 {
		c.Name = config.Steps[0].Name
	}
	for i, given := range config.Steps {
		s := &step{
			Step: given, warned: new(sync.Once),
			sameObjects: slices.IndexFunc(config.Steps[:i+1], func(other Step) bool { return given.Matcher.hasSameObjects(other.Matcher) }),
			metrics:     metrics.step(webhook, given.Name),
		}
		if s.New != nil {
			s.made = reflect.TypeOf(s.New())
		}
		if timeout := cmp.Or(s.Timeout, s.Share); timeout > 0 { // a step with none has no series
			metrics.timeout.WithLabelValues(webhook, s.Name).Set(timeout.Seconds())
		}
		s.left = before.leftOf(s)
		if s.Mode == ModeShadow || s.Choose != nil {
			s.shadow = c.shadowOf(s)
		}
		c.steps, c.allIgnore = append(c.steps, s), c.allIgnore && s.Lenient
	}
	return c
}

// leftOf returns what is left of a step of the chain. It is new if the chain has no such step.
func (c *Chain) leftOf(s *step) *lasting {
	if c != nil {
		if i := slices.IndexFunc(c.steps, func(own *step) bool { return own.Name == s.Name }); i >= 0 {
			return c.steps[i].left
		}
	}
	return &lasting{Runs: hang.Runs{Gauge: s.metrics.left}}
}

// Selection holds, by step, whether the step's own rules and selectors match a request as it arrived.
type Selection []want

// want holds the results of a step's own rules and selectors for a request.
type want uint8

const (
	wantKind   want = 1 << iota // its rules and its namespaceSelector match
	wantObject                  // its objectSelector matches the object as it arrived
	looked                      // the objectSelector has been evaluated, for this step and those with the same one
	selected                    // and it matches
	owned                       // its rules match, but it leaves the object alone
)

// Select returns the steps that want a request as it arrived, before anything is decoded, for Runner.Run. some reports
// whether there is such a step. If not, no step can want the request later, because none changes the object, and all
// count as skipped. Select calls readUser, which sets the user of the request, if a step's selection depends on it.
func (c *Chain) Select(req *admissionv1.AdmissionRequest, readUser func()) (wants Selection, some bool) {
	wants = make(Selection, len(c.steps))
	var asked *Matcher // the last one that leaves something alone: most have the same policy
	left := false
	leaveOut, known := false, false
	for i, s := range c.steps {
		m := s.Matcher
		if !m.matchesKind(req) {
			continue
		}
		if !s.EveryUpdate && !known {
			leaveOut, known = settled.Is(req), true
		}
		if !s.EveryUpdate && leaveOut {
			continue
		}
		if m != nil && m.leavesMade && (asked == nil || asked.leavesOwned != m.leavesOwned) {
			asked, left = m, m.leaves(req, readUser)
		}
		if left && m != nil && m.leavesMade {
			wants[i] |= owned
			continue
		}
		wants[i] |= wantKind
		same := s.sameObjects
		if wants[same]&looked == 0 {
			wants[same] |= looked
			if m.matchesObjects(req.Object.Raw, req.OldObject.Raw) {
				wants[same] |= selected
			}
		}
		if wants[same]&selected != 0 {
			wants[i] |= wantObject
			some = true
		}
	}
	if !some {
		for i := range c.steps {
			c.skipped(i, req, wants[i])
		}
	}
	return wants, some
}

// skipped counts that a step did not want a request.
func (c *Chain) skipped(i int, req *admissionv1.AdmissionRequest, w want) {
	d := decisionSkipped
	if w&owned != 0 {
		d = decisionOwned
	}
	c.steps[i].metrics.decided(req, d, 0, nil)
}

// joinDenials joins several verdicts into one, with the code and reason of the first. The API server names only the
// webhook, so if steps share one, the message names the step.
func (c *Chain) joinDenials(all []*denial) *denial {
	if len(c.steps) == 1 {
		return all[0]
	}
	return join(all, func(d *denial) string { return d.step + ": " + d.status.Message })
}

func join(all []*denial, message func(*denial) string) *denial {
	joined := &denial{status: *all[0].status.DeepCopy()}
	messages := make([]string, 0, len(all))
	for i, d := range all {
		messages = append(messages, message(d))
		if i > 0 && d.status.Details != nil {
			if joined.status.Details == nil {
				joined.status.Details = d.status.Details.DeepCopy()
				continue
			}
			joined.status.Details.Causes = append(joined.status.Details.Causes, d.status.Details.Causes...)
		}
	}
	joined.status.Message = strings.Join(messages, "; ")
	return joined
}
