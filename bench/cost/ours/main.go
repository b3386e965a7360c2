// Program ours is one extension that uses the library, in the shape of examples/hello.
package main

import (
	"context"
	"log"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/bench/cost"
)

type extension struct{}

func (extension) Handle(_ context.Context, m eirinix.Manager, pod *corev1.Pod, req admission.Request) admission.Response {
	if pod == nil {
		return admission.Allowed("")
	}
	cost.Mark(pod)
	return m.PatchFromPod(req, pod)
}

func main() {
	port, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	x := eirinix.NewManager(eirinix.ManagerOptions{
		KubeConfig:          os.Args[1],
		Namespace:           os.Args[2],
		OperatorFingerprint: os.Args[2],
		Host:                "127.0.0.1",
		Port:                int32(port),
	})
	if err := x.AddExtension(extension{}); err != nil {
		log.Fatal(err)
	}
	if err := x.Start(); err != nil {
		log.Fatal(err)
	}
}
