// Register is the registering half of a split deployment: it makes (or adopts) the certificate Secret, writes
// the webhook configuration and exits. A Job, a Helm hook or a person with more rights than the serving half
// runs it; running it again changes nothing.
package main

import (
	"log"

	"code.cloudfoundry.org/eirinix/examples/split/webhook"
)

func main() {
	log.SetFlags(0)
	x, err := webhook.New(webhook.Options())
	if err != nil {
		log.Fatal(err)
	}
	// There is no loop in it: what fails is told, and the exit code is 1.
	if err := x.RegisterExtensions(); err != nil {
		log.Fatal(err)
	}
}
