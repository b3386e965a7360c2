package record_test

// The folder of recordings: it is bounded, and belongs to one recorder at a time.

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/record"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// recordInto makes the test program another one, which records into a folder until it is killed.
const recordInto = "EIRINIX_TEST_RECORD_INTO"

func TestMain(m *testing.M) {
	dir := os.Getenv(recordInto)
	if dir == "" {
		os.Exit(m.Run()) //nolint:forbidigo // this is a main
	}
	_, err := record.New(record.Options{Dir: dir}, logr.Discard())
	fmt.Println(err)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// old is the name of a recording that is older than all others.
const old = "20200101t000000.000000000z-create-pods-cf-old-00000000.json"

var _ = Describe("The folder", func() {
	// fill records n calls one after the other.
	fill := func(w *world, n int) []record.Recorded {
		GinkgoHelper()
		for range n {
			w.allowed(review(pod))
		}
		return w.read()
	}

	It("holds so many files, of which the oldest go first, also those of an earlier run", func() {
		w := newWorld(allow, func(o *record.Options) { o.MaxFiles = 3 })
		first := fill(w, 5)
		Expect(first).To(HaveLen(3))
		Expect(w.counted()).To(HaveField("Written", 5))

		second := fill(newWorld(allow, func(o *record.Options) { o.Dir, o.MaxFiles = w.dir, 4 }), 3)
		Expect(second).To(HaveLen(4))
		Expect(second[0]).To(Equal(first[2]), "the newest of the earlier run is left")

		last := newWorld(allow, func(o *record.Options) { o.Dir, o.MaxFiles = w.dir, 1 })
		Expect(last.read()).To(Equal(second[3:]), "too many are removed at the start")
	})

	It("takes so many bytes, and does not give up everything for a call that is larger", func() {
		w := newWorld(allow, func(o *record.Options) { o.MaxBytes = 5000 })
		for range 30 {
			w.allowed(review(pod))
		}
		w.allowed(review(`{"x":"` + strings.Repeat("x", 6000) + `"}`))
		w.close()
		size := 0
		for _, text := range filesOf(w.dir) {
			size += len(text)
		}
		Expect(size).To(And(BeNumerically("<=", 5000), BeNumerically(">", 4000)))
		Expect(w.counted()).To(Equal(record.Counts{Failed: 1, Written: 30}))
	})

	It("has a file for each of the calls that came at one moment, by a coarse clock, in their order", func() {
		dir, at := GinkgoT().TempDir(), time.Date(2026, 11, 21, 14, 45, 22, 999_999_999, time.UTC)
		var texts []string
		for _, by := range []string{"a", "b", "c"} {
			texts = append(texts, strings.Replace(review(pod), uid, by, 1))
		}
		Expect(record.StoreAt(dir, at, "-create", texts...)).To(Succeed())
		Expect(record.Read(dir)).To(HaveExactElements(
			HaveField("Review.Request.UID", BeEquivalentTo("a")), HaveField("Review.Request.UID", BeEquivalentTo("b")),
			And(HaveField("Review.Request.UID", BeEquivalentTo("c")), HaveField("File", HaveSuffix("/20261121t144523.000000001z-create.json")))))
	})

	It("keeps nothing of a file that could not get its name", func() {
		dir := GinkgoT().TempDir()
		Expect(record.StoreAt(dir, time.Now(), "-no/folder", review(pod))).NotTo(Succeed())
		Expect(filesOf(dir)).To(BeEmpty())
	})

	It("keeps the files of others", func() {
		dir := GinkgoT().TempDir()
		others := []string{"notes.json", "20200101t000000.000000000z.txt", "a" + old, "20200101t000000.000000000z-UP.json"}
		for _, name := range others {
			Expect(os.WriteFile(filepath.Join(dir, name), []byte(review(pod)), 0o600)).To(Succeed())
		}
		Expect(os.Mkdir(filepath.Join(dir, old), 0o700)).To(Succeed())
		fill(newWorld(allow, func(o *record.Options) { o.Dir, o.MaxFiles = dir, 1 }), 3)
		for _, name := range append(others, old) {
			Must(os.Stat(filepath.Join(dir, name)))
		}
		Expect(filepath.Glob(filepath.Join(dir, "*-create-pods-cf-web-0-*"))).To(HaveLen(1))
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
		Expect(w.logs.All()).To(ConsistOf(ContainSubstring("the oldest recording cannot be removed")))
	})

	It("loses the unfinished files of a crash, and no file that may still be written", func() {
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

	It("is made again when it was deleted, and calls are answered, counted and logged now and then where it cannot be", func() {
		w := newWorld(allow)
		Expect(os.RemoveAll(w.dir)).To(Succeed())
		w.allowed(review(pod))
		Eventually(w.counted).Should(Equal(record.Counts{Written: 1}))
		Expect(os.RemoveAll(w.dir)).To(Succeed())
		Expect(os.WriteFile(w.dir, nil, 0o600)).To(Succeed())
		for range 50 {
			w.allowed(review(pod))
		}
		w.close()
		Expect(w.counted()).To(Equal(record.Counts{Written: 1, Failed: 50}))
		Expect(w.logs.All()).To(ConsistOf(And(ContainSubstring(`"kind":"disk"`), ContainSubstring(w.dir))))
	})
})

var _ = Describe("A folder into which a recorder writes", func() {
	var dir, lock string
	BeforeEach(func() {
		dir = GinkgoT().TempDir()
		lock = filepath.Join(dir, ".eirinix.lock")
		Expect(os.WriteFile(filepath.Join(dir, old), []byte(review(pod)), 0o600)).To(Succeed())
	})
	into := func(o *record.Options) { o.Dir = dir }
	again := func() (*record.Recorder, error) {
		return record.New(record.Options{Dir: dir, MaxBytes: 1}, logr.Discard())
	}
	expectRefused := func(why ...any) {
		GinkgoHelper()
		_, err := again()
		Expect(err).To(MatchError(And(ContainSubstring("another recording"), ContainSubstring("stop that one, or name another folder"), ContainSubstring(dir))), why...)
	}
	expectFree := func(why ...any) {
		GinkgoHelper()
		r, err := again()
		Expect(err).NotTo(HaveOccurred(), why...)
		Expect(r.Close(context.Background())).To(Succeed())
	}
	onlyWithFlock := func() {
		if runtime.GOOS == "windows" || runtime.GOOS == "plan9" {
			Skip("locks, links and permissions are others there")
		}
	}

	It("is closed to others, who touch nothing, until the recorder ends", func() {
		w := newWorld(allow, into)
		w.allowed(review(pod))
		expectRefused()
		expectRefused()
		Expect(record.Read(dir)).NotTo(BeEmpty(), "who reads is not disturbed")
		Expect(filepath.Join(dir, old)).To(BeAnExistingFile())
		Expect(w.read()).To(HaveLen(2))
		Expect(lock).NotTo(BeAnExistingFile(), "no trace is left")
		expectFree()
		Expect(filepath.Join(dir, old)).NotTo(BeAnExistingFile(), "now they may")
	})

	It("is closed until the recorder has ended, even after Close has given up waiting", func() {
		change, began, release := blocking()
		w := newWorld(allow, change, into)
		DeferCleanup(release)
		w.allowed(review(pod))
		Eventually(began).Should(BeClosed())
		Expect(w.recorder.Close(ended())).NotTo(Succeed())
		expectRefused()
		release()
		w.close()
		expectFree()
	})

	It("is closed to other processes, until this one dies", func() {
		onlyWithFlock()
		other := exec.Command(os.Args[0]) //nolint:gosec // ourselves
		other.Env = append(os.Environ(), recordInto+"="+dir)
		Must(other.StdinPipe()) // open as long as we wait for it
		stdout := Must(other.StdoutPipe())
		Expect(other.Start()).To(Succeed())
		DeferCleanup(func() { _ = other.Process.Kill() })
		Expect(bufio.NewReader(stdout).ReadString('\n')).To(Equal("<nil>\n"))

		expectRefused()
		Expect(other.Process.Kill()).To(Succeed())
		Expect(other.Wait()).NotTo(Succeed())
		expectFree("the file that a crash leaves is not a lock")
		Expect(lock).NotTo(BeAnExistingFile())
	})

	It("is not that of who cleans it up and records there instead", func() {
		w := newWorld(allow, into)
		Expect(os.RemoveAll(dir)).To(Succeed())
		other := Must(again())
		w.allowed(review(pod))
		w.close()
		Expect(w.counted()).To(Equal(record.Counts{Failed: 1}))
		Expect(w.logs.All()).To(ConsistOf(ContainSubstring("another recording")))
		expectRefused("the end of the one takes nothing away from the other")
		Expect(other.Close(context.Background())).To(Succeed())
	})

	It("is not lost when the lock file is deleted", func() {
		w := newWorld(allow, into)
		Expect(os.Remove(lock)).To(Succeed())
		w.allowed(review(pod))
		Eventually(w.counted).Should(Equal(record.Counts{Written: 1}))
		expectRefused()
	})

	It("is free with the lock file of a crash, and again when that could not be opened", func() {
		Expect(os.WriteFile(lock, nil, 0o600)).To(Succeed())
		expectFree("the file is not the lock")
		Expect(lock).NotTo(BeAnExistingFile())
		Expect(os.MkdirAll(filepath.Join(lock, "full"), 0o700)).To(Succeed())
		_, err := again()
		Expect(err).To(MatchError(And(ContainSubstring(".eirinix.lock"), ContainSubstring("mount an emptyDir"))))
		Expect(os.RemoveAll(lock)).To(Succeed())
		expectFree()
	})

	It("is refused when its lock is a symbolic link, which is not followed", func() {
		onlyWithFlock()
		elsewhere := filepath.Join(GinkgoT().TempDir(), "elsewhere")
		Expect(os.Symlink(elsewhere, lock)).To(Succeed())
		_, err := again()
		Expect(err).To(MatchError(And(ContainSubstring("remove "+lock), ContainSubstring("name another folder"), ContainSubstring("symbolic link"))))
		Expect(elsewhere).NotTo(BeAnExistingFile())
		Expect(os.Remove(lock)).To(Succeed())

		w := newWorld(allow, into)
		Expect(os.Rename(lock, elsewhere)).To(Succeed())
		Expect(os.Symlink(elsewhere, lock)).To(Succeed())
		w.allowed(review(pod))
		w.close()
		Expect(w.counted()).To(Equal(record.Counts{Failed: 1}), "nor when it becomes one")
		Expect(w.logs.All()).To(ConsistOf(ContainSubstring("symbolic link")))
	})

	DescribeTable("is warned of when other users may replace its files", func(mode os.FileMode, warned bool) {
		onlyWithFlock()
		Expect(os.Chmod(dir, mode)).To(Succeed())
		w := newWorld(allow, into)
		w.allowed(review(pod))
		Expect(w.read()).NotTo(BeEmpty(), "it is recorded all the same")
		beWarned := ConsistOf(And(ContainSubstring("other users may replace recordings"), ContainSubstring("name a new folder in it"), ContainSubstring(dir), ContainSubstring(mode.String())))
		if !warned {
			beWarned = BeEmpty()
		}
		Expect(w.logs.All()).To(beWarned)
	},
		Entry("group", os.ModeDir|0o770, true),
		Entry("others", os.ModeDir|0o702, true),
		Entry("none, though they may read", os.ModeDir|0o755, false),
		Entry("none, in a folder like /tmp", os.ModeDir|os.ModeSticky|0o777, false),
	)
})
