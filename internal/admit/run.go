package admit

// This file runs the steps of a chain on one request, and combines their results.

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// call is one request's pass through a chain. The fields above mu belong to the goroutine that runs the steps, even
// after the deadline, when nothing waits for it.
type call struct {
	*chain
	ctx       context.Context
	log       logr.Logger
	request   *admissionv1.AdmissionRequest
	wants     []want     // by step
	exchanges []Exchange // of one round, by step
	ran       []bool     // by step; nil if no step can run again
	seen      [][]byte   // the object as each step left it; nil like ran
	object    object
	old       object // the old object, which no step changes
	unsettled []unsettled
	runs      int     // number of runs of steps
	ignored   []error // the failures of runs that failurePolicy ignores, as stepErrors
	warnings  []string
	audit     map[string]string

	mu        sync.Mutex
	at        int         // the step that runs on the call's goroutine, or between
	leftAt    int         // the step that was left behind, or between
	abandoned atomic.Bool // set under mu by the goroutine that waits: the deadline has passed
}

// outcome is the result of a call: a response, which can be a denial, or a failure. A failure names the step, and
// failurePolicy decides on it.
type outcome struct {
	response   *admissionv1.AdmissionResponse
	operations int    // number in the response's patch
	deniedBy   string // the steps that denied
	err        error
}

// unsettled is a finished run of a step on a view that other steps share. Whether the run changed the object is known
// only when the patch is made.
type unsettled struct {
	step, batch int
	took        time.Duration
}

// complete runs the steps and builds the outcome from their results.
func (k *call) complete() outcome {
	defer k.settle()
	denials, err := k.steps()
	if err != nil || k.isAbandoned() {
		return outcome{err: err}
	}
	if k.allIgnore && k.runs > 0 && k.runs == len(k.ignored) {
		// Every step that ran has failed, so an error as the answer loses nothing. The audit log and the metrics of the
		// API server then show the requests that were admitted without this webhook.
		return outcome{err: k.ignored[0]}
	}
	resp := &admissionv1.AdmissionResponse{Allowed: len(denials) == 0, Warnings: k.warnings, AuditAnnotations: k.audit}
	if !resp.Allowed {
		resp.Result = &k.joinDenials(denials).status
		return outcome{response: resp, deniedBy: deniers(denials)}
	}
	if err = k.write(func() (err error) { resp.Patch, err = k.object.patch(); return err }); err != nil {
		return outcome{err: err}
	}
	if resp.Patch != nil {
		resp.PatchType = new(admissionv1.PatchTypeJSONPatch)
	}
	return outcome{response: resp, operations: k.object.operations}
}

// steps runs every step that wants the request. Denials are a verdict. An error is the failure of a step whose
// failurePolicy is Fail.
func (k *call) steps() (denials []stepDenial, err error) {
	rounds := 1
	if k.Reinvoke {
		rounds = 2 // as many as the API server runs
		k.ran, k.seen = make([]bool, len(k.Steps)), make([][]byte, len(k.Steps))
	}
	for round := range rounds {
		k.exchanges = make([]Exchange, len(k.Steps)) // drops the warnings and annotations of undone runs
		for i := range k.Steps {
			if !k.due(i, round) {
				continue
			}
			d, stepErr := k.step(i)
			if stepErr == nil && k.Reinvoke {
				k.ran[i] = true
				k.seen[i], stepErr = k.object.json()
			}
			switch {
			case d != nil:
				denials = append(denials, stepDenial{k.Steps[i].Name, d})
			case stepErr != nil && err == nil:
				err = stepErr
			case stepErr != nil:
				k.logFailure(k.log, stepErr, "extension failed; an earlier one's failure is the answer")
			}
			if !k.Validating && (len(denials) > 0 || err != nil) || k.isAbandoned() {
				return denials, err
			}
		}
	}
	if len(denials) > 0 { // a denial is final, even if other steps failed
		if err != nil {
			k.logFailure(k.log, err, "extension failed; another one's denial is the answer")
		}
		return denials, nil
	}
	return nil, err
}

func deniers(denials []stepDenial) string {
	names := make([]string, 0, len(denials))
	for _, d := range denials {
		names = append(names, d.step)
	}
	return strings.Join(names, ", ")
}

// due reports whether a step runs now: whether it wants the object as the steps before have left it. In the second
// round, the object must also have changed since the step's first run. As in the API server, a step that did not want
// the object in the first round does not run in the second.
func (k *call) due(i, round int) bool {
	wanted := k.wants[i]&(wantKind|wantObject) == wantKind|wantObject
	if k.wants[i]&wantKind != 0 && k.object.touched() {
		wanted = k.wantsNow(k.Steps[i].Matcher)
	}
	if round > 0 {
		raw, err := k.object.json()
		return wanted && k.ran[i] && (err != nil || !bytes.Equal(k.seen[i], raw))
	}
	if !wanted {
		k.stepMetrics[i].decided(k.request.Operation, decisionSkipped, 0)
	}
	return wanted
}

// wantsNow evaluates an objectSelector on the object as the steps have changed it.
func (k *call) wantsNow(m *Matcher) bool {
	if !m.hasObjects() {
		return true
	}
	if meta := typedMeta(k.object.current); meta != nil {
		return m.selectsLabels(meta.Labels) || m.selects(k.request.OldObject.Raw)
	} else if tree, ok := k.object.current.(*unstructured.Unstructured); ok {
		return m.selectsLabels(tree.GetLabels()) || m.selects(k.request.OldObject.Raw)
	}
	raw, err := k.object.json()
	return err != nil || m.matchesObjects(raw, k.request.OldObject.Raw)
}

// step runs one step. A failure that its failurePolicy ignores is undone, logged and counted here. Any other failure is
// returned with the name of the step.
func (k *call) step(i int) (*denial, error) {
	s := &k.Steps[i]
	if !k.sharesBatch(i) {
		if err := k.flush(); err != nil {
			return nil, err
		}
	}
	k.runs++
	began := time.Now()
	undo := k.object
	x := &k.exchanges[i]
	x.Request = k.request
	err := k.perform(i, x)
	if k.isAbandoned() {
		return nil, err // the goroutine that waits has counted and reported it
	}
	batch := k.object.batch()
	if err == nil && s.Ignore {
		err = caughtIn(k.object.flush) // a change that cannot be written is the step's own failure
	}
	took := time.Since(began)
	if err == nil {
		k.take(s, x)
		switch {
		case s.Mutate != nil:
			k.unsettled = append(k.unsettled, unsettled{i, batch, took})
			if k.Reinvoke || k.object.isOdd() {
				return nil, k.flush()
			}
		case len(k.object.patches) > len(undo.patches):
			k.decided(i, decisionPatched, took)
		default:
			k.decided(i, decisionAllowed, took)
		}
		return nil, nil
	}
	if d, ok := asDenial(s.Name, k.request, err); ok {
		k.take(s, x)
		k.decided(i, decisionDenied, took)
		return d, nil
	}
	if s.Ignore {
		k.object = k.object.restored(undo)
		k.decided(i, decisionIgnored, took)
		k.ignored = append(k.ignored, &stepError{step: s.Name, err: err})
		k.logFailure(k.log, k.ignored[len(k.ignored)-1], "extension failed; its failurePolicy is Ignore, so what it did is undone", "took", took.String())
		return nil, nil
	}
	k.decided(i, decisionFailed, took)
	return nil, &stepError{step: s.Name, err: err}
}

// sharesBatch reports whether a step changes the same view as the steps before it. A step that may have to be undone
// starts on an object without pending changes. A step that needs another view needs the JSON.
func (k *call) sharesBatch(i int) bool {
	s := &k.Steps[i]
	return s.Mutate != nil && !s.Ignore && k.object.isOf(k.types[i])
}

// flush turns the changes of the batch's steps into a patch. If a change cannot be written, all of these steps have
// failed.
func (k *call) flush() error { return k.write(k.object.flush) }

func (k *call) write(do func() error) error {
	err := caughtIn(do)
	if err == nil {
		return nil
	}
	names := k.batch()
	k.unsettled = slices.DeleteFunc(k.unsettled, func(u unsettled) bool {
		failed := u.batch == k.object.batch()
		if failed {
			k.decided(u.step, decisionFailed, u.took)
		}
		return failed
	})
	if len(names) == 1 {
		return &stepError{step: names[0], err: err}
	}
	return &batchError{steps: names, err: err}
}

// batch returns the names of the steps whose changes have not been flushed yet.
func (k *call) batch() (names []string) {
	for _, u := range k.unsettled {
		if u.batch == k.object.batch() {
			names = append(names, k.Steps[u.step].Name)
		}
	}
	return names
}

// caughtIn turns a panic outside a step's function, in the methods of its type, into an error.
func caughtIn(do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked(r)
		}
	}()
	return do()
}

func (k *call) decided(i int, d decision, took time.Duration) {
	k.stepMetrics[i].decided(k.request.Operation, d, took)
}

// settle counts the steps that shared a patch. All of them count as having changed the object, or none does.
func (k *call) settle() {
	for _, u := range k.unsettled {
		d := decisionAllowed
		if k.object.changedIn(u.batch) {
			d = decisionPatched
		}
		k.decided(u.step, d, u.took)
	}
}

// perform runs a step with the objects that it asks for.
func (k *call) perform(i int, x *Exchange) (err error) {
	s := &k.Steps[i]
	defer func() {
		if r := recover(); r != nil { // a panic of its type's methods; caught recovers those of its function
			err = panicked(r)
		}
	}()
	switch {
	case s.Handle != nil:
		return k.handle(i, x)
	case s.Mutate != nil:
		if k.object.isAbsent() {
			return fmt.Errorf("%s carries no object to change", k.request.Operation)
		}
		obj, err := k.object.edit(k.types[i], s.New)
		if err != nil {
			return err
		}
		return k.attempt(i, task{step: s, exchange: x, newObj: obj})
	}
	newObj, err := k.own(&k.object, i)
	if err != nil {
		return err
	}
	oldObj, err := k.own(&k.old, i)
	if err != nil {
		return err
	}
	return k.attempt(i, task{step: s, exchange: x, oldObj: oldObj, newObj: newObj})
}

// own returns an object that only this step holds. The step can change it, even after the step has been left behind.
// The last step that asks for a type gets the decoded object, and the steps before it get copies.
func (k *call) own(o *object, i int) (runtime.Object, error) {
	if o.isAbsent() {
		return nil, nil
	}
	obj, err := o.view(k.types[i], k.Steps[i].New)
	if err != nil {
		return nil, err
	}
	for later := i + 1; later < len(k.Steps); later++ {
		if k.wants[later]&(wantKind|wantObject) == wantKind|wantObject && k.types[later] == k.types[i] {
			return obj.DeepCopyObject(), nil
		}
	}
	o.current = nil
	return obj, nil
}

// take adds a step's warnings and audit annotations to the call's. If another step has used a key, the key is prefixed
// with the step's name.
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
