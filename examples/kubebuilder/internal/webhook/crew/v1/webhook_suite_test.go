package v1

// This file starts an API server and a manager with the webhooks of this package, for the specs beside it.

import (
	"context"
	"path/filepath"
	"testing"
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
	crewv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/api/crew/v1"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// patience is the time that a busy machine may take for anything that takes milliseconds on an idle one.
const patience = 2 * time.Minute

var (
	ctx       context.Context
	cancel    context.CancelFunc
	k8sClient client.Client
	testEnv   *envtest.Environment
	stopped   chan struct{}
)

func TestAPIs(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Webhooks of the group crew", Label("api-server"))
}

var _ = BeforeSuite(func() {
	log := zap.NewRaw(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true))
	logf.SetLogger(zapr.NewLogger(log))
	ctx, cancel = context.WithCancel(context.Background())

	By("bootstrapping test environment")
	testEnv = &envtest.Environment{
		Config:                eirinixtest.StartControlPlane(GinkgoT()).Config(),
		UseExistingCluster:    new(true),
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	cfg, err := testEnv.Start()
	Expect(err).NotTo(HaveOccurred())

	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(crewv1.AddToScheme(scheme)).To(Succeed())
	k8sClient, err = client.New(cfg, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())

	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	Expect(err).NotTo(HaveOccurred())
	x := eirinix.NewManager(eirinix.ManagerOptions{
		KubeManager: mgr, Scheme: scheme, OperatorFingerprint: "tutorial", WebhookNamespace: "default",
		Host: "127.0.0.1", ListenAddress: "127.0.0.1:0", Logger: log.Sugar(),
	})
	Expect(SetupCaptainWebhookWithManager(x)).To(Succeed())
	stopped = make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(stopped)
		Expect(mgr.Start(ctx)).To(Succeed())
	}()
	Eventually(x.Ready(), patience).Should(BeClosed())
	Eventually(func() error { return x.Diagnose(ctx).Err() }, patience).Should(Succeed())
})

var _ = AfterSuite(func() {
	By("tearing down the test environment")
	cancel()
	Eventually(stopped, patience).Should(BeClosed())
	Expect(testEnv.Stop()).To(Succeed())
})
