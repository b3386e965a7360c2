// Program ours applies the Pod Security Standard "restricted" to new pods, with the library.
package main

import (
	"context"
	"log"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/bench/podsecurity/restricted"
)

func main() {
	port, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	check, err := restricted.Check()
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
	err = x.AddExtension(eirinix.Validation[*corev1.Pod]{Create: func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
		if violation := check(pod); violation != "" {
			return eirinix.Deny("%s", violation)
		}
		return nil
	}})
	if err != nil {
		log.Fatal(err)
	}
	if err := x.Start(); err != nil {
		log.Fatal(err)
	}
}
