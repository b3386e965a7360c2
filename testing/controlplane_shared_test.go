package eirinixtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// exitVariable makes TestSharedControlPlane end its process as a package without Main does.
const exitVariable = "EIRINIXTEST_EXIT"

// exitCode is one that nobody else gives: the testing package makes 1 and 2 of its own, and panics at 0.
const exitCode = 7

type runFunc func() int

func (f runFunc) Run() int { return f() }

// A package of plain tests that run in parallel, and its TestMain.
func TestSharedControlPlane(t *testing.T) {
	var (
		mu      sync.Mutex
		used    = map[*ControlPlane][]string{} // with the namespaces
		configs = func(o *ControlPlaneOptions) { o.Progress = nil }
	)

	code := Main(runFunc(func() int {
		t.Run("in parallel", func(t *testing.T) {
			for i := range 4 {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					t.Parallel()
					plane := StartControlPlane(t, Shared, configs)
					namespace := plane.NewNamespace(t)

					mu.Lock()
					defer mu.Unlock()
					used[plane] = append(used[plane], namespace)
				})
			}
		})

		if os.Getenv(exitVariable) != "" {
			for plane := range used {
				fmt.Println(plane.dir.path)
			}

			os.Exit(exitCode)
		}

		return exitCode
	}))

	g := NewWithT(t)
	g.Expect(code).To(Equal(exitCode))
	g.Expect(used).To(HaveLen(1), "one control plane for all")

	for plane, namespaces := range used {
		g.Expect(namespaces).To(HaveLen(4))
		g.Expect(namespaces).To(HaveEach(MatchRegexp(`^testsharedcontrolplane-in-parallel-[0-3]-\w{5}$`)))
		g.Expect(plane.etcd.exited).To(BeClosed())
		g.Expect(plane.dir.path).NotTo(BeADirectory())
	}
}

var _ = Describe("a shared ControlPlane", Label("api-server"), Ordered, func() {
	var (
		t      *recordingTB
		shared func(o *ControlPlaneOptions)
	)

	BeforeAll(func(ctx context.Context) {
		assets := specAssets(ctx)
		shared = func(o *ControlPlaneOptions) {
			Shared(o)
			o.Assets, o.Progress = assets, nil
		}
		DeferCleanup(func() { planes.stop(GinkgoWriter) })
	})

	BeforeEach(func() { t = &recordingTB{} })

	It("outlives the test that started it, which cannot stop it", func(ctx context.Context) {
		first := StartControlPlane(t, shared)
		Expect(t.fatal).To(BeEmpty())
		t.cleanup()
		Expect(t.log).To(BeEmpty())
		Expect(first.Stop()).To(MatchError("eirinixtest: leave it to Main to stop this control plane: it is shared"))

		Expect(StartControlPlane(&recordingTB{}, shared)).To(BeIdenticalTo(first))
		_, err := clientset(first.Config()).CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
	})

	It("prints what the servers have logged during a test that fails, and not what they have logged before", func() {
		log := filepath.Join(StartControlPlane(t, shared).LogDir(), "kube-apiserver.log")
		appendTo(log, "of another test\n")

		t = &recordingTB{}
		StartControlPlane(t, shared)
		appendTo(log, "of this test\n")
		t.failed = true
		t.cleanup()
		Expect(t.log).To(ConsistOf(And(
			ContainSubstring("\n--- end of kube-apiserver.log ---\n"),
			ContainSubstring("of this test"), Not(ContainSubstring("of another test")))))

		By("not more of it than somebody reads")
		t = &recordingTB{}
		StartControlPlane(t, shared)
		appendTo(log, strings.Repeat(strings.Repeat("x", 99)+"\n", 1000)+"the end\n")
		t.failed = true
		t.cleanup()
		Expect(t.log).To(ConsistOf(ContainSubstring("the end")))
		Expect(len(t.log[0])).To(And(BeNumerically(">", 4<<9), BeNumerically("<", 4*(4<<10))))
	})

	It("gives each test a namespace of its own, which takes nothing new when the test has ended", func(ctx context.Context) {
		plane := StartControlPlane(t, shared)
		configMaps := func(namespace, name string) error {
			_, err := clientset(plane.Config()).CoreV1().ConfigMaps(namespace).Create(ctx,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})

			return err
		}

		t = &recordingTB{}
		mine, yours := plane.NewNamespace(t), plane.NewNamespace(&recordingTB{})
		Expect(mine).NotTo(Equal(yours))
		Expect(configMaps(mine, "same")).To(Succeed())
		Expect(configMaps(yours, "same")).To(Succeed())

		t.cleanup()
		Expect(apierrors.IsForbidden(configMaps(mine, "late"))).To(BeTrue())
		Expect(configMaps(yours, "late")).To(Succeed())
		t.cleanup()
		Expect(t.log).To(BeEmpty(), "it is going already")
	})

	It("is not given to a test when a server of it has ended", func() {
		plane := StartControlPlane(t, shared)
		Expect(plane.APIServer().Stop()).To(Succeed())
		Expect(StartControlPlane(t, shared)).To(BeNil())
		Expect(t.fatal).To(Equal("eirinixtest: give the test that did this a control plane of its own, without Shared: " +
			"kube-apiserver of the shared control plane was stopped"))

		Expect(plane.etcd.cmd.Process.Kill()).To(Succeed())
		Eventually(plane.etcd.exited).WithTimeout(10 * time.Second).Should(BeClosed())
		Expect(StartControlPlane(t, shared)).To(BeNil())
		Expect(t.fatal).To(ContainSubstring("etcd of the shared control plane had ended by itself: signal: killed"))
		Expect(plane.NewNamespace(t)).To(BeEmpty())
		Expect(t.fatal).To(MatchRegexp("^eirinixtest: NewNamespace: .*connection refused"))

		By("which Main tells too")
		told := &strings.Builder{}
		planes.stop(told)
		Expect(told.String()).To(HavePrefix("eirinixtest: etcd had ended by itself: signal: killed"))
		Expect(plane.dir.path).NotTo(BeADirectory())
	})

	It("fails each test with the same error when it does not start, without trying again", func() {
		assets := install(GinkgoT().TempDir(), "kube-apiserver")
		Expect(os.WriteFile(filepath.Join(assets, "etcd"), []byte("#!/bin/sh\necho started >>\"$0.starts\"; exit 3\n"), 0o700)).To(Succeed())

		tests := make([]recordingTB, 5)
		var ended sync.WaitGroup
		for i := range tests {
			ended.Go(func() {
				StartControlPlane(&tests[i], shared, func(o *ControlPlaneOptions) { o.Assets = assets })
			})
		}
		ended.Wait()

		for i := range tests {
			Expect(tests[i].fatal).To(ContainSubstring("etcd ended before it was ready: exit status 3"))
			Expect(tests[i].fatal).To(Equal(tests[0].fatal))
		}
		Expect(os.ReadFile(filepath.Join(assets, "etcd.starts"))).To(BeEquivalentTo("started\n"))
	})

	It("ends with a process that has no Main, and the next start removes its files", func(ctx context.Context) {
		cache := GinkgoT().TempDir()
		tests := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestSharedControlPlane$")
		opts := ControlPlaneOptions{}
		shared(&opts)
		tests.Env = append(os.Environ(), exitVariable+"=yes", assetsVariable+"="+opts.Assets, "HOME="+cache, "XDG_CACHE_HOME="+cache)

		output, err := tests.Output()
		Expect(err).To(MatchError(fmt.Sprintf("exit status %d", exitCode)), "%s", output)

		folder := strings.TrimSpace(string(output))
		pids := serverPIDs(folder)
		Expect(pids).To(HaveLen(2))
		if runtime.GOOS == "linux" { // elsewhere the next start kills them
			for _, pid := range pids {
				Eventually(commandLine).WithArguments(pid).WithTimeout(5 * time.Second).Should(BeEmpty())
			}
		}

		GinkgoT().Setenv("HOME", cache)
		GinkgoT().Setenv("XDG_CACHE_HOME", cache)
		next, err := newRunDir()
		Expect(err).NotTo(HaveOccurred())
		Expect(folder).NotTo(BeADirectory())
		Expect(next.remove()).To(Succeed())

		for _, pid := range pids {
			Eventually(commandLine).WithArguments(pid).WithTimeout(5 * time.Second).Should(BeEmpty())
		}
	})

	DescribeTable("is for tests that ask for the same", func(change func(*ControlPlaneOptions), same bool) {
		one := ControlPlaneOptions{Assets: "/a", APIServerArgs: []string{"--v=1", "--w=2"}}
		other := one
		change(&other)
		Expect(other.key() == one.key()).To(Equal(same))
	},
		Entry("wherever the progress goes", func(o *ControlPlaneOptions) { o.Progress = os.Stderr }, true),
		Entry("not other binaries", func(o *ControlPlaneOptions) { o.Assets = "/b" }, false),
		Entry("not a controller manager", func(o *ControlPlaneOptions) { o.ControllerManager = true }, false),
		Entry("not other flags", func(o *ControlPlaneOptions) { o.APIServerArgs = []string{"--v=1 --w=2"} }, false),
		Entry("not logs elsewhere", func(o *ControlPlaneOptions) { o.LogDir = "/l" }, false),
	)

	It("is another when the environment names other binaries", func() {
		before := ControlPlaneOptions{}.key()
		GinkgoT().Setenv(assetsVariable, "/elsewhere")
		Expect(ControlPlaneOptions{}.key()).NotTo(Equal(before))
	})

	DescribeTable("names namespaces after tests", func(test, prefix string) {
		Expect(namespacePrefix(&namedTB{name: test})).To(Equal(prefix))
	},
		Entry("plain", "TestSidecar", "testsidecar-"),
		Entry("with a case", "TestSidecar/no root, ever!", "testsidecar-no-root-ever-"),
		Entry("long", strings.Repeat("x", 39)+" "+strings.Repeat("y", 40), strings.Repeat("x", 39)+"-"),
		Entry("of another script", "тест", "test-"),
	)

	It("logs nothing where nothing was logged", func() {
		dir := GinkgoT().TempDir()
		appendTo(filepath.Join(dir, "etcd.log"), "before\n")
		Expect(loggedSince(dir, logSizes(dir))).To(Equal("the control plane has logged nothing since the test began"))
	})
})

type namedTB struct {
	recordingTB
	name string
}

func (t *namedTB) Name() string { return t.name }

func appendTo(path, text string) {
	GinkgoHelper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	Expect(err).NotTo(HaveOccurred())
	_, err = file.WriteString(text)
	Expect(err).NotTo(HaveOccurred())
	Expect(file.Close()).To(Succeed())
}
