package eirinix_test

import (
	"context"
	"fmt"
	"log"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
)

type MyExtension struct{}

func (*MyExtension) Handle(context.Context, eirinix.Manager, *corev1.Pod, admission.Request) admission.Response {
	return admission.Response{}
}

func Example() {
	x := eirinix.NewManager(eirinix.ManagerOptions{
		Namespace: "cf-workloads",        // whose pods; empty means all but the cluster's own
		Host:      "webhook.example.org", // the API server calls https://webhook.example.org:8443
		Port:      8443,
	})
	x.AddExtension(&MyExtension{})
	log.Fatal(x.Start())
}

// In Service mode the API server calls a Service of the cluster.
func ExampleNewManager_service() {
	x := eirinix.NewManager(eirinix.ManagerOptions{
		Namespace:        "cf-workloads",
		ServiceName:      "extensions", // the API server calls this Service ...
		WebhookNamespace: "cf-system",  // ... in this namespace, where the certificate Secret lies too
		Port:             8443,
	})
	fmt.Println(x.Validate())
	// Output: <nil>
}

// The registering half of a split deployment runs once and exits.
func ExampleExtensionManager_RegisterExtensions() {
	x := eirinix.NewManager(eirinix.ManagerOptions{Namespace: "cf-workloads", Host: "webhook.example.org"})
	// in the program that runs once, with the right to write webhook configurations
	if err := x.RegisterExtensions(); err != nil {
		log.Fatal(err)
	}
}

// The serving half of a split deployment may start before the other has run.
func ExampleNewManager_serveOnly() {
	// in the program that serves, without that right: it waits until the other has run, and says so
	no := false
	x := eirinix.NewManager(eirinix.ManagerOptions{
		Namespace:       "cf-workloads",
		Host:            "webhook.example.org",
		RegisterWebHook: &no,
	})
	fmt.Println(x.Validate())
	// Output: <nil>
}

// Everything that is wrong with the options is told at once.
func ExampleExtensionManager_Validate() {
	x := eirinix.NewManager(eirinix.ManagerOptions{ServiceName: "extensions", Port: -1})
	fmt.Println(x.Validate())
	// Output:
	// eirinix: ManagerOptions.ServiceName is "extensions" but WebhookNamespace is empty; set it to that Service's namespace
	// eirinix: ManagerOptions.Port is -1; give a port from 1 to 65535, or 0 for 443
}

// PatchFromPod needs no cluster, so extensions can be tested with a Manager that is not started.
func ExampleExtensionManager_PatchFromPod() {
	x := eirinix.NewManager(eirinix.ManagerOptions{})
	req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Object: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app"}],"unknownToUs":1}}`)},
	}}
	pod := &corev1.Pod{}
	pod.Name = "web"
	pod.Labels = map[string]string{"seen": "yes"}
	pod.Spec.Containers = []corev1.Container{{Name: "app"}}
	for _, op := range x.PatchFromPod(req, pod).Patches {
		fmt.Println(op.Json())
	}
	// Output: {"op":"add","path":"/metadata/labels","value":{"seen":"yes"}}
}
