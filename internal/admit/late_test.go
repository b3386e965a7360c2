package admit

// This file is about a step that returns after its deadline: its error, and which goroutine reports it. Tests cannot
// time that from outside.

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestALateStepIsReportedLikeOneThatIsLeftBehind(t *testing.T) {
	ctx, cancel := context.WithDeadlineCause(t.Context(), time.Time{}, fmt.Errorf("?timeout=1s: %w", context.DeadlineExceeded))
	defer cancel()
	returns := func(err error) error {
		return (&run{}).do(0, ctx, &task{run: func(context.Context, *Call, runtime.Object, runtime.Object) error { return err }})
	}
	g := NewWithT(t)
	g.Expect(returns(ctx.Err())).To(Equal(errLate(ctx)), "its error says no more")
	g.Expect(returns(fmt.Errorf("read the quota: %w", ctx.Err()))).To(And(
		MatchError(errLate(ctx).Error()+" (the step returned: read the quota: context deadline exceeded)"),
		MatchError(context.DeadlineExceeded),
	))
	g.Expect(returns(errors.New(ctx.Err().Error()))).To(Equal(errLate(ctx)), "an admission.Response has the text alone")
	g.Expect(returns(errors.New("no quota"))).To(MatchError(errLate(ctx).Error() + " (the step returned: no quota)"))
	g.Expect(returns(nil)).To(Succeed())
	_, denied := asDenial("a", &admissionv1.AdmissionRequest{}, returns(&denial{}))
	g.Expect(denied).To(BeTrue(), "it is the verdict still, should there be time to give it")
}

func TestALateStepIsNamedByTheGoroutineThatWaits(t *testing.T) {
	late := func(t *testing.T, detached bool) *run {
		ctx, cancel := context.WithCancel(t.Context())
		r := &run{
			chain: &chain{left: []*left{{}, {}}},
			ctx:   ctx, at: between, leftAt: between, late: between,
		}
		NewWithT(t).Expect(r.begin(1, detached)).To(Succeed())
		cancel()
		return r
	}
	for _, detached := range []bool{false, true} {
		t.Run(fmt.Sprintf("left behind before it ends, detached: %v", detached), func(t *testing.T) {
			g, r := NewWithT(t), late(t, detached)
			step, runs := r.abandon()
			g.Expect(step).To(Equal(1))
			g.Expect(runs).To(BeTrue(), "the goroutine that waits counts its failure")
			g.Expect(r.end()).To(BeFalse(), "so the call's goroutine must not")
			own := map[bool]int64{false: 1, true: 0}[detached] // attemptDetached counts the goroutine of a detached run
			g.Expect(r.left[1].runs.Load()).To(Equal(own))
			r.returned()
			g.Expect(r.left[1].runs.Load()).To(BeZero())
		})
		t.Run(fmt.Sprintf("ends before it is left behind, detached: %v", detached), func(t *testing.T) {
			g, r := NewWithT(t), late(t, detached)
			g.Expect(r.end()).To(BeTrue(), "the call's goroutine counts its result")
			g.Expect(r.begin(0, detached)).To(MatchError(errLate(r.ctx).Error()), "no step begins any more")
			g.Expect(r.end()).To(BeTrue())
			step, runs := r.abandon()
			g.Expect(step).To(Equal(1), "it took the time, and not the decoder")
			g.Expect(runs).To(BeFalse())
			g.Expect(r.left[1].runs.Load()).To(BeZero())
		})
	}
}
