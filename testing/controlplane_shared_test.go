package eirinixtest_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// exitCode differs from the exit codes of the testing package, which are 0, 1 and 2.
const exitCode = 7

type runFunc func() int

func (f runFunc) Run() int { return f() }

// stopShared stops the control planes that the tests of this process share.
func stopShared() { eirinixtest.Main(runFunc(func() int { return 0 })) }

// A package of plain tests that run in parallel, and its TestMain.
func TestSharedControlPlane(t *testing.T) {
	if !RunsAPIServer() {
		t.Skip("it starts an API server")
	}
	var (
		mu      sync.Mutex
		used    = map[*eirinixtest.ControlPlane][]string{} // with the namespaces
		configs = func(o *eirinixtest.ControlPlaneOptions) {
			o.Progress, o.APIServerArgs = nil, []string{"--v=0"} // no other spec asks for these flags
		}
	)
	code := eirinixtest.Main(runFunc(func() int {
		t.Run("in parallel", func(t *testing.T) {
			for i := range 4 {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					t.Parallel()
					plane := eirinixtest.StartControlPlane(t, eirinixtest.Shared, configs)
					namespace := plane.NewNamespace(t)

					mu.Lock()
					defer mu.Unlock()
					used[plane] = append(used[plane], namespace)
				})
			}
		})
		return exitCode
	}))
	g := NewWithT(t)
	g.Expect(code).To(Equal(exitCode))
	g.Expect(used).To(HaveLen(1), "one control plane for all")
	for plane, namespaces := range used {
		g.Expect(namespaces).To(HaveLen(4))
		g.Expect(namespaces).To(HaveEach(MatchRegexp(`^testsharedcontrolplane-in-parallel-[0-3]-\w{5}$`)))
		g.Expect(filepath.Dir(plane.Kubeconfig())).NotTo(BeADirectory())
		g.Expect(connect(plane.Config().Host)).To(MatchError(syscall.ECONNREFUSED))
	}
}

var _ = Describe("a shared ControlPlane", Label("api-server"), Ordered, func() {
	var t *recordingTB
	shared := func(o *eirinixtest.ControlPlaneOptions) {
		eirinixtest.Shared(o)
		o.APIServerArgs, o.Progress = []string{"--v=1"}, nil // no other spec asks for these flags
	}
	BeforeAll(func() { DeferCleanup(stopShared) })
	BeforeEach(func() { t = &recordingTB{} })

	It("outlives the test that started it, which cannot stop it", func(ctx context.Context) {
		first := eirinixtest.StartControlPlane(t, shared)
		Expect(t.fatal).To(BeEmpty())
		t.cleanup()
		Expect(t.log).To(BeEmpty())
		Expect(first.Stop()).To(MatchError("eirinixtest: leave it to Main to stop this control plane: it is shared"))
		Expect(first.StartControllerManager(ctx)).To(MatchError(ContainSubstring("set ControlPlaneOptions.ControllerManager")))

		Expect(eirinixtest.StartControlPlane(&recordingTB{}, shared)).To(BeIdenticalTo(first))
		Must(Clients(first.Config()).CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}))
	})

	It("prints the servers' log of a test that fails, and not their log before it", func() {
		log := filepath.Join(eirinixtest.StartControlPlane(t, shared).LogDir(), "kube-apiserver.log")
		appendTo(log, "of another test\n")

		t = &recordingTB{}
		eirinixtest.StartControlPlane(t, shared)
		appendTo(log, "of this test\n")
		t.failed = true
		t.cleanup()
		Expect(t.log).To(ConsistOf(And(
			ContainSubstring("\n--- end of kube-apiserver.log ---\n"),
			ContainSubstring("of this test"), Not(ContainSubstring("of another test")))))

		By("not more of it than is useful")
		t = &recordingTB{}
		eirinixtest.StartControlPlane(t, shared)
		appendTo(log, strings.Repeat(strings.Repeat("x", 99)+"\n", 1000)+"the end\n")
		t.failed = true
		t.cleanup()
		Expect(t.log).To(ConsistOf(ContainSubstring("the end")))
		Expect(len(t.log[0])).To(And(BeNumerically(">", 4<<9), BeNumerically("<", 4*(4<<10))))
	})

	It("gives each test a namespace of its own, which takes nothing new when the test has ended", func(ctx context.Context) {
		plane := eirinixtest.StartControlPlane(t, shared)
		configMaps := func(namespace, name string) error {
			_, err := Clients(plane.Config()).CoreV1().ConfigMaps(namespace).Create(ctx,
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

	DescribeTable("names namespaces after tests", func(test, prefix string) {
		name := eirinixtest.StartControlPlane(t, shared).NewNamespace(&namedTB{name: test})
		Expect(name).To(MatchRegexp("^%s\\w{5}$", prefix))
	},
		Entry("plain", "TestSidecar", "testsidecar-"),
		Entry("with a case", "TestSidecar/no root, ever!", "testsidecar-no-root-ever-"),
		Entry("long", strings.Repeat("x", 39)+" "+strings.Repeat("y", 40), strings.Repeat("x", 39)+"-"),
		Entry("of another script", "тест", "test-"),
	)

	It("is not given to a test when a server of it has ended", func() {
		plane := eirinixtest.StartControlPlane(t, shared)
		Expect(plane.APIServer().Stop()).To(Succeed())
		Expect(eirinixtest.StartControlPlane(t, shared)).To(BeNil())
		Expect(t.fatal).To(Equal("eirinixtest: give the test that did this a control plane of its own, without Shared: " +
			"kube-apiserver of the shared control plane was stopped"))

		folder := filepath.Dir(plane.Kubeconfig())
		Expect(syscall.Kill(serverPIDs(folder)["etcd"], syscall.SIGKILL)).To(Succeed())
		Eventually(func() string {
			Expect(eirinixtest.StartControlPlane(t, shared)).To(BeNil())
			return t.fatal
		}).WithTimeout(2 * time.Minute).Should(
			ContainSubstring("etcd of the shared control plane had ended by itself: signal: killed"))
		Expect(plane.NewNamespace(t)).To(BeEmpty())
		Expect(t.fatal).To(MatchRegexp("^eirinixtest: NewNamespace: .*connection refused"))

		By("and Main reports it")
		stderr := Must(os.Create(filepath.Join(GinkgoT().TempDir(), "stderr")))
		defer stderr.Close()
		before := os.Stderr
		os.Stderr = stderr
		stopShared()
		os.Stderr = before
		Expect(os.ReadFile(stderr.Name())).To(HavePrefix("eirinixtest: etcd had ended by itself: signal: killed"))
		Expect(folder).NotTo(BeADirectory())
	})

	It("fails each test with the same error when it does not start, without trying again", func() {
		assets := failingAssets("echo started >>\"$0.starts\"")

		tests := make([]recordingTB, 5)
		var ended sync.WaitGroup
		for i := range tests {
			ended.Go(func() {
				eirinixtest.StartControlPlane(&tests[i], shared, func(o *eirinixtest.ControlPlaneOptions) { o.Assets = assets })
			})
		}
		ended.Wait()
		for i := range tests {
			Expect(tests[i].fatal).To(ContainSubstring("etcd ended before it was ready: exit status 3"))
			Expect(tests[i].fatal).To(Equal(tests[0].fatal))
		}
		Expect(os.ReadFile(filepath.Join(assets, "etcd.starts"))).To(BeEquivalentTo("started\n"))
	})
})

type namedTB struct {
	recordingTB
	name string
}

func (t *namedTB) Name() string { return t.name }

func appendTo(path, text string) {
	GinkgoHelper()
	file := Must(os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))
	Must(file.WriteString(text))
	Expect(file.Close()).To(Succeed())
}

// failingAssets returns a folder with binaries. Its etcd runs the shell command and then fails.
func failingAssets(command string) string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	script := []byte("#!/bin/sh\n" + command + "\nexit 3\n")
	for _, name := range []string{"etcd", "kube-apiserver"} {
		Expect(os.WriteFile(filepath.Join(dir, name), script, 0o700)).To(Succeed())
	}
	return dir
}

// connect opens a connection to a URL's host and closes it again.
func connect(to string) error {
	connection, err := net.DialTimeout("tcp", strings.TrimPrefix(to, "https://"), time.Second)
	if err != nil {
		return err
	}
	return connection.Close()
}
