// Deploy is a program that generates its own deployment: it prints the objects with which it runs in a cluster, for the
// flags on its command line.
//
//	deploy manifests -image <image> [flags] | kubectl apply -f -
//	deploy manifests -image <image> -helm <folder> [flags]
package main

import (
	"flag"
	"fmt"
	"log"
	"os"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/examples/hello/greeting"
	"code.cloudfoundry.org/eirinix/manifests"
)

func main() {
	log.SetFlags(0)
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(args []string) error {
	command := "serve"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		command, args = args[0], args[1:]
	}
	o, deployment, folders := options(command, args)
	x := eirinix.NewManager(o)
	if err := x.AddExtension(greeting.Extension{}); err != nil {
		return err
	}
	switch command {
	case "serve":
		return x.Start() // until SIGINT or SIGTERM
	case "register":
		return x.RegisterExtensions() // once; the Job of a split deployment
	case "manifests":
		objects, err := manifests.Of(x, deployment)
		if err != nil {
			return err
		}
		// The objects are typed: change or add to them here.
		switch {
		case folders.chart != "":
			return manifests.Chart(folders.chart, objects...)
		case folders.kustomize != "":
			return manifests.Kustomization(folders.kustomize, objects...)
		}
		return manifests.Write(os.Stdout, objects...)
	}
	return fmt.Errorf("there is no command %q; give serve, register or manifests", command)
}

// folders are where packages are written to.
type folders struct{ chart, kustomize string }

// options returns the options from the flags. The program in the cluster gets the same flags.
func options(command string, args []string) (o eirinix.ManagerOptions, d manifests.Options, f folders) {
	o.OperatorFingerprint = "deploy-example"
	flags := flag.NewFlagSet(command, flag.ExitOnError)
	flags.StringVar(&o.Namespace, "namespace", "", "namespace whose pods are greeted; empty means all but the cluster's own and the webhook's")
	flags.StringVar(&o.ServiceName, "service", "greeting", "name of the Service that the API server calls")
	flags.StringVar(&o.WebhookNamespace, "webhook-namespace", "webhooks", "namespace that this program runs in")
	flags.StringVar(&o.ListenAddress, "listen", ":8443", "host:port to listen on")
	port := flags.Int("port", 443, "port of the Service")
	split := flags.Bool("split", false, "have a Job register, so that what serves may read its certificate Secret and the Lease of versions, and write nothing")
	flags.StringVar(&o.KubeConfig, "kubeconfig", "", "path of a kubeconfig; empty means the pod's service account, else $KUBECONFIG, else ~/.kube/config")
	flags.StringVar(&d.Image, "image", "", "for manifests: the image that holds this program")
	flags.StringVar(&f.chart, "helm", "", "for manifests: write a Helm chart into this `folder` instead of printing")
	flags.StringVar(&f.kustomize, "kustomize", "", "for manifests: write a kustomize base into this `folder` instead of printing")
	_ = flags.Parse(args) // exits on an error

	o.Port = int32(*port)
	if *split && command != "register" {
		o.RegisterWebHook, o.SetupCertificate = new(false), new(false)
	}
	given := manifests.FlagArgs(flags, "image", "kubeconfig", "helm", "kustomize")
	d.Args = append([]string{"serve"}, given...)
	d.RegisterArgs = append([]string{"register"}, given...)
	return o, d, f
}
