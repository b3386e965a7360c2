package record_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"

	"code.cloudfoundry.org/eirinix/internal/record"
)

// blocking blocks the goroutine that writes at its first call, until release. Register release with DeferCleanup after
// newWorld: otherwise the end of the world waits for the blocked goroutine.
func blocking() (change func(*record.Options), began <-chan struct{}, release func()) {
	wait, first := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(first) })
	return func(o *record.Options) {
		o.Only = func(*admissionv1.AdmissionRequest) bool {
			begin()
			<-wait
			return true
		}
	}, first, sync.OnceFunc(func() { close(wait) })
}

var _ = Describe("A recorder that cannot keep up", func() {
	It("drops calls that find no place, logs this once, and answers all the same", func() {
		change, began, release := blocking()
		w := newWorld(allow, change)
		DeferCleanup(release)
		w.allowed(review(pod))
		Eventually(began).Should(BeClosed())
		for range record.MaxWaiting + 20 {
			w.allowed(review(pod))
		}
		Expect(w.counted()).To(Equal(record.Counts{Dropped: 20}))
		Expect(w.logs.all()).To(ConsistOf(And(ContainSubstring("more calls came than could be written"), ContainSubstring(`"droppedBefore":0`))))
		release()
		Expect(w.read()).To(HaveLen(record.MaxWaiting + 1))
	})

	It("bounds the bytes that wait as well as the calls", func() {
		change, _, release := blocking()
		w := newWorld(allow, change)
		DeferCleanup(release)
		w.budget = 3 << 20
		w.recorder.SetBudget(w.budget)
		large := review(`{"kind":"Pod","x":"` + strings.Repeat("x", 900<<10) + `"}`)
		for range 10 {
			w.allowed(large)
		}
		Expect(w.recorder.Budget()).To(And(BeNumerically(">=", 0), BeNumerically("<", 1<<20)))
		Expect(w.counted()).To(Equal(record.Counts{Dropped: 7}))
		release()
		Expect(w.read()).To(HaveLen(3))
	})
})

// panickingSink is a logger of the program that panics.
type panickingSink struct{}

func (panickingSink) Init(logr.RuntimeInfo)            {}
func (panickingSink) Enabled(int) bool                 { return true }
func (panickingSink) Info(int, string, ...any)         { panic("oops") }
func (panickingSink) Error(error, string, ...any)      {}
func (p panickingSink) WithValues(...any) logr.LogSink { return p }
func (p panickingSink) WithName(string) logr.LogSink   { return p }

var _ = Describe("A recorder whose disk fails", func() {
	It("counts the lost calls, logs this now and then, and the handler still answers", func() {
		w := newWorld(allow)
		Expect(os.RemoveAll(w.dir)).To(Succeed())
		Expect(os.WriteFile(w.dir, nil, 0o600)).To(Succeed())
		for range 50 {
			w.allowed(review(pod))
		}
		w.close()
		Expect(w.counted()).To(Equal(record.Counts{Failed: 50}))
		Expect(w.logs.all()).To(ConsistOf(And(ContainSubstring(`"kind":"disk"`), ContainSubstring(w.dir))))
	})

	It("makes its folder again when it was deleted", func() {
		w := newWorld(allow)
		Expect(os.RemoveAll(w.dir)).To(Succeed())
		w.allowed(review(pod))
		Expect(w.read()).To(HaveLen(1))
	})

	It("survives panics of the functions that it calls", func() {
		w := newWorldWith(panickingSink{}, allow, func(o *record.Options) {
			o.Only = func(r *admissionv1.AdmissionRequest) bool {
				if r.Namespace == "" {
					panic("oops")
				}
				return true
			}
		})
		w.allowed(strings.ReplaceAll(review(pod), `"namespace":"cf"`, `"namespace":""`))
		w.allowed(review(pod))
		Expect(w.read()).To(HaveLen(1))
		Expect(w.counted()).To(Equal(record.Counts{Failed: 1, Written: 1}))
	})
})

var _ = Describe("The folder", func() {
	const old = "20200101t000000.000000000z-create-pods-cf-old-00000000.json"

	// fill records n calls one after the other, and returns their names.
	fill := func(w *world, n int) []string {
		GinkgoHelper()
		for range n {
			w.allowed(review(pod))
		}
		w.close()
		all, err := filepath.Glob(filepath.Join(w.dir, "*-create-pods-*.json"))
		Expect(err).NotTo(HaveOccurred())
		return all
	}

	It("holds so many files, of which the oldest go first, also those of an earlier run", func() {
		w := newWorld(allow, func(o *record.Options) { o.MaxFiles = 3 })
		Expect(fill(w, 5)).To(HaveLen(3))
		Expect(w.counted()).To(HaveField("Written", 5))
		first := w.read()

		in := func(o *record.Options) { o.Dir, o.MaxFiles = w.dir, 4 }
		next := newWorld(allow, in)
		fill(next, 3)
		second := next.read()
		Expect(second).To(HaveLen(4))
		Expect(second[0]).To(Equal(first[2]), "the newest of the earlier run is left")

		in = func(o *record.Options) { o.Dir, o.MaxFiles = w.dir, 1 }
		last := newWorld(allow, in)
		Expect(last.read()).To(Equal(second[3:]), "too many are removed at the start")
	})

	It("takes so many bytes", func() {
		w := newWorld(allow, func(o *record.Options) { o.MaxBytes = 5000 })
		fill(w, 30)
		size := 0
		files := w.files()
		for _, text := range files {
			size += len(text)
		}
		Expect(size).To(And(BeNumerically("<=", 5000), BeNumerically(">", 4000)))
		Expect(w.logs.all()).To(BeEmpty())
	})

	It("does not give up everything for one that is too large", func() {
		w := newWorld(allow, func(o *record.Options) { o.MaxBytes = 5000 })
		w.allowed(review(pod))
		w.allowed(review(`{"x":"` + strings.Repeat("x", 6000) + `"}`))
		Expect(w.read()).To(HaveLen(1))
		Expect(w.counted()).To(Equal(record.Counts{Failed: 1, Written: 1}))
	})

	It("keeps the files of others", func() {
		dir := GinkgoT().TempDir()
		others := []string{"notes.json", "20200101t000000.000000000z.txt", "a" + old, ".hidden", "20200101t000000.000000000z-UP.json"}
		for _, name := range others {
			Expect(os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600)).To(Succeed())
		}
		Expect(os.Mkdir(filepath.Join(dir, old), 0o700)).To(Succeed())
		w := newWorld(allow, func(o *record.Options) { o.Dir, o.MaxFiles = dir, 1 })
		for range 3 {
			w.allowed(review(pod))
		}
		w.close()
		entries, err := os.ReadDir(dir)
		Expect(err).NotTo(HaveOccurred())
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		Expect(names).To(ConsistOf(append([]any{old, MatchRegexp("-create-pods-cf-web-0-")}, anys(others)...)...))
	})

	It("is not filled further when the oldest cannot be removed", func() {
		dir := GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(dir, old), []byte("{}"), 0o600)).To(Succeed())
		w := newWorld(allow, func(o *record.Options) { o.Dir, o.MaxFiles = dir, 1 })
		Expect(os.Remove(filepath.Join(dir, old))).To(Succeed())
		Expect(os.MkdirAll(filepath.Join(dir, old, "full"), 0o700)).To(Succeed())
		w.allowed(review(pod))
		w.close()
		Expect(w.counted()).To(Equal(record.Counts{Failed: 1}))
		Expect(w.logs.all()).To(ConsistOf(ContainSubstring("the oldest recording cannot be removed")))
	})

	It("removes the unfinished files of a crash, and no file that may still be written", func() {
		dir := GinkgoT().TempDir()
		crashed, young := filepath.Join(dir, ".eirinix-1.tmp"), filepath.Join(dir, ".eirinix-2.tmp")
		for _, f := range []string{crashed, young} {
			Expect(os.WriteFile(f, nil, 0o600)).To(Succeed())
		}
		long := time.Now().Add(-2 * time.Hour)
		Expect(os.Chtimes(crashed, long, long)).To(Succeed())
		newWorld(allow, func(o *record.Options) { o.Dir = dir })
		Expect(crashed).NotTo(BeAnExistingFile())
		Expect(young).To(BeAnExistingFile())
	})
})

func anys(words []string) []any {
	var all []any
	for _, w := range words {
		all = append(all, w)
	}
	return all
}

var _ = Describe("Many calls at once", func() {
	It("leave a whole file each", func() {
		w := newWorld(allow)
		var calls sync.WaitGroup
		for i := range 100 {
			calls.Go(func() {
				defer GinkgoRecover()
				filling := strings.Repeat(fmt.Sprint(i), 1+i*100)
				body := strings.NewReplacer(uid, fmt.Sprintf("call-%d", i), `"name":"web-0","namespace"`, fmt.Sprintf(`"name":"web-%d","namespace"`, i)).Replace(review(`{"x":"` + filling + `"}`))
				resp, err := http.Post(w.URL+path, "application/json", strings.NewReader(body))
				Expect(err).NotTo(HaveOccurred())
				Expect(resp.Body.Close()).To(Succeed())
			})
		}
		calls.Wait()
		seen := map[string]bool{}
		for _, r := range w.read() {
			req := r.Review.Request
			i := strings.TrimPrefix(req.Name, "web-")
			Expect(req.UID).To(BeEquivalentTo("call-" + i))
			Expect(r.Review.Response.UID).To(Equal(req.UID), "the answer is that to the question")
			Expect(strings.ReplaceAll(string(req.Object.Raw), i, "")).To(Equal(`{"x":""}`))
			Expect(r.File).To(ContainSubstring("-" + req.Name + "-"))
			seen[i] = true
		}
		Expect(seen).To(HaveLen(100))
		Expect(w.counted()).To(Equal(record.Counts{Written: 100}))
	})
})
