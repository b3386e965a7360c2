// Package cli holds the flags and the commands that the examples share, so that each example contains only its own
// lesson. It is not part of the library. Programs can copy from it.
package cli

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/audit"
	"code.cloudfoundry.org/eirinix/manifests"
	"code.cloudfoundry.org/eirinix/preview"
)

// The usage explains the flags that select where the program runs: -host for a machine that the API server reaches,
// -service for a cluster.
const usage = `Usage: %[1]s [flags]             serve until SIGINT or SIGTERM
       %[1]s manifests [flags]   print what it takes to run in a cluster, for these flags, as YAML
       %[1]s [flags] preview -f <file or folder> ...
                             show what it would do to manifests, without a cluster (preview -h says more)
       %[1]s [flags] audit       tell what it would say of the objects that the cluster holds (audit -h says more)

`

// Options parses the command line, including flags that the program has defined before. fingerprint is the name of the
// program's objects in the cluster, and of its Service.
func Options(fingerprint string) eirinix.ManagerOptions {
	o := eirinix.ManagerOptions{OperatorFingerprint: fingerprint}
	flags := flag.CommandLine
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), usage, fingerprint)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.Namespace, "namespace", "", "namespace whose objects are sent; empty means all but the cluster's own")
	flags.StringVar(&o.Host, "host", "", "name or IP address under which the API server reaches this machine")
	flags.StringVar(&o.ServiceName, "service", "", "name of the Service that the API server calls, instead of -host")
	flags.StringVar(&o.WebhookNamespace, "webhook-namespace", "", "namespace of that Service, where the certificate Secret lies too")
	flags.StringVar(&o.ListenAddress, "listen", "", "host:port to listen on where it differs from -host and -port; port 0 picks a free one")
	flags.StringVar(&o.KubeConfig, "kubeconfig", "", "path of a kubeconfig; empty means the pod's service account, else $KUBECONFIG, else ~/.kube/config")
	flags.BoolVar(&o.UnregisterOnStop, "unregister", false, "take the webhook out of the cluster at the end; for laptops")
	flags.String("image", "", "for manifests: the image that holds this program")
	port := flags.Int("port", 0, "port in the URL, or of the Service; 0 means 443")
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "manifests" {
		args = args[1:]
	}
	_ = flags.Parse(args) // exits on error; stops at preview and audit, which have their own flags
	o.Port = int32(*port)
	return o
}

// Run runs the command of the command line. more holds objects to print after the Manager's own manifests, such as the
// rights that the extensions themselves need.
func Run(x *eirinix.ExtensionManager, more ...client.Object) error {
	switch command() {
	case "":
		return x.Start()
	case "manifests":
		objects, err := manifests.Of(x, manifests.Options{
			Image: flag.Lookup("image").Value.String(),
			Args:  manifests.FlagArgs(flag.CommandLine, "image", "kubeconfig"), // those with which this program was called
		})
		if err != nil {
			return err
		}
		return manifests.Write(os.Stdout, append(objects, more...)...)
	case "preview":
		return preview.Command(x.GetContext(), x, flag.Args()[1:])
	case "audit":
		err := audit.Command(x.GetContext(), x, flag.Args()[1:])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(audit.ExitCode(err))
	}
	return fmt.Errorf("there is no command %q; leave it out, or give manifests, preview or audit", command())
}

// Serves reports whether Run will serve, rather than print something.
func Serves() bool { return command() == "" }

// command returns the first argument if that is not a flag, else the first argument after the flags.
func command() string {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		return os.Args[1]
	}
	return flag.Arg(0)
}
