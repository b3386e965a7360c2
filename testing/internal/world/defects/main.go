// Command defects writes an overlay of the build in which known defects can be put back one at a time:
//
//	go run ./testing/internal/world/defects -overlay DIR
//	go test -overlay DIR/overlay.json ./testing/internal/world
package main

import (
	"flag"
	"fmt"
	"log"

	"code.cloudfoundry.org/eirinix/testing/internal/world/defects/known"
)

func main() {
	root := flag.String("root", ".", "the root of the module")
	overlay := flag.String("overlay", "", "the directory in which overlay.json and the changed files are written")
	list := flag.Bool("list", false, "print the name and the harm of each defect")
	flag.Parse()
	if *list {
		for _, d := range known.All {
			fmt.Printf("%s\t%s\n", d.Name, d.Harm)
		}
	}
	if *overlay != "" {
		if err := known.Write(*root, *overlay); err != nil {
			log.Fatal(err)
		}
	}
}
