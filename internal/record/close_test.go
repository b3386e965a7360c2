package record_test

// The end of a recording loses no call that had begun, waits no longer than its context, and leaves nothing behind.

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gleak"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/record"
)

// hanging is a step that stands still with pods called hangs, until release.
func hanging() (f chain.HandleFunc, began <-chan struct{}, release func()) {
	wait, stands := make(chan struct{}), make(chan struct{}, 100)
	return func(_ context.Context, r admission.Request) admission.Response {
		if r.Name == "hangs" {
			stands <- struct{}{}
			<-wait
		}
		return admission.Allowed("")
	}, stands, sync.OnceFunc(func() { close(wait) })
}

// hung is a review for such a pod.
var hung = strings.Replace(review(pod), `"name":"web-0","namespace":"cf"`, `"name":"hangs","namespace":"cf"`, 1)

// ended is a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	return ctx
}

// waited is a context that signals the first wait for its end.
type waited struct {
	context.Context
	by chan struct{}
}

func (w waited) Done() <-chan struct{} {
	select {
	case w.by <- struct{}{}:
	default:
	}
	return w.Context.Done()
}

var _ = Describe("The end of a recording", func() {
	It("waits for the calls that have begun, and takes no others, which are served all the same", func() {
		step, began, release := hanging()
		w := newWorld(step)
		DeferCleanup(release)
		var calls sync.WaitGroup
		calls.Go(func() { defer GinkgoRecover(); w.allowed(hung) })
		Eventually(began).Should(Receive())
		closed, waiting := make(chan error, 1), waited{context.Background(), make(chan struct{}, 1)}
		go func() { closed <- w.recorder.Close(waiting) }()
		Eventually(waiting.by).Should(Receive())
		w.allowed(review(pod))
		Expect(closed).NotTo(Receive())

		release()
		Eventually(closed).Should(Receive(BeNil()))
		Expect(w.counted()).To(Equal(record.Counts{Written: 1}))
		Expect(w.read()).To(HaveExactElements(And(HaveField("Review.Request.Name", "hangs"), HaveField("Review.Response.Allowed", true))))
		Expect(w.logs.all()).To(BeEmpty())
		calls.Wait()
	})

	It("drops the calls that are neither answered nor written at its deadline, and counts them before it returns", func() {
		before := gleak.Goroutines()
		step, began, release := hanging()
		change, writes, proceed := blocking()
		w := newWorld(step, change)
		DeferCleanup(release)
		DeferCleanup(proceed)
		for range 3 {
			w.allowed(review(pod))
		}
		Eventually(writes).Should(BeClosed())
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() { defer GinkgoRecover(); w.allowed(hung) })
			Eventually(began).Should(Receive())
		}

		Expect(w.recorder.Close(ended())).To(MatchError(And(ContainSubstring("before everything was written (5 calls were left)"), ContainSubstring("enough"))))
		expectTold := func() {
			GinkgoHelper()
			Expect(w.counted()).To(Equal(record.Counts{Dropped: 5}))
			Expect(w.logs.all()).To(BeEmpty())
		}
		expectTold()
		Expect(w.recorder.Close(ended())).NotTo(Succeed())
		expectTold()

		release()
		proceed()
		calls.Wait()
		w.close()
		expectTold()
		Expect(w.files()).To(BeEmpty())
		Eventually(w.recorder.Budget).Should(Equal(record.MaxWaitingBytes))
		Eventually(gleak.Goroutines).ShouldNot(gleak.HaveLeaked(before))
	})

	It("is a good one when nothing was left, even if it may not wait", func() {
		for range 10 {
			w := newWorld(allow)
			w.allowed(review(pod))
			Eventually(w.counted).ShouldNot(BeZero())
			Expect(w.recorder.Close(ended())).To(Succeed())
			Expect(w.files()).To(HaveLen(1))
		}
	})

	It("counts the outcome of each call that had begun, at any moment", func() {
		for i := range 20 {
			w := newWorld(allow)
			var calls sync.WaitGroup
			for range 4 {
				calls.Go(func() {
					defer GinkgoRecover()
					for range 20 {
						w.allowed(review(pod))
					}
				})
			}
			Eventually(w.counted).ShouldNot(BeZero())
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*40*time.Microsecond)
			err := w.recorder.Close(ctx)
			cancel()
			told := w.counted()
			calls.Wait()
			w.close()
			Expect(w.counted()).To(Equal(told), "nothing is told later")
			Expect(told.Dropped > 0).To(Equal(err != nil))
			late := 0
			if err != nil {
				late = 1 // which was on its way to the disk
			}
			Expect(len(w.files())).To(And(BeNumerically(">=", told.Written), BeNumerically("<=", told.Written+late)))
		}
	})

	It("leaves no goroutine and no open file", func() {
		before, files := gleak.Goroutines(), openFiles()
		for range 5 {
			dir := GinkgoT().TempDir()
			r, err := record.New(record.Options{Dir: dir}, logr.Discard())
			Expect(err).NotTo(HaveOccurred())
			_, err = record.New(record.Options{Dir: dir}, logr.Discard())
			Expect(err).To(HaveOccurred())
			Expect(r.Close(context.Background())).To(Succeed())
			_, err = record.New(record.Options{Dir: dir + "/\x00"}, logr.Discard())
			Expect(err).To(HaveOccurred())
		}
		Eventually(gleak.Goroutines).ShouldNot(gleak.HaveLeaked(before))
		Eventually(openFiles).Should(BeNumerically("<=", files))
	})
})

// openFiles are the open files of this process, where the system lists them.
func openFiles() int {
	all, _ := os.ReadDir("/proc/self/fd")
	return len(all)
}
