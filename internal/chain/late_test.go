package chain

// This file specifies the memory that the objects of calls share, and a step that returns after its deadline: its error,
// and which goroutine reports it. Tests cannot time that from outside.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/hang"
)

func TestALateStepIsReportedLikeOneThatIsLeftBehind(t *testing.T) {
	ctx, cancel := context.WithDeadlineCause(t.Context(), time.Time{}, fmt.Errorf("?timeout=1s: %w", context.DeadlineExceeded))
	defer cancel()
	returns := func(err error) error {
		return (&run{}).do(0, ctx, &task{run: func(context.Context, *Call, runtime.Object, runtime.Object) error { return err }})
	}
	g := NewWithT(t)
	g.Expect(returns(ctx.Err())).To(Equal(hang.ErrLate(ctx)), "its error says no more")
	g.Expect(returns(fmt.Errorf("read the quota: %w", ctx.Err()))).To(And(
		MatchError(hang.ErrLate(ctx).Error()+" (the step returned: read the quota: context deadline exceeded)"),
		MatchError(context.DeadlineExceeded),
	))
	g.Expect(returns(errors.New(ctx.Err().Error()))).To(Equal(hang.ErrLate(ctx)), "an admission.Response has the text alone")
	g.Expect(returns(errors.New("no quota"))).To(MatchError(hang.ErrLate(ctx).Error() + " (the step returned: no quota)"))
	g.Expect(returns(nil)).To(Succeed())
	_, denied := asDenial("a", &admissionv1.AdmissionRequest{}, returns(&denial{}))
	g.Expect(denied).To(BeTrue(), "it is the verdict still, should there be time to give it")
}

func TestARefusalStandsIfTheRuleIsLateOnTheOldObject(t *testing.T) {
	hangs := func(ctx context.Context) { <-ctx.Done(); time.Sleep(time.Minute) }
	for _, c := range []struct {
		name           string
		timeout, first time.Duration
		late           func(context.Context)
		within         time.Duration
	}{
		{"with a share of the time", 0, 0, func(ctx context.Context) { <-ctx.Done() }, 5 * time.Second},
		{"and hangs", 0, 4 * time.Second, hangs, 7 * time.Second},
		{"with the rest of its own time", 3 * time.Second, time.Second, hangs, 3 * time.Second},
		{"with no time of its own left", 2 * time.Second, 1999 * time.Millisecond, hangs, 2 * time.Second},
	} {
		for _, ignore := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, Ignore: %v", c.name, ignore), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					rule := Step{Name: "rule", Timeout: c.timeout, Ignore: ignore, New: func() runtime.Object { return &corev1.Pod{} }}
					rule.Rule = func(ctx context.Context, _ *Call, _ runtime.Object) error {
						if JudgesOld(ctx) {
							c.late(ctx)
							return ctx.Err()
						}
						time.Sleep(c.first)
						return &denial{status: metav1.Status{Code: 403, Message: "no"}}
					}
					req := &admissionv1.AdmissionRequest{Operation: admissionv1.Update}
					req.OldObject.Raw, req.Object.Raw = []byte(`{"metadata":{"name":"a"}}`), []byte(`{"metadata":{"name":"a","labels":{"a":"1"}}}`)
					ch := New("w", Config{Validating: true, Steps: []Step{rule}}, unexposed(), nil)
					wants, _ := ch.Select(req, func() {})
					g, began := NewWithT(t), time.Now()
					x := Runner{Objects: NewBudget()}
					o := x.Run(ctx, ch, req, wants)
					g.Expect(o.Err).NotTo(HaveOccurred())
					g.Expect(o.Response).To(And(HaveField("Allowed", false), HaveField("Result.Message", "no"), HaveField("Warnings", BeEmpty())))
					g.Expect(time.Since(began)).To(BeNumerically("~", c.within, 2*time.Millisecond))
					time.Sleep(2 * time.Minute) // until what was left behind has ended
				})
			})
		}
	}
}

func TestAStepThatHangsWhenItIsReinvokedLeavesTimeForItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		runs, does := 0, func(name string, what func(context.Context, *corev1.Pod) error) Step {
			return Step{Name: name, Ignore: true, Mutates: true, New: newPod, Run: func(ctx context.Context, _ *Call, _, pod runtime.Object) error {
				return what(ctx, pod.(*corev1.Pod))
			}}
		}
		release := make(chan struct{})
		defer close(release)
		hangs := does("hangs", func(context.Context, *corev1.Pod) error {
			if runs++; runs == 1 {
				time.Sleep(5 * time.Second)
			} else {
				<-release
			}
			return nil
		})
		hangs.Timeout = 6 * time.Second
		changes := does("changes", func(_ context.Context, pod *corev1.Pod) error { pod.Labels = map[string]string{"a": "1"}; return nil })
		req := &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"a"}}`)}}
		ch := New("w", Config{Reinvoke: true, Steps: []Step{hangs, changes}}, unexposed(), nil)
		wants, _ := ch.Select(req, func() {})
		g, x, began := NewWithT(t), Runner{Objects: NewBudget()}, time.Now()
		o := x.Run(ctx, ch, req, wants)
		g.Expect(o.Err).NotTo(HaveOccurred())
		g.Expect(time.Since(began)).To(Equal(7500*time.Millisecond), "half of the rest")
		g.Expect(string(o.Response.Patch)).To(ContainSubstring("labels"))
	})
}

func TestALateStepIsNamedByTheGoroutineThatWaits(t *testing.T) {
	late := func(t *testing.T, detached bool) *run {
		ctx, cancel := context.WithCancel(t.Context())
		r := &run{
			Chain: New("a", Config{Steps: []Step{{Name: "a"}, {Name: "b"}}}, unexposed(), nil),
			ctx:   ctx, progress: progress{at: between, late: between}, budget: NewBudget(),
		}
		r.object.memory, r.old.memory = r.budget.objects.share(ctx), r.budget.oldObjects.share(ctx)
		NewWithT(t).Expect(r.begin(1, detached)).To(Succeed())
		cancel()
		return r
	}
	for _, detached := range []bool{false, true} {
		t.Run(fmt.Sprintf("left behind before it ends, detached: %v", detached), func(t *testing.T) {
			g, r := NewWithT(t), late(t, detached)
			r.Leave()
			g.Expect(r.at).To(Equal(1), "the goroutine that waits counts its failure")
			g.Expect(r.end()).To(BeFalse(), "so the call's goroutine must not")
			own := map[bool]int64{false: 1, true: 0}[detached] // a detachedRun counts itself
			g.Expect(r.steps[1].left.Count()).To(Equal(own))
			r.Left(nil)
			g.Expect(r.steps[1].left.Count()).To(BeZero())
		})
		t.Run(fmt.Sprintf("ends before it is left behind, detached: %v", detached), func(t *testing.T) {
			g, r := NewWithT(t), late(t, detached)
			g.Expect(r.end()).To(BeTrue(), "the call's goroutine counts its result")
			g.Expect(r.begin(0, detached)).To(MatchError(hang.ErrLate(r.ctx).Error()), "no step begins any more")
			g.Expect(r.end()).To(BeTrue())
			r.Leave()
			g.Expect(r.late).To(Equal(1), "it took the time, and not the decoder")
			g.Expect(r.at).To(Equal(between))
			g.Expect(r.steps[1].left.Count()).To(BeZero())
		})
	}
}

// runOf returns the run of a step on a pod that takes more than decode.Free, within a second.
func runOf(t *testing.T, b *Budget, s Step) *run {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	s.Name, s.New, s.Mutates = "a", newPod, true
	req := &admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: manyContainers(2000)}}
	return (&Runner{Objects: b}).newRun(ctx, New("a", Config{Steps: []Step{s}}, unexposed(), nil), req, Selection{wantKind | wantObject})
}

func TestTheMemoryOfARunThatIsLeftBehindNoLongerDelaysCalls(t *testing.T) {
	for _, detached := range []bool{false, true} {
		t.Run(fmt.Sprintf("on a goroutine of its own: %t", detached), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, all, release := NewWithT(t), NewBudget(), make(chan struct{})
				s := Step{Run: func(context.Context, *Call, runtime.Object, runtime.Object) error { <-release; return nil }}
				if detached {
					s.Timeout = time.Millisecond
				}
				r := runOf(t, all, s)
				g.Expect(r.wait().Err).To(MatchError(ContainSubstring("no answer before the deadline")))
				synctest.Wait()
				g.Expect(all.objects.held.TryAcquire(all.objects.held.Max)).To(BeTrue(), "all of the calls' memory is free")
				all.objects.held.Release(all.objects.held.Max)
				g.Expect(all.LeftBehind.Bytes()).To(BeNumerically(">", decode.Free+len(r.request.Object.Raw)))
				left, gauge := r.steps[0].left, prometheus.NewGauge(prometheus.GaugeOpts{})
				g.Expect(left.Full(&all.LeftBehind)).To(Succeed())
				another := (&hang.Runs{Gauge: gauge}).Add(&all.LeftBehind, all.LeftBehind.Max)
				g.Expect(left.Full(&all.LeftBehind)).To(MatchError(HavePrefix("1 of its runs still hang, and all that hang hold 33 MiB")))
				g.Expect((&hang.Runs{Gauge: gauge}).Full(&all.LeftBehind)).To(Succeed(), "other steps can run")
				another()
				close(release)
				synctest.Wait()
				g.Expect(all.LeftBehind.Bytes()).To(BeZero())
				g.Expect(left.Count()).To(BeZero())
			})
		})
	}
}

func TestACallThatWaitsForMemorySaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, all := NewWithT(t), NewBudget()
		for name, full := range map[string]hang.Account{"to decode": all.objects.decoding, "to hold": all.objects.held} {
			g.Expect(full.Acquire(t.Context(), decode.MaxMemory)).To(Succeed())
			g.Expect(runOf(t, all, Step{}).wait().Err).To(MatchError(And(ContainSubstring("waited for memory"), Not(ContainSubstring("took too long")))), name)
			synctest.Wait()
			full.Release(decode.MaxMemory)
		}
		g.Expect(runOf(t, all, Step{Run: func(context.Context, *Call, runtime.Object, runtime.Object) error { return nil }}).wait().Err).NotTo(HaveOccurred())
	})
}

func TestShadowsGiveWayToCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := NewWithT(t), unexposed()
		var runs, calls atomic.Int64
		shadows := NewShadows(Runner{}, func() bool { return calls.Load() > 0 })
		defer shadows.Stop()
		s := Step{Name: "a", New: newPod, Mode: ModeShadow, Run: func(context.Context, *Call, runtime.Object, runtime.Object) error { runs.Add(1); return nil }}
		c := New("a", Config{Steps: []Step{s}, Validating: true}, m, nil)
		add := func(text []byte, n int) {
			for range n {
				req := &admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: text}}
				shadows.Add(c.shadowsOf(t.Context(), req, nil, []int{0}))
			}
		}
		small, large := manyContainers(1), manyContainers(2000)
		calls.Add(1)
		add(small, 1)
		time.Sleep(10 * quiet)
		synctest.Wait()
		g.Expect(runs.Load()).To(BeZero(), "a call is at work")
		calls.Add(-1)
		time.Sleep(quiet)
		synctest.Wait()
		g.Expect(runs.Load()).To(BeEquivalentTo(1))

		calls.Add(1)
		add(small, 1)
		time.Sleep(maxLooks * quiet)
		synctest.Wait()
		g.Expect(runs.Load()).To(BeEquivalentTo(2), "a call that hangs does not stop them")

		add(small, maxShadows)
		synctest.Wait()
		time.Sleep(quiet)
		synctest.Wait()
		g.Expect(runs.Load()).To(And(BeNumerically(">=", 2+maxShadows/2), BeNumerically("<", 2+maxShadows)), "they run at once while half of the queue waits")
		calls.Add(-1)
		time.Sleep(time.Second)
		synctest.Wait()
		g.Expect(runs.Load()).To(BeEquivalentTo(2 + maxShadows))

		began, q := time.Now(), &Shadow{call: &answered{request: &admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: large}}}}
		shadows.rest(q, began.Add(-time.Millisecond))
		g.Expect(time.Since(began)).To(BeZero(), "there are no calls")
		calls.Add(1)
		shadows.rest(q, began.Add(-time.Millisecond))
		g.Expect(time.Since(began)).To(Equal(restTimes * time.Millisecond))
		calls.Add(-1)
	})
}

// hangingPod is a type that hangs while it is decoded.
type hangingPod struct {
	*corev1.Pod
	until chan struct{}
}

func (p *hangingPod) UnmarshalJSON([]byte) error { <-p.until; return nil }

func TestAShadowWhoseTypeHangsInDecodingKeepsNoOtherOneWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m, until := NewWithT(t), unexposed(), make(chan struct{})
		var runs atomic.Int64
		shadows := NewShadows(Runner{}, func() bool { return false })
		defer shadows.Stop()
		defer close(until)
		quick := Step{Name: "quick", New: newPod, Mode: ModeShadow, Run: func(context.Context, *Call, runtime.Object, runtime.Object) error { runs.Add(1); return nil }}
		hangs := Step{Name: "hangs", New: func() runtime.Object { return &hangingPod{&corev1.Pod{}, until} }, Mode: ModeShadow, Run: quick.Run}
		c := New("a", Config{Steps: []Step{hangs, quick}, Validating: true}, m, nil)
		req := &admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: manyContainers(1)}}
		shadows.Add(c.shadowsOf(t.Context(), req, nil, []int{0}))
		time.Sleep(quiet)
		synctest.Wait()
		for n := range maxShadows {
			shadows.Add(c.shadowsOf(t.Context(), req, nil, []int{1}))
			time.Sleep(longestTurn / maxShadows)
			if n == 0 {
				g.Expect(runs.Load()).To(BeZero(), "the turn is taken")
			}
		}
		time.Sleep(quiet)
		synctest.Wait()
		g.Expect(runs.Load()).To(BeEquivalentTo(maxShadows), "no run is dropped")
	})
}

// manyContainers is a pod that takes more than decode.Free.
func manyContainers(n int) []byte {
	return []byte(`{"spec":{"containers":[` + strings.Repeat(`{"name":"a","image":"b"},`, n) + `{}]}}`)
}

func TestMemoryIsSharedByTheObjectsThatAreLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		all := NewBudget().objects
		isFree := func() bool {
			free := all.held.TryAcquire(all.held.Max) && all.decoding.TryAcquire(decode.MaxMemory)
			all.held.Release(all.held.Max)
			all.decoding.Release(decode.MaxMemory)
			return free
		}
		large := manyContainers(2000)
		first := all.share(t.Context())
		g.Expect(first.decode(manyContainers(1), &corev1.Pod{})).To(Succeed())
		g.Expect(first.held.Held()).To(BeZero(), "a small one needs no room")
		g.Expect(first.decode(large, &corev1.Pod{})).To(Succeed())
		held := first.held.Held()
		g.Expect(held).To(And(BeNumerically(">", decode.Free), BeNumerically("<", copies*decode.Bound(len(large)))), "unused memory is given back")
		g.Expect(first.decode(large, &corev1.Pod{})).To(Succeed())
		g.Expect(first.held.Held()).To(Equal(held), "the object takes the place of the one before")

		var others []*memory
		for all.held.TryAcquire(held) { // so that none waits
			all.held.Release(held)
			m := all.share(t.Context())
			g.Expect(m.held.Take(held)).To(Succeed())
			others = append(others, m)
		}
		late := all.share(t.Context())
		done := make(chan error, 1)
		go func() { done <- late.decode(large, &corev1.Pod{}) }()
		synctest.Wait()
		g.Expect(done).NotTo(Receive(), "it waits for room")
		g.Expect(late.waits()).To(BeTrue())
		for _, m := range others {
			m.held.Release()
		}
		synctest.Wait()
		g.Expect(done).To(Receive(BeNil()))
		g.Expect(late.waits()).To(BeFalse())

		late.held.Release()
		first.held.Release()
		first.held.Release()
		g.Expect(isFree()).To(BeTrue(), "all of it is there again")

		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("the call is over"))
		defer cancel()
		for _, full := range []hang.Account{all.held, all.decoding} {
			g.Expect(full.Acquire(t.Context(), decode.MaxMemory)).To(Succeed())
			err := all.share(ctx).decode(large, &corev1.Pod{})
			g.Expect(err).To(MatchError(And(ContainSubstring("waited for memory"), ContainSubstring("the call is over"))))
			full.Release(decode.MaxMemory)
		}
		g.Expect(isFree()).To(BeTrue())
		broken := all.share(t.Context())
		g.Expect(broken.decode(large[:len(large)-1], &corev1.Pod{})).NotTo(Succeed())
		g.Expect(broken.held.Held()).To(BeZero())
		g.Expect(isFree()).To(BeTrue())
	})
}

func TestAnObjectThatTakesMoreThanAnAccountHasItAlone(t *testing.T) {
	g := NewWithT(t)
	small := newAccount(1 << 20)
	m := small.share(t.Context())
	g.Expect(m.decode(manyContainers(20_000), &corev1.Pod{})).To(Succeed())
	g.Expect(m.held.Held()).To(BeEquivalentTo(1 << 20))
	g.Expect(small.held.TryAcquire(1)).To(BeFalse())
	m.held.Release()
	g.Expect(small.held.TryAcquire(1 << 20)).To(BeTrue())
}

// A step that takes its time holds what its object takes, and not the most that it could take. So many others have room.
func TestAStepThatTakesItsTimeDoesNotDelayTheDecodingOfOthers(t *testing.T) {
	g := NewWithT(t)
	all := NewBudget().objects
	large := manyContainers(40_000) // 1 MB, for which all of the memory to decode is reserved
	g.Expect(decode.Bound(len(large))).To(BeEquivalentTo(decode.MaxMemory))
	at, pods := int64(0), 0
	for ended, end := context.WithCancel(t.Context()); ; pods++ {
		end()
		m := all.share(ended) // cannot wait
		if err := m.decode(manyContainers(4000), &corev1.Pod{}); err != nil {
			g.Expect(err).To(MatchError(hang.ErrNoMemory))
			break
		}
		at += m.held.Held()
	}
	g.Expect(pods).To(BeNumerically(">", 1))
	g.Expect(at).To(BeNumerically(">", decode.MaxMemory/2), "the room is used")
}
