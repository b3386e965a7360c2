// Hello is the smallest EiriniX program: one extension, in URL mode. The API server calls it at https://<host>:<port>,
// so it also runs on a laptop that the API server can reach.
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
	flag.StringVar(&o.Namespace, "namespace", os.Getenv("HELLO_NAMESPACE"),
		"namespace whose pods are greeted; empty means all but the cluster's own [$HELLO_NAMESPACE]")
	flag.StringVar(&o.Host, "host", os.Getenv("HELLO_HOST"),
		"name or IP address under which the API server reaches this program; required [$HELLO_HOST]")
	flag.StringVar(&o.KubeConfig, "kubeconfig", "",
		"path of a kubeconfig; empty means the pod's service account, else $KUBECONFIG, else ~/.kube/config")
	flag.StringVar(&o.ListenAddress, "listen", "",
		"host:port to listen on where it differs from -host and -port, behind a port mapping, say; port 0 picks a free one")
	flag.Func("port", "`port` in the webhook's URL, and to listen on unless -listen differs (default: that of -listen, else 443)", func(s string) error {
		n, err := strconv.ParseInt(s, 10, 32)
		o.Port = int32(n)
		return err
	})
	flag.Parse()
	return o
}
