// Playbook is the equivalent of a kubebuilder project: a custom resource with a defaulting and a validating webhook and
// a controller. It runs on a laptop against a cluster or inside the cluster, and can be moved between the two.
package main

import (
	"flag"
	"log"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/examples/cli"
	opsv1 "code.cloudfoundry.org/eirinix/examples/playbook/api/v1"
)

func main() {
	log.SetFlags(0)
	from := flag.String("certificates", "", "files:<folder>, secret:<name> or csr:<signer>; empty means that this program makes its own")
	trust := flag.String("trust", "", "with csr: path of a PEM file with the signer's CA")
	o := cli.Options("playbook-example")
	o.Scheme = runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(o.Scheme))
	utilruntime.Must(opsv1.AddToScheme(o.Scheme))

	var err error
	if o.Certificates, err = certificates(*from, *trust); err != nil {
		log.Fatal(err)
	}
	x := eirinix.NewManager(o)
	for _, v := range []any{
		eirinix.Mutation[*opsv1.Playbook]{ID: "defaults", Apply: fillIn},
		eirinix.Validation[*opsv1.Playbook]{ID: "rules", Create: create, Update: update, Delete: remove},
		&controller{},
	} {
		if err := x.AddExtension(v); err != nil {
			log.Fatal(err)
		}
	}
	if err := cli.Run(x, rights(x)...); err != nil {
		log.Fatal(err)
	}
}
