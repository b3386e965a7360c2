// Multiversion converts a custom resource between its two versions. The API server stores v1 and asks this program for
// v1beta1.
package main

import (
	"log"

	"code.cloudfoundry.org/eirinix/conversion"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/examples/cli"
	v1 "code.cloudfoundry.org/eirinix/examples/multiversion/api/v1"
	"code.cloudfoundry.org/eirinix/examples/multiversion/api/v1beta1"
)

var cronJobs = conversion.Of[*v1.CronJob]{
	CRD:     "cronjobs.batch.example.com",
	Version: "v1",
	Spokes: []conversion.Spoke[*v1.CronJob]{
		conversion.NewSpoke("v1beta1", v1beta1.ToV1, v1beta1.FromV1),
	},
}

func main() {
	log.SetFlags(0)
	x := eirinix.NewManager(cli.Options("multiversion-example"))
	if err := x.AddExtension(cronJobs); err != nil {
		log.Fatal(err)
	}
	if err := cli.Run(x); err != nil {
		log.Fatal(err)
	}
}
