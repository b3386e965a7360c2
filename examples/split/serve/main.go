// Serve is the serving half of a split deployment. It can start before or after the registering half. It logs the
// conditions that it waits for, and is ready once the API server can call it.
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
	o.RegisterWebHook = new(false) // the other half writes the webhook configuration,
	o.SetupCertificate = setUp     // and by default the certificate Secret too
	x, err := webhook.New(o)
	if err != nil {
		log.Fatal(err)
	}
	// Start serves until SIGINT or SIGTERM. It returns nil after it was stopped and has drained.
	if err := x.Start(); err != nil {
		log.Fatal(err)
	}
}
