// Job-retries adds a webhook to an operator: it caps the retries of the Jobs that terraform-controller creates. The
// webhook runs in the operator's own controller-runtime manager, and its certificates are mounted as files.
package main

import (
	"flag"
	"log"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"code.cloudfoundry.org/eirinix"
)

func main() {
	log.SetFlags(0)
	ctrl.SetLogger(zap.New())
	o := options()

	// This is the operator without the webhook.
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		log.Fatal(err)
	}
	if err := ctrl.NewControllerManagedBy(mgr).For(&batchv1.Job{}).Complete(&counter{mgr.GetClient()}); err != nil {
		log.Fatal(err)
	}

	// The rest adds the webhook. It starts with the manager on every replica, whether that is the leader or not.
	o.KubeManager = mgr
	if err := eirinix.NewManager(o).AddExtension(retries()); err != nil {
		log.Fatal(err)
	}

	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}

// options returns the options from the flags. controller-runtime adds -kubeconfig.
func options() (o eirinix.ManagerOptions) {
	o.OperatorFingerprint = "job-retries-example"
	// A webhook for objects that the cluster itself uses must not block it.
	o.FailurePolicy = new(admissionregistrationv1.Ignore)
	flag.StringVar(&o.Host, "host", "", "name or IP address under which the API server reaches this program")
	flag.StringVar(&o.ServiceName, "service", "", "name of the Service that the API server calls, instead of -host")
	flag.StringVar(&o.WebhookNamespace, "webhook-namespace", "", "namespace of that Service")
	flag.StringVar(&o.ListenAddress, "listen", "", "host:port to listen on where it differs from -host and -port")
	port := flag.Int("port", 9443, "port in the webhook's URL, or of the Service")
	dir := flag.String("cert-dir", "/certs", "folder in which certificates are mounted")
	cert := flag.String("cert-name", "cert.pem", "file with the serving certificate")
	key := flag.String("key-name", "key.pem", "file with its key")
	ca := flag.String("ca-name", "ca.pem", "file with the CA's certificate")
	flag.Parse()
	o.Port = int32(*port)
	o.Certificates = eirinix.FromFiles(*dir, *cert, *key, *ca)
	return o
}
