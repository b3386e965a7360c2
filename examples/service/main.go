// Service is an EiriniX program that runs inside a cluster. The API server calls it through a Service, which handles
// replicas and rollouts, so the program only has to listen.
package main

import (
	"flag"
	"log"
	"os"
	"strconv"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/examples/hello/greeting"
)

func main() {
	log.SetFlags(0)
	x := eirinix.NewManager(options())
	if err := x.AddExtension(greeting.Extension{}); err != nil {
		log.Fatal(err)
	}
	// Start serves until SIGINT or SIGTERM. It returns nil after it was stopped and has drained.
	if err := x.Start(); err != nil {
		log.Fatal(err)
	}
}

// options returns the options from flags, which default to environment variables.
func options() (o eirinix.ManagerOptions) {
	o.OperatorFingerprint = "greeting" // so that it can run alongside hello, which has the default
	flag.StringVar(&o.ServiceName, "service", env("WEBHOOK_SERVICE", "greeting"),
		"name of the Service through which the API server reaches this program [$WEBHOOK_SERVICE]")
	flag.StringVar(&o.WebhookNamespace, "webhook-namespace", os.Getenv("WEBHOOK_NAMESPACE"),
		"namespace of that Service; the certificate Secret lies there too; required [$WEBHOOK_NAMESPACE]")
	flag.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"),
		"namespace whose pods are greeted; empty means all but the cluster's own and the webhook's [$POD_NAMESPACE]")
	flag.StringVar(&o.KubeConfig, "kubeconfig", "",
		"path of a kubeconfig; empty means the pod's service account, else $KUBECONFIG, else ~/.kube/config")
	flag.StringVar(&o.ListenAddress, "listen", "",
		"host:port to listen on where the container's port is not the Service's, such as :9443")
	flag.Func("port", "`port` of the Service, and to listen on unless -listen differs (default 443)", func(s string) error {
		n, err := strconv.ParseInt(s, 10, 32)
		o.Port = int32(n)
		return err
	})
	flag.Parse()
	return o
}

func env(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}
