// Register is the registering half of a split deployment. It creates or adopts the certificate Secret, writes the
// webhook configuration and exits. A Job, a Helm hook or an operator runs it, with more rights than the serving half.
// Running it again changes nothing.
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
	// It does not retry. It returns the error, and the exit code is 1.
	if err := x.RegisterExtensions(); err != nil {
		log.Fatal(err)
	}
}
