// Quickstart is the program of the README: it adds a label to every new pod of the namespace default.
package main

import (
	"context"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
)

func main() {
	x := eirinix.NewManager(eirinix.ManagerOptions{
		Namespace: "default", Host: "127.0.0.1", ListenAddress: "127.0.0.1:0", UnregisterOnStop: true,
	})
	_ = x.AddExtension(eirinix.Mutation[*corev1.Pod]{ // Start returns its error too
		ID: "team",
		Apply: func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, "team", "platform")
			return nil
		},
	})
	if err := x.Start(); err != nil {
		log.Fatal(err)
	}
}
