// Serve is the serving half of a split deployment. It may be started before or after the registering half:
// what it waits for stands in its log, and it is ready once the API server can call it.
package main

import (
	"flag"
	"log"

	"code.cloudfoundry.org/eirinix/examples/split/webhook"
)

func main() {
	log.SetFlags(0)
	setUp := flag.Bool("setup-certificate", false, "also make and mend the certificate Secret, where this half has the right to")
	o := webhook.Options()
	o.RegisterWebHook = new(false) // the other half writes the webhook configuration
	o.SetupCertificate = setUp     // and, unless told otherwise, the certificate Secret
	x, err := webhook.New(o)
	if err != nil {
		log.Fatal(err)
	}
	// Start serves until SIGINT or SIGTERM; nil means that it was stopped and has drained.
	if err := x.Start(); err != nil {
		log.Fatal(err)
	}
}
