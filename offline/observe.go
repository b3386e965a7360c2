package offline

// This file reports the steps of a call, and serves what they read.

import (
	"context"
	"errors"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/reads"
)

// errGoexit is the outcome of a step that neither returned nor panicked.
var errGoexit = errors.New("it ended its goroutine (runtime.Goexit, which t.FailNow calls too)")

// observe makes begin and the function that it returns run around every call of the step.
func observe(s *chain.Step, begin func(context.Context, string) func(StepEnd)) {
	watched := func(ctx context.Context, run func() StepEnd) {
		ended := begin(ctx, s.Name)
		end := StepEnd{Err: errGoexit}
		defer func() {
			if r := recover(); r != nil {
				ended(StepEnd{Panic: r, Stack: debug.Stack()})
				panic(r) //nolint:forbidigo // it is the step's, and the chain answers for it
			}
			ended(end)
		}()
		end = run()
	}
	if handle := s.Handle; handle != nil {
		s.Handle = func(ctx context.Context, req admission.Request) (resp admission.Response) {
			watched(ctx, func() StepEnd {
				resp = handle(ctx, req)
				return StepEnd{Response: &resp}
			})
			return resp
		}
	}
	if run := s.Run; run != nil {
		s.Run = func(ctx context.Context, c *chain.Call, oldObj, newObj runtime.Object) (err error) {
			watched(ctx, func() StepEnd {
				err = run(ctx, c, oldObj, newObj)
				return StepEnd{Err: err}
			})
			return err
		}
	}
}

// reading serves the objects of a test or a preview.
type reading struct {
	*reads.Set
	scheme  *runtime.Scheme
	objects func(context.Context) ([]client.Object, error) // nil for none
}

// Waiting returns nil: without a cluster no step waits.
func (reading) Waiting(string) error { return nil }

// Snapshot returns the objects as they are now.
func (o reading) Snapshot(ctx context.Context) (*reads.Snapshot, error) {
	if recorded, ok := reads.RecordedOf(ctx); ok {
		return o.Recall(ctx, recorded), nil
	}
	if world, fails, ok := reads.World(ctx); ok {
		return o.Fill(ctx, world, fails), nil
	}
	var objects []client.Object
	if o.objects != nil {
		var err error
		if objects, err = o.objects(ctx); err != nil {
			return nil, err
		}
	}
	trees := make([]*unstructured.Unstructured, 0, len(objects))
	for _, object := range objects {
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{Object: tree}
		if u.GroupVersionKind().Empty() {
			kind, err := apiutil.GVKForObject(object, o.scheme)
			if err != nil {
				return nil, err
			}
			u.SetGroupVersionKind(kind)
		}
		trees = append(trees, u)
	}
	return o.Fill(ctx, trees, nil), nil
}
