package admit

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// call is one request on its course through a chain. What stands above mu belongs to the goroutine that runs
// the steps, also when nobody waits for it any more.
type call struct {
	*chain
	ctx       context.Context
	log       logr.Logger
	request   *admissionv1.AdmissionRequest
	wants     []want     // by step
	exchanges []Exchange // by step
	ran       []bool     // by step; nil where no step can run again
	seen      [][]byte   // the object as each step left it; nil like ran
	object    object
	oldMemory *memory // what the old object takes
	unsettled []unsettled
	runs      int     // of steps
	ignored   []error // the failures among them that failurePolicy ignores, as stepErrors
	warnings  []string
	audit     map[string]string

	mu        sync.Mutex
	at        int         // the step that runs on this goroutine, or between
	leftAt    int         // the one that was left behind, or between
	abandoned atomic.Bool // set under mu by the one who waits: the deadline has passed
}

// outcome is what comes of a call: a response, or a failure, which names the step.
type outcome struct {
	response   *admissionv1.AdmissionResponse
	operations int // in the response's patch
	err        error
}

// stepError says which step failed.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return fmt.Sprintf("extension %q failed: %v", e.step, e.err) }
func (e *stepError) Unwrap() error { return e.err }

// stepDenial is a denial with the step that it came from.
type stepDenial struct {
	step string
	*denial
}

// unsettled is a step that did its work on an object which others work on too: whether that changed is known
// when the patch is made.
type unsettled struct {
	step, batch int
	took        time.Duration
}

// complete runs the steps and makes a response of what they did.
func (k *call) complete() outcome {
	defer k.settle()
	denials, err := k.steps()
	if err != nil || k.isAbandoned() {
		return outcome{err: err}
	}
	if k.allIgnore && k.runs > 0 && k.runs == len(k.ignored) {
		// Nothing came of the call, so that nothing is lost when the API server hears of it: its audit log and its
		// metrics then tell what was let in without us.
		return outcome{err: k.ignored[0]}
	}
	resp := &admissionv1.AdmissionResponse{Allowed: len(denials) == 0, Warnings: k.warnings, AuditAnnotations: k.audit}
	if !resp.Allowed {
		resp.Result = &k.joinDenials(denials).status
		return outcome{response: resp}
	}
	if resp.Patch, err = k.object.patch(); err != nil {
		return outcome{err: &stepError{step: k.name, err: err}}
	}
	if resp.Patch != nil {
		resp.PatchType = new(admissionv1.PatchTypeJSONPatch)
	}
	return outcome{response: resp, operations: k.object.operations}
}

// steps runs every step that wants the request. Denials are a verdict; an error is the failure of a step whose
// failurePolicy is Fail.
func (k *call) steps() (denials []stepDenial, err error) {
	rounds := 1
	k.exchanges = make([]Exchange, len(k.Steps))
	if k.Reinvoke {
		rounds = 2 // as many as the API server has
		k.ran, k.seen = make([]bool, len(k.Steps)), make([][]byte, len(k.Steps))
	}
	for round := range rounds {
		for i := range k.Steps {
			if !k.due(i, round) {
				continue
			}
			d, stepErr := k.step(i)
			if stepErr == nil && k.Reinvoke {
				stepErr = k.object.flush()
				k.ran[i], k.seen[i] = true, k.object.raw
			}
			switch {
			case d != nil:
				denials = append(denials, stepDenial{k.Steps[i].Name, d})
			case stepErr != nil && err == nil:
				err = &stepError{step: k.Steps[i].Name, err: stepErr}
			}
			if !k.Validating && (len(denials) > 0 || err != nil) || k.isAbandoned() {
				return denials, err
			}
		}
	}
	if len(denials) > 0 {
		return denials, nil // a refusal is definite, whatever else failed
	}
	return nil, err
}

// due tells whether a step's turn has come: when it wants the object as the steps before have left it, and in
// the second round, when the object has changed since. As in the API server, a step that did not want the
// object the first time is not asked again.
func (k *call) due(i, round int) bool {
	wanted := k.wants[i]&(wantKind|wantObject) == wantKind|wantObject
	if k.wants[i]&wantKind != 0 && k.object.touched() {
		wanted = k.wantsNow(k.Steps[i].Matcher)
	}
	if round > 0 {
		return wanted && k.ran[i] && !bytes.Equal(k.seen[i], k.object.raw)
	}
	if !wanted {
		k.stepMetrics[i].decided(k.request.Operation, decisionSkipped, 0)
	}
	return wanted
}

// wantsNow evaluates an objectSelector on what the steps have made of the object.
func (k *call) wantsNow(m *Matcher) bool {
	if !m.hasObjects() {
		return true
	}
	if view, ok := k.object.current.(metav1.Object); ok {
		return m.selectsLabels(view.GetLabels()) || m.selects(k.request.OldObject.Raw)
	}
	return m.matchesObjects(k.object.raw, k.request.OldObject.Raw)
}

// step runs one step. A failure that its failurePolicy ignores is undone, logged and counted here.
func (k *call) step(i int) (*denial, error) {
	s := &k.Steps[i]
	k.runs++
	began := time.Now()
	var undo snapshot
	if s.Ignore {
		undo = k.object.snapshot()
	}
	patches := len(k.object.patches)
	x := &k.exchanges[i]
	x.Request = k.request
	err := k.perform(i, x)
	if k.isAbandoned() {
		return nil, err // who waited has counted and told it
	}
	took := time.Since(began)
	if err == nil {
		k.take(s, x)
		switch {
		case s.Mutate != nil:
			k.unsettled = append(k.unsettled, unsettled{i, k.object.batch(), took})
		case len(k.object.patches) > patches:
			k.decided(i, decisionPatched, took)
		default:
			k.decided(i, decisionAllowed, took)
		}
		return nil, nil
	}
	if d, ok := asDenial(s.Name, err); ok {
		k.take(s, x)
		k.decided(i, decisionDenied, took)
		return d, nil
	}
	if s.Ignore {
		k.object.restore(undo)
		k.decided(i, decisionIgnored, took)
		k.ignored = append(k.ignored, &stepError{step: s.Name, err: err})
		k.log.Error(err, "extension failed; its failurePolicy is Ignore, so what it did is undone", "step", s.Name, "took", took.String())
		return nil, nil
	}
	k.decided(i, decisionFailed, took)
	return nil, err
}

func (k *call) decided(i int, d decision, took time.Duration) {
	k.stepMetrics[i].decided(k.request.Operation, d, took)
}

// settle counts the steps that shared a patch: all of them as having changed the object, or none.
func (k *call) settle() {
	for _, u := range k.unsettled {
		d := decisionAllowed
		if k.object.changedIn(u.batch) {
			d = decisionPatched
		}
		k.decided(u.step, d, u.took)
	}
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
		return k.attempt(i, task{step: s, exchange: x, newObj: obj})
	}
	newObj, err := k.look(s, k.object.raw)
	if err != nil {
		return err
	}
	oldObj, err := k.oldMemory.decodeIfPresent(k.request.OldObject.Raw, s.New)
	if err != nil {
		return err
	}
	return k.attempt(i, task{step: s, exchange: x, oldObj: oldObj, newObj: newObj})
}

func (k *call) look(s *Step, raw []byte) (runtime.Object, error) {
	if absent(raw) {
		return nil, nil
	}
	return k.object.view(s.New)
}

func (m *memory) decodeIfPresent(raw []byte, newObject func() runtime.Object) (runtime.Object, error) {
	if absent(raw) {
		return nil, nil
	}
	return m.decodeObject(raw, newObject())
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
