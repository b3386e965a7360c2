// Main runs the webhooks of the project in a controller-runtime manager, as the main.go that kubebuilder scaffolds does.
package main

import (
	"flag"
	"os"

	"github.com/go-logr/zapr"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"code.cloudfoundry.org/eirinix"
	batchv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/api/batch/v1"
	crewv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/api/crew/v1"
	shipv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/api/ship/v1"
)

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object crd paths=../api/... output:crd:dir=../config/crd/bases

var (
	scheme   = runtime.NewScheme()
	setupLog = ctrl.Log.WithName("setup")
)

func init() {
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(batchv1.AddToScheme(scheme))
	utilruntime.Must(crewv1.AddToScheme(scheme))
	utilruntime.Must(shipv1.AddToScheme(scheme))
}

func main() {
	metricsAddr := flag.String("metrics-bind-address", "0", "The address the metrics endpoint binds to. 0 disables it.")
	probeAddr := flag.String("health-probe-bind-address", ":8081", "The address the probe endpoint binds to.")
	leaderElect := flag.Bool("leader-elect", false, "Enable leader election for controller manager.")
	webhookHost := flag.String("webhook-host", "", "The name or address of this machine, to be called by URL. Empty means to be called by Service.")
	webhookAddr := flag.String("webhook-bind-address", ":9443", "The address the webhook endpoint binds to.")
	printRights := flag.Bool("print-rights", false, "Print the roles that the webhooks need, for config/rbac, and exit.")
	log := zap.Options{Development: true}
	log.BindFlags(flag.CommandLine)
	flag.Parse()
	logger := zap.NewRaw(zap.UseFlagOptions(&log))
	ctrl.SetLogger(zapr.NewLogger(logger))

	options := eirinix.ManagerOptions{
		OperatorFingerprint: "tutorial",
		ServiceName:         "tutorial-webhook-service",
		WebhookNamespace:    "tutorial-system",
		ListenAddress:       *webhookAddr,
		Scheme:              scheme,
		Logger:              logger.Sugar(),
	}
	if *webhookHost != "" {
		options.ServiceName, options.Host = "", *webhookHost
	}
	if *printRights {
		exitOn(writeRights(os.Stdout, options), "unable to print the rights")
		return
	}

	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: *metricsAddr},
		HealthProbeBindAddress: *probeAddr,
		LeaderElection:         *leaderElect,
		LeaderElectionID:       "5a1b6c3e.tutorial.example",
	})
	exitOn(err, "unable to start manager")

	options.KubeManager = mgr
	exitOn(setupWebhooks(eirinix.NewManager(options)), "unable to create webhooks")

	exitOn(mgr.AddHealthzCheck("healthz", healthz.Ping), "unable to set up health check")
	exitOn(mgr.AddReadyzCheck("readyz", healthz.Ping), "unable to set up ready check")
	setupLog.Info("starting manager")
	exitOn(mgr.Start(ctrl.SetupSignalHandler()), "problem running manager")
}

func exitOn(err error, message string) {
	if err != nil {
		setupLog.Error(err, message)
		os.Exit(1)
	}
}
