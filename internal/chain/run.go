package chain

// This file runs the steps of a chain on one request, and combines their results.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"code.cloudfoundry.org/eirinix/internal/hang"
	"code.cloudfoundry.org/eirinix/internal/list"
)

// A Runner runs chains. Set its fields before use; it is then safe for concurrent use.
type Runner struct {
	Log     logr.Logger  // the zero Logger discards
	Tracer  trace.Tracer // nil traces nothing
	Objects *Budget      // of the objects of all runs
}

// run is one request's pass through a chain. The fields above mu belong to the goroutine that runs the steps, even
// after the deadline, when nothing waits for it.
type run struct {
	*Chain
	ctx       context.Context
	log       logr.Logger
	request   *admissionv1.AdmissionRequest
	wants     Selection // by step
	calls     []Call    // of one round, by step
	ran       []bool    // by step; nil if no step can run again
	seen      [][]byte  // the object as each step left it; nil like ran
	object    object
	old       object // the old object, which no step changes
	undecided []undecided
	shared    shared
	attempts  int      // number of runs of steps
	ignored   []error  // the failures of runs that failurePolicy ignores, as stepErrors
	feedback  feedback // of the answer
	budget    *Budget
	turn      sync.Locker       // held but while a step runs; nil if the calls do not take turns
	tracer    trace.Tracer      // nil traces nothing
	spans     []stepSpan        // by step; nil without a tracer
	exemplar  prometheus.Labels // for the metrics; nil if the call is not sampled

	progress

	out Outcome // of Do
}

// An Outcome is the result of a run: a response, which can be a denial, or a failure. A failure names the step, and
// failurePolicy decides on it. If an object would take too much memory, it wraps decode.ErrTooLarge.
type Outcome struct {
	Response   *admissionv1.AdmissionResponse // without the UID; nil after a failure
	Err        error
	Shadows    []Shadow // the runs for after the answer
	operations int      // number in the response's patch
	deniedBy   string   // the steps that denied
}

// undecided is a finished run of a step on a view that other steps share. Whether they changed the object is known only
// when the patch is made. All of them count as having changed it, or none does.
type undecided struct {
	step int
	took time.Duration
}

// Run runs the steps that want a request, and returns their outcome, or an error when ctx ends before. The objects of the
// request must not change afterwards, because a step that ignores its deadline can still read them.
func (x *Runner) Run(ctx context.Context, c *Chain, req *admissionv1.AdmissionRequest, wants Selection) Outcome {
	r := x.newRun(ctx, c, req, wants)
	o := r.wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.postponed) > 0 {
		o.Shadows = c.shadowsOf(ctx, req, o.Response, r.postponed)
	}
	return o
}

// newRun returns the run of a chain on a request, for the steps that want it.
func (x *Runner) newRun(ctx context.Context, c *Chain, req *admissionv1.AdmissionRequest, wants Selection) *run {
	log, b := c.logger(x.Logger(ctx), req), x.Objects
	ctx = logf.IntoContext(ctx, log)
	r := &run{
		Chain: c, ctx: ctx, log: log, request: req, wants: wants, budget: b, tracer: x.Tracer, exemplar: x.exemplar(ctx),
		progress: progress{at: between, late: between},
		object:   object{raw: req.Object.Raw, memory: b.objects.share(ctx)},
		old:      object{raw: req.OldObject.Raw, memory: b.oldObjects.share(ctx)},
	}
	if !c.validating {
		r.object.memory.record = &r.object.memory.index
	}
	if x.Tracer != nil {
		r.spans = make([]stepSpan, len(c.steps))
	}
	return r
}

// outcome runs the steps and combines their results.
func (r *run) outcome() Outcome {
	defer r.decide(result{decision: decisionAllowed}) // unless they have been decided
	denials, err := r.runSteps()
	if err != nil || r.abandoned.Load() {
		return Outcome{Err: err}
	}
	if r.allIgnore && r.attempts > 0 && r.attempts == len(r.ignored) {
		// Every step that ran has failed, so an error as the answer loses nothing. The audit log and the metrics of the
		// API server then show the requests that were admitted without this webhook.
		return Outcome{Err: r.ignored[0]}
	}
	resp := &admissionv1.AdmissionResponse{Allowed: len(denials) == 0, Warnings: r.feedback.warnings, AuditAnnotations: r.feedback.audit}
	if !resp.Allowed {
		resp.Result = &r.joinDenials(denials).status
		by := strings.Join(list.Of(denials, func(d *denial) string { return d.step }), ", ")
		return Outcome{Response: resp, deniedBy: by}
	}
	if err = r.flush(); err != nil {
		return Outcome{Err: err}
	}
	if resp.Patch = r.object.patch(); resp.Patch != nil {
		resp.PatchType = new(admissionv1.PatchTypeJSONPatch)
	}
	return Outcome{Response: resp, operations: r.object.operations}
}

// runSteps runs every step that wants the request. Denials are a verdict. An error is the failure of a step whose
// failurePolicy is Fail.
func (r *run) runSteps() (denials []*denial, err error) {
	rounds := 1
	if r.reinvoke {
		rounds = 2 // as many as the API server runs
		r.ran, r.seen = make([]bool, len(r.steps)), make([][]byte, len(r.steps))
	}
	for round := range rounds {
		r.calls = make([]Call, len(r.steps)) // drops the warnings and annotations of undone runs
		for i := range r.steps {
			mode, chooseErr := r.mode(i)
			if mode == ModeShadow && !r.answered {
				r.postpone(i, round)
				continue
			}
			if !r.due(i, round) {
				continue
			}
			d, stepErr := r.step(i, mode, chooseErr)
			if stepErr == nil && r.reinvoke {
				r.ran[i] = true
				r.seen[i], stepErr = r.object.json()
			}
			switch {
			case d != nil:
				denials = append(denials, d)
			case stepErr != nil && err == nil:
				err = stepErr
			case stepErr != nil:
				r.logFailure(r.log, stepErr, "step failed; the response reports the failure of an earlier one")
			}
			if !r.validating && (len(denials) > 0 || err != nil) || r.abandoned.Load() {
				return denials, err
			}
		}
	}
	if len(denials) > 0 { // a denial is final, even if other steps failed
		if err != nil {
			r.logFailure(r.log, err, "step failed; the response is the denial of another one")
		}
		return denials, nil
	}
	return nil, err
}

// mode returns the mode of a step for the request. A step that cannot be due has its own.
func (r *run) mode(i int) (Mode, error) {
	s := r.steps[i]
	if s.Choose == nil {
		return s.Mode, nil
	} else if !r.canBeDue(i) {
		return ModeDeny, nil
	}
	return s.Choose(r.ctx, r.request)
}

// canBeDue reports whether a step wants the request as it arrived, or could want the object as it is now.
func (r *run) canBeDue(i int) bool {
	return r.wants[i]&wantKind != 0 && (r.wants[i]&wantObject != 0 || r.object.touched())
}

// postpone keeps a step for after the answer. Its objectSelector is evaluated then. Nothing is written or decoded for it
// during the call.
func (r *run) postpone(i, round int) {
	if round > 0 {
		return
	} else if !r.canBeDue(i) {
		r.skipped(i, r.request, r.wants[i])
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.postponed = append(r.postponed, i)
}

// due reports whether a step runs now: whether it wants the object as the steps before have left it. In the second
// round, the object must also have changed since the step's first run. As in the API server, a step that did not want
// the object in the first round does not run in the second.
func (r *run) due(i, round int) bool {
	wanted := r.wants[i]&(wantKind|wantObject) == wantKind|wantObject
	if r.wants[i]&wantKind != 0 && r.object.touched() {
		wanted = r.wantsNow(r.steps[i].Matcher)
	}
	if round > 0 {
		raw, err := r.object.json()
		return wanted && r.ran[i] && (err != nil || !bytes.Equal(r.seen[i], raw))
	}
	if !wanted {
		r.skipped(i, r.request, r.wants[i])
	}
	return wanted
}

// wantsNow evaluates an objectSelector on the object as the steps have changed it.
func (r *run) wantsNow(m *Matcher) bool {
	if !m.hasObjects() {
		return true
	}
	if object, err := meta.Accessor(r.object.current); err == nil {
		return m.selectsLabels(object.GetLabels()) || m.selects(r.request.OldObject.Raw)
	}
	raw, err := r.object.json()
	return err != nil || m.matchesObjects(raw, r.request.OldObject.Raw)
}

// step runs one step in a mode. A failure that its failurePolicy ignores is undone, logged and counted here. Any other
// failure is returned with the name of the step.
func (r *run) step(i int, mode Mode, chooseErr error) (*denial, error) {
	if chooseErr != nil {
		return nil, r.failed(i, result{err: chooseErr})
	}
	s, call, watches := r.steps[i], &r.calls[i], mode != ModeDeny
	undoable := s.Ignore || watches
	// A step that may have to be undone starts on an object without pending changes. One that needs another view than the
	// steps before it needs the JSON.
	if undoable || !s.Mutates || !r.object.isOf(s.made) {
		if err := r.flush(); err != nil {
			return nil, err
		}
	}
	undo := r.object
	err, ended := r.try(i, call)
	if !ended {
		if err != nil {
			err = failureOf(err, s.Name)
		}
		return nil, err
	}
	if err == nil && undoable {
		err = hang.Recovered(r.object.flush) // a change that cannot be written is the step's own failure
	}
	made := slices.Clip(r.object.patches[len(undo.patches):])
	if watches || err != nil && s.Ignore {
		r.object = r.object.restored(undo)
	}
	of := result{took: time.Since(r.began), mode: mode}
	d, denied := asDenial(s.Name, r.request, err)
	switch {
	case err != nil && !denied:
		of.err = err
		return nil, r.failed(i, of)
	case watches:
		r.watched(i, of, d, made)
		return nil, nil
	}
	r.feedback.add(s.Name, call)
	switch {
	case denied:
		d.step, of.decision, of.reason = s.Name, decisionDenied, d.status.Message
	case s.Mutates && !undoable:
		r.undecided = append(r.undecided, undecided{i, of.took})
		if r.reinvoke || r.object.isOdd() {
			return nil, r.flush()
		}
		return nil, nil
	case len(made) > 0:
		of.decision = decisionPatched
	}
	r.decided(i, of)
	return d, nil
}

// try runs a step. It returns false if the step was left behind.
func (r *run) try(i int, call *Call) (err error, ended bool) {
	r.attempts++
	r.began = time.Now()
	call.Request, call.shared = r.request, &r.shared
	if err = r.steps[i].left.Full(&r.budget.LeftBehind); err == nil {
		err = hang.Recovered(func() error { return r.perform(i, call) }) // also a panic in the methods of the step's type
	}
	return err, r.end()
}

// perform gives a step its object, runs it, and applies its result.
func (r *run) perform(i int, call *Call) error {
	switch s := r.steps[i]; {
	case s.Handle != nil:
		return r.handle(i, call)
	case s.Mutates:
		return r.mutate(i, call)
	}
	return r.check(i, call)
}

// failed counts the failure of a step. It returns the failure with the name of the step, unless its failurePolicy
// ignores it: then it is logged.
func (r *run) failed(i int, of result) error {
	failure := failureOf(of.err, r.steps[i].Name)
	switch {
	case !r.steps[i].Ignore:
		of.decision = decisionFailed
	case !r.answered:
		of.decision = decisionIgnored
	case errors.Is(context.Cause(r.ctx), errStopped):
		of.decision = decisionDropped
	default:
		of.decision = decisionWouldFail
	}
	said := "step failed; its failurePolicy is Ignore, so its changes are undone"
	switch r.decided(i, of); of.decision {
	case decisionFailed:
		return failure
	case decisionDropped:
		return nil
	case decisionWouldFail:
		said = "step failed in Shadow, which has no effect"
	}
	r.ignored = append(r.ignored, failure)
	r.logFailure(r.log, failure, said, "took", of.took.String())
	return nil
}

// flush turns the changes of the undecided steps into a patch. If a change cannot be written, all of these steps have
// failed.
func (r *run) flush() error {
	before := len(r.object.patches)
	err := hang.Recovered(r.object.flush)
	if err == nil {
		d := decisionAllowed
		if len(r.object.patches) > before {
			d = decisionPatched
		}
		r.decide(result{decision: d})
		return nil
	}
	names := list.Of(r.undecided, func(u undecided) string { return r.steps[u.step].Name })
	r.decide(result{decision: decisionFailed, err: err})
	return failureOf(err, names...)
}

// decide counts the undecided steps.
func (r *run) decide(of result) {
	for _, u := range r.undecided {
		of.took = u.took
		r.decided(u.step, of)
	}
	r.undecided = r.undecided[:0]
}

// result is the decision on a run of a step, for the metrics and for the step's span.
type result struct {
	decision decision
	took     time.Duration
	mode     Mode   // of a step that watches
	reason   string // of a denial, or of one or a change that is only reported
	err      error  // of a failure
}

// decided counts and traces the result of a step.
func (r *run) decided(i int, of result) {
	r.endSpan(i, of)
	r.steps[i].metrics.decided(r.request, of.decision, of.took, r.exemplar)
}

// mutate runs a step that changes the object in place.
func (r *run) mutate(i int, call *Call) error {
	if absent(r.object.raw) {
		return fmt.Errorf("%s carries no object to change", r.request.Operation)
	}
	obj, err := r.object.edit(r.steps[i].made, r.steps[i].New)
	if err != nil {
		return r.misread(i, r.steps[i].New, err)
	}
	return r.attempt(i, task{run: r.steps[i].Run, call: call, newObj: obj})
}

// check runs a step that reads the objects.
func (r *run) check(i int, call *Call) error {
	s := r.steps[i]
	if s.Rule == nil {
		return r.compare(i, call)
	}
	var err error
	if s.Run != nil {
		err = r.compare(i, call)
	}
	if absent(r.object.raw) { // nothing to judge in a DELETE
		return err
	}
	return r.both(i, err, r.rule(i, call))
}

// compare runs a step that decides on both objects.
func (r *run) compare(i int, call *Call) error {
	newObj, err := r.ownObject(&r.object, i)
	if err != nil {
		return r.misread(i, r.steps[i].New, err)
	}
	oldObj, err := r.ownObject(&r.old, i)
	if err != nil {
		return err
	}
	return r.attempt(i, task{run: r.steps[i].Run, call: call, oldObj: oldObj, newObj: newObj})
}

// ownObject returns an object that only this step holds. The step can change it, even after the step has been left
// behind. The last step that asks for a type gets the decoded object, and the steps before it get copies.
func (r *run) ownObject(o *object, i int) (runtime.Object, error) {
	if absent(o.raw) {
		return nil, nil
	}
	obj, err := o.view(r.steps[i].made, r.steps[i].New)
	if err != nil {
		return nil, err
	}
	for later := i + 1; later < len(r.steps); later++ {
		if r.wants[later]&(wantKind|wantObject) == wantKind|wantObject && r.steps[later].made == r.steps[i].made {
			return obj.DeepCopyObject(), nil
		}
	}
	o.current = nil
	return obj, nil
}

// add adds the feedback of a step. If another step has used a key, the key is prefixed with the step's name.
func (f *feedback) add(step string, call *Call) {
	said := call.take()
	f.warnings = append(f.warnings, said.warnings...)
	for key, value := range said.audit {
		if f.audit == nil {
			f.audit = map[string]string{}
		}
		if _, taken := f.audit[key]; taken {
			key = step + "." + key
		}
		f.audit[key] = value
	}
}
