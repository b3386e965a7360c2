package offline

// This file reports the steps of a call.

import (
	"context"
	"errors"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
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
	if rule := s.Rule; rule != nil {
		s.Rule = func(ctx context.Context, c *chain.Call, obj runtime.Object) (err error) {
			if chain.JudgesOld(ctx) {
				return rule(ctx, c, obj)
			}
			watched(ctx, func() StepEnd {
				err = rule(ctx, c, obj)
				return StepEnd{Err: err}
			})
			return err
		}
	}
}
