package record_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/record"
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

var _ = Describe("A folder into which a recorder writes", func() {
	const old = "20200101t000000.000000000z-create-pods-cf-old-00000000.json"
	var dir string
	BeforeEach(func() {
		dir = GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(dir, old), []byte(review(pod)), 0o600)).To(Succeed())
	})
	again := func() (*record.Recorder, error) {
		return record.New(record.Options{Dir: dir, MaxBytes: 1}, logr.Discard())
	}
	beRefused := MatchError(And(ContainSubstring("another recording"), ContainSubstring("stop that one, or name another folder")))
	end := func(r *record.Recorder) {
		GinkgoHelper()
		Expect(r.Close(context.Background())).To(Succeed())
	}

	It("is closed to others, who touch nothing, until the recorder ends", func() {
		w := newWorld(allow, func(o *record.Options) { o.Dir = dir })
		w.allowed(review(pod))
		for range 3 {
			_, err := again()
			Expect(err).To(beRefused)
			Expect(err).To(MatchError(ContainSubstring(dir)))
		}
		Expect(record.Read(dir)).NotTo(BeEmpty(), "who reads is not disturbed")
		Expect(filepath.Join(dir, old)).To(BeAnExistingFile())
		Expect(w.read()).To(HaveLen(2))
		Expect(w.files()).To(HaveLen(2), "no trace is left")

		r, err := again()
		Expect(err).NotTo(HaveOccurred())
		Expect(filepath.Join(dir, old)).NotTo(BeAnExistingFile(), "now they may")
		end(r)
	})

	It("is closed until the recorder has ended, even after Close has given up waiting", func() {
		change, began, release := blocking()
		w := newWorld(allow, change, func(o *record.Options) { o.Dir = dir })
		DeferCleanup(release)
		w.allowed(review(pod))
		Eventually(began).Should(BeClosed())
		Expect(w.recorder.Close(ended())).NotTo(Succeed())
		_, err := again()
		Expect(err).To(beRefused)
		release()
		w.close()
		r, err := again()
		Expect(err).NotTo(HaveOccurred())
		end(r)
	})

	It("is closed to other processes, until this one dies", func() {
		if runtime.GOOS == "windows" || runtime.GOOS == "plan9" {
			Skip("who dies there gives up nothing that can be seen from here")
		}
		other := exec.Command(os.Args[0]) //nolint:gosec // ourselves
		other.Env = append(os.Environ(), recordInto+"="+dir)
		_, err := other.StdinPipe() // open as long as we wait for it
		Expect(err).NotTo(HaveOccurred())
		stdout, err := other.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(other.Start()).To(Succeed())
		DeferCleanup(func() { _ = other.Process.Kill() })
		Expect(bufio.NewReader(stdout).ReadString('\n')).To(Equal("<nil>\n"))

		_, err = again()
		Expect(err).To(beRefused)
		Expect(filepath.Join(dir, old)).To(BeAnExistingFile())
		Expect(other.Process.Kill()).To(Succeed())
		Expect(other.Wait()).NotTo(Succeed())
		r, err := again()
		Expect(err).NotTo(HaveOccurred(), "the file that a crash leaves is not a lock")
		end(r)
		Expect(filesOf(dir)).To(BeEmpty())
	})

	It("is not that of who cleans it up and records there instead", func() {
		w := newWorld(allow, func(o *record.Options) { o.Dir = dir })
		Expect(os.RemoveAll(dir)).To(Succeed())
		other, err := again()
		Expect(err).NotTo(HaveOccurred())
		w.allowed(review(pod))
		w.close()
		Expect(w.counted()).To(Equal(record.Counts{Failed: 1}))
		Expect(w.logs.all()).To(ConsistOf(ContainSubstring("another recording")))
		_, err = again()
		Expect(err).To(beRefused, "the end of the one takes nothing away from the other")
		end(other)
	})

	It("is not lost when the lock file is deleted", func() {
		w := newWorld(allow, func(o *record.Options) { o.Dir = dir })
		Expect(os.Remove(filepath.Join(dir, ".eirinix.lock"))).To(Succeed())
		w.allowed(review(pod))
		Eventually(w.counted).Should(Equal(record.Counts{Written: 1}))
		_, err := again()
		Expect(err).To(beRefused)
	})

	It("is free again when it cannot be opened", func() {
		Expect(os.Remove(filepath.Join(dir, old))).To(Succeed())
		Expect(os.MkdirAll(filepath.Join(dir, ".eirinix.lock", "full"), 0o700)).To(Succeed())
		_, err := again()
		Expect(err).To(MatchError(And(ContainSubstring(".eirinix.lock"), ContainSubstring("name a folder that can be written to"))))
		Expect(os.RemoveAll(filepath.Join(dir, ".eirinix.lock"))).To(Succeed())
		r, err := again()
		Expect(err).NotTo(HaveOccurred())
		end(r)
	})

	It("is refused when its lock is a symbolic link, which is not followed", func() {
		if runtime.GOOS == "windows" || runtime.GOOS == "plan9" {
			Skip("a link is removed there, like any file that can be")
		}
		elsewhere, link := filepath.Join(GinkgoT().TempDir(), "elsewhere"), filepath.Join(dir, ".eirinix.lock")
		Expect(os.Symlink(elsewhere, link)).To(Succeed())
		_, err := again()
		Expect(err).To(MatchError(And(ContainSubstring("remove "+link), ContainSubstring("name another folder"), ContainSubstring("symbolic link"))))
		Expect(elsewhere).NotTo(BeAnExistingFile())
		Expect(os.Remove(link)).To(Succeed())

		w := newWorld(allow, func(o *record.Options) { o.Dir = dir })
		Expect(os.Rename(link, elsewhere)).To(Succeed())
		Expect(os.Symlink(elsewhere, link)).To(Succeed())
		w.allowed(review(pod))
		w.close()
		Expect(w.counted()).To(Equal(record.Counts{Failed: 1}), "nor when it becomes one")
		Expect(w.logs.all()).To(ConsistOf(ContainSubstring("symbolic link")))
	})

	DescribeTable("is warned of when other users may replace its files", func(mode os.FileMode, warned bool) {
		if runtime.GOOS == "windows" || runtime.GOOS == "plan9" {
			Skip("folders have no such permissions there")
		}
		Expect(os.Chmod(dir, mode)).To(Succeed())
		w := newWorld(allow, func(o *record.Options) { o.Dir = dir })
		w.allowed(review(pod))
		Expect(w.read()).NotTo(BeEmpty(), "it is recorded all the same")
		beWarned := ConsistOf(And(ContainSubstring("other users may replace recordings"), ContainSubstring("name a new folder in it"), ContainSubstring(dir), ContainSubstring(mode.String())))
		if !warned {
			beWarned = BeEmpty()
		}
		Expect(w.logs.all()).To(beWarned)
	},
		Entry("group", os.ModeDir|0o770, true),
		Entry("others", os.ModeDir|0o702, true),
		Entry("all, as in an emptyDir", os.ModeDir|0o777, true),
		Entry("none, though they may read", os.ModeDir|0o755, false),
		Entry("none, in a folder like /tmp", os.ModeDir|os.ModeSticky|0o777, false),
	)

	It("is made for one user alone", func() {
		w := newWorld(allow)
		info, err := os.Stat(w.dir)
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm() & 0o077).To(BeZero())
		w.close()
		Expect(w.logs.all()).To(BeEmpty())
	})
})
