package eirinixtest_test

// Checks of steps that are late, in bubbles of synctest, so that no time passes. Those need a *testing.T.

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

const unchecked = "idempotent (in part), lossless (in part), deterministic, race-free, without side effects"

const remedyOfLate = "What to change: pass the handler's context to every call that waits"

// inBubble runs a check of a step, whose hung runs end when release is closed, and returns the test and its duration.
func inBubble(
	t *testing.T, step func(api *eirinixtest.API, release <-chan struct{}) any, check func(*eirinixtest.Harness), options ...any,
) (played *fakeTest, took time.Duration) {
	t.Helper()
	RegisterTestingT(t)
	synctest.Test(t, func(*testing.T) {
		release, done, began := make(chan struct{}), make(chan struct{}), time.Now()
		played = &fakeTest{}
		go func() {
			defer close(done)
			api := eirinixtest.NewAPI(played)
			parts := append(options, step(api, release), func(o *eirinixtest.HarnessOptions) { o.API = api })
			check(eirinixtest.NewHarness(played, parts...))
		}()
		<-done
		took = time.Since(began)
		close(release)
		time.Sleep(time.Minute) // of the bubble's time, until what was left behind has ended
		for _, f := range played.cleanups {
			f()
		}
	})
	return played, took
}

func properties(h *eirinixtest.Harness) { h.CheckProperties(example()) }

// hanging is a step that ignores its context where an object is as is told.
func hanging(when func(*corev1.Pod) bool) func(*eirinixtest.API, <-chan struct{}) any {
	return func(_ *eirinixtest.API, release <-chan struct{}) any {
		return mutation(func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
			if when(pod) {
				<-release
			}
			return nil
		})
	}
}

func always(*corev1.Pod) bool { return true }

func (t *fakeTest) said() string { return strings.Join(t.log, "\n") }

func TestStepThatHangs(t *testing.T) {
	played, took := inBubble(t, hanging(always), properties)
	Expect(took).To(BeNumerically("<=", 30*time.Second))
	Expect(played.errors).To(HaveLen(2))
	Expect(played.errors[0].text).To(And(HavePrefix("eirinixtest: not on time: CREATE was called with a timeout of 200ms, and step under-test was still running 1s later"), ContainSubstring(remedyOfLate)))
	last := played.errors[len(played.errors)-1]
	Expect(last.at.Sub(played.errors[0].at)).To(BeNumerically(">", 20*time.Second), "the first failure is reported when it is found")
	Expect(last.text).To(Equal("eirinixtest: not checked, because the answers came too late: " + unchecked + ". Let the step answer sooner, or raise HarnessOptions.CheckTime, which is 25s"))
	Expect(played.said()).To(ContainSubstring("not checked: total, prepared for the loss of objects. The step is not on time"))
}

func TestStepThatHangsForLargeObjects(t *testing.T) {
	large := func(pod *corev1.Pod) bool { return pod.Size() > 4<<10 }
	for name, check := range map[string]func(*eirinixtest.Harness){
		"CheckProperties": properties,
		"CheckTotal":      func(h *eirinixtest.Harness) { h.CheckTotal(example()) },
	} {
		t.Run(name, func(t *testing.T) {
			played, took := inBubble(t, hanging(large), check)
			Expect(took).To(BeNumerically("<", 10*time.Second))
			Expect(played.failure).To(And(
				HavePrefix("eirinixtest: not on time: CREATE was called with a timeout of 1s, and step under-test was still running 1s later"),
				ContainSubstring("\n  kind: Pod\n"), MatchRegexp(`\.\.\. and \d+ more lines`), ContainSubstring(remedyOfLate), Not(ContainSubstring("CheckTime"))))
		})
	}
}

func TestStepThatHangsForChangedObjects(t *testing.T) {
	played, took := inBubble(t, hanging(func(pod *corev1.Pod) bool { return len(pod.Annotations) > 1 }), properties)
	Expect(took).To(BeNumerically("<=", 30*time.Second))
	Expect(played.errors[len(played.errors)-1].text).To(ContainSubstring("not checked, because the answers came too late: "))
}

func TestStepThatWaitsForTheEndOfItsTime(t *testing.T) {
	for name, patience := range map[string]time.Duration{"as long as by default": 0, "as long as the option says": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			played, took := inBubble(t, func(*eirinixtest.API, <-chan struct{}) any {
				return mutation(func(ctx context.Context, _ *eirinix.Call, _ *corev1.Pod) error {
					<-ctx.Done()
					return nil
				})
			}, properties, func(o *eirinixtest.HarnessOptions) { o.CheckTime = patience })
			limit := 25 * time.Second
			if patience > 0 {
				limit = patience
			}
			Expect(took).To(And(BeNumerically(">=", limit), BeNumerically("<", limit+time.Second)))
			Expect(played.failure).To(And(Not(ContainSubstring("not on time")), ContainSubstring("deterministic, race-free, without side effects, total, prepared for the loss of objects. "), HaveSuffix("which is "+limit.String())))
		})
	}
}

func TestCheckOfOnePropertyOfAStepThatHangs(t *testing.T) {
	for property, check := range checks {
		t.Run(property, func(t *testing.T) {
			played, took := inBubble(t, hanging(always), func(h *eirinixtest.Harness) { check(h, example()) }, func(o *eirinixtest.HarnessOptions) { o.CheckTime = 5 * time.Second })
			Expect(took).To(BeNumerically("<=", 5*time.Second))
			if property == "on time" {
				Expect(played.failure).To(And(HavePrefix("eirinixtest: not on time: "), ContainSubstring(remedyOfLate)))
			} else {
				Expect(played.failure).To(Equal("eirinixtest: not checked, because the answers came too late: " + property + " (in part). Let the step answer sooner, or raise HarnessOptions.CheckTime, which is 5s"))
			}
		})
	}
}

func TestStepWhoseClientHasAnotherContext(t *testing.T) {
	played, _ := inBubble(t, func(api *eirinixtest.API, _ <-chan struct{}) any {
		return mutation(func(context.Context, *eirinix.Call, *corev1.Pod) error {
			return api.Client().Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "x"}, &corev1.ConfigMap{})
		})
	}, func(h *eirinixtest.Harness) { h.CheckDeadline(example()) })
	Expect(played.failure).To(And(HavePrefix("eirinixtest: not on time: "), ContainSubstring("was still running 1s later"), ContainSubstring("context.Background")))
}

func TestStepThatNotesTheTime(t *testing.T) {
	played, _ := inBubble(t, func(*eirinixtest.API, <-chan struct{}) any {
		return mutation(func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "time", time.Now().Truncate(time.Second).Format(time.RFC3339))
			return nil
		})
	}, func(h *eirinixtest.Harness) { h.CheckDeterministic(example()) })
	Expect(played.failure).To(And(HavePrefix("eirinixtest: not deterministic: "), ContainSubstring("a second later"), ContainSubstring("nor the time")))
}

func TestStepThatKeepsAllProperties(t *testing.T) {
	var writes []eirinixtest.APIRequest
	played, took := inBubble(t, func(api *eirinixtest.API, _ <-chan struct{}) any { return good(api.Client()) }, func(h *eirinixtest.Harness) {
		properties(h)
		writes = h.API().Writes()
	})
	Expect(took).To(BeNumerically("<", 5*time.Second))
	Expect(played.failure).To(BeEmpty())
	Expect(played.said()).NotTo(ContainSubstring("not checked"))
	Expect(writes).NotTo(BeEmpty(), "so that the absence of writes in dry runs means something")
}

// ginkgoTest is a test whose Errorf does not return, as that of ginkgo.
type ginkgoTest struct{ *fakeTest }

func (ginkgoTest) GinkgoRecover() {}
func (t ginkgoTest) Errorf(format string, args ...any) {
	t.fakeTest.Errorf(format, args...)
	runtime.Goexit()
}

func TestFailuresInGinkgo(t *testing.T) {
	RegisterTestingT(t)
	synctest.Test(t, func(*testing.T) {
		played, done := ginkgoTest{&fakeTest{}}, make(chan struct{})
		go func() {
			defer close(done)
			properties(eirinixtest.NewHarness(played, mutation(func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
				pod.Labels = map[string]string{"seen": pod.Labels["seen"] + "x"}
				return nil
			})))
		}()
		<-done
		Expect(played.errors).To(BeEmpty())
		Expect(played.failure).To(And(HavePrefix("eirinixtest: not idempotent: "), ContainSubstring("\n\neirinixtest: not lossless: ")))
		Expect(played.said()).To(And(ContainSubstring("eirinixtest: not idempotent: "), ContainSubstring("eirinixtest: not lossless: ")))
		for _, f := range played.cleanups {
			f()
		}
	})
}
