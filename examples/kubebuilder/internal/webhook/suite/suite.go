// Package suite starts an API server and a manager with webhooks, for the specs of one API group. kubebuilder scaffolds
// these lines into the webhook_suite_test.go of every group.
package suite

import (
	"context"
	"path/filepath"
	"time"

	"github.com/go-logr/zapr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// Patience is the time that a busy machine may take for anything that takes milliseconds on an idle one.
const Patience = 2 * time.Minute

// Start starts both until the suite ends. Call it in BeforeSuite. addToScheme adds the group's types to the scheme of
// the manager and of the client; it is nil for a group of Kubernetes itself.
func Start(addToScheme func(*runtime.Scheme) error, setups ...func(eirinix.Manager) error) (*envtest.Environment, client.Client) {
	GinkgoHelper()
	log := zap.NewRaw(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true))
	logf.SetLogger(zapr.NewLogger(log))

	By("bootstrapping test environment")
	testEnv := &envtest.Environment{
		Config:                eirinixtest.StartControlPlane(GinkgoT()).Config(),
		UseExistingCluster:    new(true),
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	cfg, err := testEnv.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(testEnv.Stop)

	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	if addToScheme != nil {
		Expect(addToScheme(scheme)).To(Succeed())
	}
	k8sClient, err := client.New(cfg, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())

	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	Expect(err).NotTo(HaveOccurred())
	x := eirinix.NewManager(eirinix.ManagerOptions{
		KubeManager: mgr, OperatorFingerprint: "tutorial", WebhookNamespace: "default",
		Host: "127.0.0.1", ListenAddress: "127.0.0.1:0", Logger: log.Sugar(),
	})
	for _, setup := range setups {
		Expect(setup(x)).To(Succeed())
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		Eventually(stopped, Patience).Should(Receive(BeNil()))
	})
	Eventually(x.Ready(), Patience).Should(BeClosed())
	Eventually(func() error { return x.Diagnose(ctx).Err() }, Patience).Should(Succeed())
	return testEnv, k8sClient
}
