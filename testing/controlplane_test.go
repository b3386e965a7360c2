package eirinixtest_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

var _ = Describe("ControlPlane", Label("api-server"), Ordered, func() {
	var (
		t        *recordingTB
		plane    *eirinixtest.ControlPlane
		progress strings.Builder
		admin    kubernetes.Interface
	)
	BeforeAll(func() {
		logs := GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(logs, "kube-apiserver-9.log"), []byte("of yesterday\n"), 0o600)).To(Succeed())
		t = &recordingTB{}
		plane = eirinixtest.StartControlPlane(t, func(o *eirinixtest.ControlPlaneOptions) {
			o.APIServerArgs, o.LogDir = []string{"--anonymous-auth=false"}, logs
			o.Progress = io.MultiWriter(os.Stderr, &progress)
		})
		Expect(t.fatal).To(BeEmpty())
		DeferCleanup(plane.Stop)
		admin = Clients(plane.Config())
	})

	It("gets a controller manager later, and only one, and reports its progress", func(ctx context.Context) {
		folder := filepath.Dir(plane.Kubeconfig())
		Expect(serverPIDs(folder)).NotTo(HaveKey("kube-controller-manager"))
		Expect(plane.StartControllerManager(ctx)).To(Succeed())
		pids := serverPIDs(folder)
		Expect(pids).To(HaveKey("kube-controller-manager"))
		Expect(plane.StartControllerManager(ctx)).To(Succeed())
		Expect(serverPIDs(folder)).To(Equal(pids))
		Expect(progress.String()).To(And(
			HavePrefix("eirinixtest: binaries from /"),
			ContainSubstring("\neirinixtest: logs in "+plane.LogDir()+"\n"),
			ContainSubstring("\neirinixtest: kube-apiserver is ready after "),
			ContainSubstring("\neirinixtest: kube-controller-manager is ready after ")))
	})

	It("keeps its keys to its owner", func(ctx context.Context) {
		info := Must(os.Stat(filepath.Dir(plane.Kubeconfig())))
		Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o700)))

		info = Must(os.Stat(plane.Kubeconfig()))
		Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))

		config := Must(clientcmd.BuildConfigFromFlags("", plane.Kubeconfig()))
		Must(Clients(config).CoreV1().Secrets("kube-system").List(ctx, metav1.ListOptions{}))

		_, err := plane.User("")
		Expect(err).To(MatchError(HavePrefix("eirinixtest: give User a name")))

		anonymous := rest.AnonymousClientConfig(plane.Config())
		_, err = Clients(anonymous).CoreV1().Secrets("kube-system").List(ctx, metav1.ListOptions{})
		Expect(apierrors.IsUnauthorized(err)).To(BeTrue(), "APIServerArgs forbid anonymous requests: %v", err)
	})

	It("runs several API servers on one etcd, each of which can be frozen, stopped and restarted", func(ctx context.Context) {
		audit := filepath.Join(GinkgoT().TempDir(), "audit.log")
		second := Must(plane.AddAPIServer(ctx, "--audit-log-path="+audit))
		Expect(audit).To(BeAnExistingFile())
		Expect(second.Config().Host).NotTo(Equal(plane.Config().Host))
		Expect(filepath.Join(plane.LogDir(), "kube-apiserver-2.log")).To(BeAnExistingFile())

		namespace := NewNamespace(ctx, admin, nil)
		lookUp := func() error {
			config := second.Config()
			config.Timeout = 2 * time.Second
			_, err := Clients(config).CoreV1().Namespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
			return err
		}
		Expect(lookUp()).To(Succeed())

		Expect(second.Pause()).To(Succeed())
		Expect(lookUp()).To(MatchError(ContainSubstring("imeout")))
		_, err := admin.CoreV1().Namespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred(), "the first one is not frozen")
		Expect(second.Resume()).To(Succeed())
		Eventually(lookUp).WithTimeout(2 * time.Minute).Should(Succeed())

		Expect(second.Stop()).To(Succeed())
		Expect(second.Stop()).To(Succeed())
		Expect(lookUp()).To(MatchError(ContainSubstring("connection refused")))
		Expect(second.Pause()).To(MatchError(HavePrefix("eirinixtest: call Restart first")))

		Expect(second.Restart(ctx)).To(Succeed())
		Expect(lookUp()).To(Succeed())
		Expect(second.Restart(ctx)).To(Succeed())
		Expect(lookUp()).To(Succeed())

		Expect(second.Pause()).To(Succeed(), "for Stop, which must end a frozen server too")
	})

	It("logs the end of the servers' logs when its test has failed, and leaves nothing behind", func(ctx context.Context) {
		folder := filepath.Dir(plane.Kubeconfig())
		pids := serverPIDs(folder)
		Expect(pids).To(HaveLen(4), "etcd, two API servers, controller manager")

		t.failed = true
		t.cleanup()
		Expect(strings.Join(t.log, "\n")).To(And(
			ContainSubstring("--- end of kube-apiserver.log ---"), Not(ContainSubstring("of yesterday"))))
		Expect(plane.Stop()).To(Succeed())
		Expect(folder).NotTo(BeADirectory())
		for _, pid := range pids {
			Expect(syscall.Kill(pid, 0)).To(MatchError(syscall.ESRCH))
		}
		const stopped = "eirinixtest: start a new control plane: this one is stopped"
		_, err := plane.AddAPIServer(ctx)
		Expect(err).To(MatchError(stopped))
		Expect(plane.APIServer().Restart(ctx)).To(MatchError(stopped))
		Expect(plane.StartControllerManager(ctx)).To(MatchError(stopped))
	})
})

var _ = Describe("StartManager", Label("api-server"), Ordered, func() {
	var plane *eirinixtest.ControlPlane
	BeforeAll(func() { plane = eirinixtest.StartControlPlane(GinkgoTB(), eirinixtest.Shared) })

	options := func(fingerprint string) eirinix.ManagerOptions {
		return eirinix.ManagerOptions{
			RestConfig: plane.Config(), Namespace: "default", Host: "127.0.0.1", ListenAddress: "127.0.0.1:0",
			OperatorFingerprint: fingerprint, Logger: zap.NewNop().Sugar(),
		}
	}
	marking := func(o eirinix.ManagerOptions) *eirinix.ExtensionManager {
		GinkgoHelper()
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(eirinix.Mutation[*corev1.ConfigMap]{ID: "mark", Apply: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
			c.Data = map[string]string{"marked": "yes"}
			return nil
		}})).To(Succeed())
		return m
	}

	It("returns when the first object is sent to the Manager, and leaves nothing behind", func(ctx SpecContext) {
		m, clients := marking(options("started")), Clients(plane.Config())
		Expect(failureOf(func(t *fakeTest) {
			eirinixtest.StartManager(t, m)
			made := Must(clients.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "first-"}}, metav1.CreateOptions{}))
			Expect(made.Data).To(HaveKeyWithValue("marked", "yes"))
		})).To(BeEmpty())
		_, err := clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "started-mutating-hook", metav1.GetOptions{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		Expect(m.Run(ctx)).NotTo(Succeed(), "it has run")
	}, SpecTimeout(2*patience))

	It("fails the test with the fault", func(SpecContext) {
		start := func(m *eirinix.ExtensionManager) string {
			return failureOf(func(t *fakeTest) { eirinixtest.StartManager(t, m) })
		}
		Expect(start(eirinix.NewManager(eirinix.ManagerOptions{Logger: zap.NewNop().Sugar()}))).
			To(And(ContainSubstring("Run returned before the Manager was ready"), ContainSubstring("Host is empty")))
		elsewhere := options("elsewhere")
		elsewhere.Port = 1 // where nothing listens
		Expect(start(marking(elsewhere))).To(And(ContainSubstring("the API server does not call the Manager"), ContainSubstring("set ManagerOptions.Port to")))
	}, SpecTimeout(5*patience))
})

// serverPIDs returns the process IDs of the servers of the control plane in that folder, by the server's name.
func serverPIDs(folder string) map[string]int {
	GinkgoHelper()
	pids := map[string]int{}
	for _, file := range Must(filepath.Glob(filepath.Join(folder, "*.pid"))) {
		pids[strings.TrimSuffix(filepath.Base(file), ".pid")] = Must(strconv.Atoi(string(Must(os.ReadFile(file)))))
	}
	return pids
}

// recordingTB is a test that has failed.
type recordingTB struct {
	failed  bool
	cleanup func()
	log     []string
	fatal   string
}

func (t *recordingTB) Helper()          {}
func (t *recordingTB) Cleanup(f func()) { t.cleanup = f }
func (t *recordingTB) Failed() bool     { return t.failed }
func (t *recordingTB) Logf(format string, args ...any) {
	t.log = append(t.log, fmt.Sprintf(format, args...))
}
func (t *recordingTB) Errorf(string, ...any)             {}
func (t *recordingTB) Fatalf(format string, args ...any) { t.fatal = fmt.Sprintf(format, args...) }
