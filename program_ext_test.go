package eirinix_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
)

// Signals end a process, so the specs about them run this test binary once more as a program that uses the
// library the way its users do.
const programNamespace = "EIRINIX_SPEC_NAMESPACE"

func TestMain(m *testing.M) {
	namespace := os.Getenv(programNamespace)
	if namespace == "" {
		os.Exit(m.Run())
	}
	x := eirinix.NewManager(eirinix.ManagerOptions{
		Namespace: namespace, OperatorFingerprint: namespace,
		Host: "127.0.0.1", ListenAddress: "127.0.0.1:0",
		KubeConfig: os.Getenv("EIRINIX_SPEC_KUBECONFIG"),
		DrainDelay: time.Second,
	})
	if err := x.AddExtension(addEnv{}); err != nil {
		panic(err)
	}
	go func() {
		<-x.Ready()
		fmt.Println("ready", x.Addr())
	}()
	if err := x.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("drained")
}

var _ = Describe("A program that calls Start", Label("api-server"), func() {
	start := func(ctx SpecContext) (session *gexec.Session, address string) {
		namespace := newNamespace(ctx)
		program := exec.Command(os.Args[0])
		program.Env = append(os.Environ(), programNamespace+"="+namespace, "EIRINIX_SPEC_KUBECONFIG="+controlPlane().Kubeconfig())
		session, err := gexec.Start(program, GinkgoWriter, GinkgoWriter)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			session.Kill().Wait(patience)
			_ = clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, namespace+"-mutating-hook", metav1.DeleteOptions{})
		})
		Eventually(session).WithContext(ctx).WithTimeout(patience).Should(gbytes.Say(`ready (\S+)\n`))
		_, err = fmt.Sscanf(string(session.Out.Contents()), "ready %s", &address)
		Expect(err).NotTo(HaveOccurred())
		return session, address
	}

	It("drains on SIGTERM and exits with 0", func(ctx SpecContext) {
		program, address := start(ctx)
		program.Terminate()
		Eventually(healthOf).WithArguments(address, "/readyz").Should(Equal(http.StatusServiceUnavailable))
		Eventually(program).WithTimeout(patience).Should(gexec.Exit(0))
		Expect(string(program.Out.Contents())).To(ContainSubstring("drained"))
	}, SpecTimeout(2*patience))

	It("exits at once on a second signal, with an error", func(ctx SpecContext) {
		program, address := start(ctx)
		program.Terminate()
		Eventually(healthOf).WithArguments(address, "/readyz").Should(Equal(http.StatusServiceUnavailable))
		program.Signal(syscall.SIGINT)
		Eventually(program).WithTimeout(patience).Should(gexec.Exit(1))
		Expect(string(program.Out.Contents())).To(And(ContainSubstring("second signal"), Not(ContainSubstring("drained"))))
	}, SpecTimeout(2*patience))
})
