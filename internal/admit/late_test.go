package admit

// This file is about the error of a step that returns after its deadline, which tests cannot time from outside.

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
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
	g.Expect(returns(errors.New("no quota"))).To(MatchError("no quota"), "it does not blame the deadline")
}
