// Program build builds the peers of section podsecurity. It is run in the folder bench.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"code.cloudfoundry.org/eirinix/bench/peers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := peers.Build(ctx, "peers", os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers: not all of them could be built; those are left out of the benchmark")
		os.Exit(1)
	}
}
