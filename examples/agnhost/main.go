// Agnhost reimplements the webhook with which the Kubernetes project tests its API server, endpoint by endpoint.
package main

import (
	"flag"
	"log"
	"os"
	"strings"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/examples/cli"
)

const (
	sidecarImage = "registry.example.org/agnhost:2.60"
	sidecarUsage = "image of the container that mutating-pods-sidecar adds"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) > 1 && (os.Args[1] == webhook || os.Args[1] == convertWebhook) {
		if err := serve(os.Args[1], os.Args[2:]); err != nil {
			log.Fatal(err)
		}
		return
	}
	sidecar := flag.String("sidecar-image", sidecarImage, sidecarUsage)
	clientCA := flag.String("client-ca", "", "path of a PEM file with the CA of the clients that may call; empty means every client")
	clientNames := flag.String("client-names", "", "accepted names of clients, separated by commas; empty means every name")
	o := cli.Options("agnhost-example")
	o.ClientCA.File = *clientCA
	if *clientNames != "" {
		o.ClientCA.Names = strings.Split(*clientNames, ",")
	}

	x := eirinix.NewManager(o)
	for _, step := range (endpoints{sidecarImage: *sidecar}).steps() {
		if err := x.AddExtension(step); err != nil {
			log.Fatal(err)
		}
	}
	if err := cli.Run(x); err != nil {
		log.Fatal(err)
	}
}
