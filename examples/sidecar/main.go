// Sidecar adds a log forwarder to every pod: a native sidecar container with a volume that it shares with the pod's
// containers. Pods can opt out with an annotation.
package main

import (
	"flag"
	"log"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/examples/cli"
)

func main() {
	log.SetFlags(0)
	image := flag.String("sidecar-image", "registry.example.org/log-forwarder:1.0", "image of the sidecar")
	x := eirinix.NewManager(cli.Options("sidecar-example"))
	if err := x.AddExtension(injection(*image)); err != nil {
		log.Fatal(err)
	}
	if err := cli.Run(x); err != nil {
		log.Fatal(err)
	}
}
