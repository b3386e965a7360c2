package admit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// A Chain is what one webhook entry calls: steps that run in order on the same object, each seeing what the
// ones before made of it, with one decode and one patch for all.
type Chain struct {
	Steps      []Step
	Validating bool // every step runs, and their denials are joined; else the first denial ends the chain
	Reinvoke   bool // reinvocationPolicy IfNeeded: a step runs once more if a later one changed the object
}

// chain is a Chain at work. It is shared by all calls.
type chain struct {
	Chain
	name        string
	sayNothings []sync.Once // by step: the zero Response is worth one line in the log, not one a request
	metrics     *webhookMetrics
	stepMetrics []*stepMetrics // by step
}

// call is one request on its way through a chain. It belongs to one goroutine.
type call struct {
	*chain
	ctx      context.Context
	log      logr.Logger
	request  *admissionv1.AdmissionRequest
	wants    []bool // by step
	object   object
	warnings []string
	audit    map[string]string
}

// stepError says which step failed.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return fmt.Sprintf("extension %q failed: %v", e.step, e.err) }
func (e *stepError) Unwrap() error { return e.err }

// run takes a request through the chain, and counts the operations of the patch in the response. An error is a failure, which failurePolicy decides on; it names the
// step. A denial is a response.
func (c *chain) run(ctx context.Context, log logr.Logger, req *admissionv1.AdmissionRequest, wants []bool) (*admissionv1.AdmissionResponse, int, error) {
	k := &call{chain: c, ctx: ctx, log: log, request: req, wants: wants, object: object{raw: req.Object.Raw}}
	denials, err := k.steps() //nolint:contextcheck // a call carries its context
	if err != nil {
		return nil, 0, err
	}
	resp := &admissionv1.AdmissionResponse{Allowed: len(denials) == 0, Warnings: k.warnings, AuditAnnotations: k.audit}
	if !resp.Allowed {
		resp.Result = &joinDenials(denials).status
		return resp, 0, nil
	}
	if resp.Patch, err = k.object.patch(); err != nil {
		return nil, 0, &stepError{step: c.name, err: err}
	}
	if resp.Patch != nil {
		resp.PatchType = new(admissionv1.PatchTypeJSONPatch)
	}
	return resp, k.object.operations, nil
}

// wants tells which steps want a request, by their own rules and selectors, before anything is decoded.
func (c *chain) wants(req *admissionv1.AdmissionRequest) (wants []bool, some bool) {
	wants = make([]bool, len(c.Steps))
	for i := range c.Steps {
		if wants[i] = c.Steps[i].Matcher.matches(req); wants[i] {
			some = true
		} else {
			c.stepMetrics[i].decided(req.Operation, decisionSkipped, 0)
		}
	}
	return wants, some
}

// stepDenial is a denial with the step that it came from.
type stepDenial struct {
	step string
	*denial
}

// steps runs every step that wants the request. Denials are a verdict; an error is the failure of a step whose
// failurePolicy is Fail.
func (k *call) steps() (denials []stepDenial, err error) {
	rounds := 1
	if k.Reinvoke {
		rounds = 2 // as many as the API server has
	}
	seen := make([][]byte, len(k.Steps)) // the object as each step left it, where steps may run again
	for round := range rounds {
		for i := range k.Steps {
			s := &k.Steps[i]
			if !k.wants[i] || round > 0 && bytes.Equal(seen[i], k.object.raw) {
				continue
			}
			d, stepErr := k.step(i)
			if stepErr == nil && k.Reinvoke {
				stepErr = k.object.flush()
				seen[i] = k.object.raw
			}
			switch {
			case d != nil:
				denials = append(denials, stepDenial{s.Name, d})
			case stepErr != nil && err == nil:
				err = &stepError{step: s.Name, err: stepErr}
			}
			if !k.Validating && (len(denials) > 0 || err != nil) {
				return denials, err
			}
		}
	}
	if len(denials) > 0 {
		return denials, nil // a refusal is definite, whatever else failed
	}
	return nil, err
}

// step runs one step. A failure that its failurePolicy ignores is undone, logged and counted here.
func (k *call) step(i int) (*denial, error) {
	s := &k.Steps[i]
	began := time.Now()
	var undo snapshot
	if s.Ignore {
		undo = k.object.snapshot()
	}
	patches := len(k.object.patches)
	x := &Exchange{Request: admission.Request{AdmissionRequest: *k.request}}
	err := k.perform(i, x)
	took := time.Since(began)
	decided := func(d decision) { k.stepMetrics[i].decided(k.request.Operation, d, took) }
	if err == nil {
		k.take(s, x)
		if len(k.object.patches) > patches {
			decided(decisionPatched) // only a step that makes its own patch is known to have
		} else {
			decided(decisionAllowed)
		}
		return nil, nil
	}
	if d, ok := asDenial(s.Name, err); ok {
		k.take(s, x)
		decided(decisionDenied)
		return d, nil
	}
	if s.Ignore {
		k.object.restore(undo)
		decided(decisionIgnored)
		k.log.Error(err, "extension failed; its failurePolicy is Ignore, so what it did is undone", "step", s.Name, "took", took.String())
		return nil, nil
	}
	decided(decisionFailed)
	return nil, err
}

// perform gives the step what it asks for.
func (k *call) perform(i int, x *Exchange) error {
	s := &k.Steps[i]
	switch {
	case s.Handle != nil:
		return k.handle(i, x)
	case s.Mutate != nil:
		if absent(k.object.raw) {
			return fmt.Errorf("%s carries no object to change", k.request.Operation)
		}
		obj, err := k.object.edit(s.New)
		if err != nil {
			return err
		}
		return k.attempt(i, func(ctx context.Context) error { return s.Mutate(ctx, x, obj) })
	}
	newObj, err := k.look(s, k.object.raw)
	if err != nil {
		return err
	}
	oldObj, err := decodeIfPresent(k.request.OldObject.Raw, s.New)
	if err != nil {
		return err
	}
	return k.attempt(i, func(ctx context.Context) error { return s.Check(ctx, x, oldObj, newObj) })
}

func (k *call) look(s *Step, raw []byte) (runtime.Object, error) {
	if absent(raw) {
		return nil, nil
	}
	return k.object.view(s.New)
}

func decodeIfPresent(raw []byte, newObject func() runtime.Object) (runtime.Object, error) {
	if absent(raw) {
		return nil, nil
	}
	return decode(raw, newObject())
}

// attempt runs f within the step's deadline. A step that ignores its context is left behind: the API server
// hears in time what happened, and what the step has in its hands is used no more.
func (k *call) attempt(i int, f func(context.Context) error) error {
	s, ctx := &k.Steps[i], k.ctx
	if end, ok := ctx.Deadline(); s.Timeout > 0 && (!ok || time.Until(end) > s.Timeout) {
		limited, cancel := context.WithTimeout(ctx, s.Timeout)
		defer cancel()
		ctx = limited
	}
	done := make(chan error, 1)
	go func() {
		// What stands when the step neither returns nor panics: runtime.Goexit, which t.FailNow calls too.
		err := errors.New("it ended its goroutine without an answer")
		defer func() {
			if r := recover(); r != nil {
				k.log.Info("extension panicked", "step", s.Name, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
				k.stepMetrics[i].panicked()
				err = fmt.Errorf("panic: %v", r)
			}
			done <- err
		}()
		err = f(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no answer before the deadline (timeoutSeconds of the webhook): %w", context.Cause(ctx))
	}
}

// take adds what a step said beside its verdict. A key that another step has used gets the step's name.
func (k *call) take(s *Step, x *Exchange) {
	warnings, audit := x.said()
	k.warnings = append(k.warnings, warnings...)
	for key, value := range audit {
		if k.audit == nil {
			k.audit = map[string]string{}
		}
		if _, taken := k.audit[key]; taken {
			key = s.Name + "." + key
		}
		k.audit[key] = value
	}
}

// joinDenials makes one verdict of several, with the code and reason of the first.
func joinDenials(all []stepDenial) *denial {
	if len(all) == 1 {
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
