package chain

// This file defines chains of steps, and selects the steps of a chain that want a request.

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"

	"code.cloudfoundry.org/eirinix/internal/lograte"
)

// A Config declares the steps that one webhook entry calls. They run in order on the same object, and each sees the
// changes of the steps before it. One decode and one patch serve all of them.
type Config struct {
	Steps      []Step
	Validating bool // every step runs, and their denials are joined; else the first denial ends the chain
	Reinvoke   bool // reinvocationPolicy IfNeeded: a step runs once more if a later one changed the object
}

// A Chain is a Config that is ready to run. All calls share it, and it is safe for concurrent use. New makes it.
type Chain struct {
	Config
	Webhook string // the entry's name
	Name    string // of the only step, or else of the webhook

	allIgnore     bool                           // the failurePolicy of every step, and of the webhook, is Ignore
	strict        []bool                         // by step: an object that does not decode as it arrived is denied
	types         []reflect.Type                 // by step: the type that New makes; nil without New
	sameObjects   []int                          // by step: the first one with the same objectSelector, perhaps itself
	zeroResponses []sync.Once                    // by step: the zero Response is logged once, not for every request
	perform       []func(*run, int, *Call) error // by step
	metrics       *webhookMetrics
	stepMetrics   []*stepMetrics // by step
	left          []*lasting     // by step
	shadows       []*Chain       // by step: the step alone, if its mode can be ModeShadow
	answered      bool           // its requests have been answered
	denials       lograte.Sampler
}

// New makes the chain of an entry in place of before, which can be nil. The runs of before that were left behind, and its
// shadows, count as those of the new chain.
func New(webhook string, config Config, metrics *Metrics, before *Chain) *Chain {
	served := &Chain{
		Config: config, Webhook: webhook, Name: webhook,
		zeroResponses: make([]sync.Once, len(config.Steps)), metrics: metrics.webhook(webhook),
	}
	if len(config.Steps) == 1 {
		served.Name = config.Steps[0].Name
	}
	served.allIgnore = true
	for i, s := range config.Steps {
		served.sameObjects = append(served.sameObjects, slices.IndexFunc(config.Steps[:i+1], func(other Step) bool {
			return s.Matcher.hasSameObjects(other.Matcher)
		}))
		var made reflect.Type
		if s.New != nil {
			made = reflect.TypeOf(s.New())
		}
		served.strict, served.types = append(served.strict, !s.Ignore || s.Shadow), append(served.types, made)
		served.perform = append(served.perform, s.performer())
		served.stepMetrics = append(served.stepMetrics, served.metrics.step(s.Name))
		served.stepMetrics[i].within(cmp.Or(s.Timeout, s.Share))
		served.left = append(served.left, before.leftOf(s.Name, served.stepMetrics[i]))
		served.allIgnore = served.allIgnore && s.Ignore
	}
	for i, s := range config.Steps {
		var alone *Chain
		if s.Mode == ModeShadow || s.Choose != nil {
			alone = served.shadowOf(i)
		}
		served.shadows = append(served.shadows, alone)
	}
	return served
}

// leftOf returns the counter of a step's runs that were left behind. The counter is new if the chain has no such step.
func (c *Chain) leftOf(step string, metrics *stepMetrics) *lasting {
	if c != nil {
		if i := slices.IndexFunc(c.Steps, func(s Step) bool { return s.Name == step }); i >= 0 {
			return c.left[i]
		}
	}
	return &lasting{LeftBehind: LeftBehind{Gauge: metrics.left}}
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

// Select returns the steps that want a request as it arrived, before anything is decoded. some reports whether there is
// such a step. If not, no step can want the request later, because none changes the object, and its steps have been
// counted as skipped. Select calls readUser, which sets the user of the request, if a step's selection depends on it.
func (c *Chain) Select(req *admissionv1.AdmissionRequest, readUser func()) (wants Selection, some bool) {
	wants = make(Selection, len(c.Steps))
	var asked *Matcher // the last one that leaves something alone: most have the same policy
	left := false
	for i := range c.Steps {
		m := c.Steps[i].Matcher
		if !m.matchesKind(req) {
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
		same := c.sameObjects[i]
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
		for i := range c.Steps {
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
	c.stepMetrics[i].decided(req, d, 0, nil)
}

// joinDenials joins several verdicts into one, with the code and reason of the first. The API server names only the
// webhook, so if steps share one, the message names the step.
func (c *Chain) joinDenials(all []stepDenial) *denial {
	if len(c.Steps) == 1 {
		return all[0].denial
	}
	joined := &denial{status: *all[0].status.DeepCopy()}
	messages := make([]string, 0, len(all))
	for i, d := range all {
		messages = append(messages, d.step+": "+d.status.Message)
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
