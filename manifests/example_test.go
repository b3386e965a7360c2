package manifests_test

import (
	"context"
	"fmt"
	"log"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/manifests"
)

type MyExtension struct{}

func (*MyExtension) Handle(context.Context, eirinix.Manager, *corev1.Pod, admission.Request) admission.Response {
	return admission.Response{}
}

// A field without an option is changed on the objects.
func ExampleOf() {
	x := eirinix.NewManager(eirinix.ManagerOptions{
		Namespace:        "cf-workloads",
		ServiceName:      "extensions",
		WebhookNamespace: "cf-system",
		ListenAddress:    ":8443",
	})
	x.AddExtension(&MyExtension{})
	objects, err := manifests.Of(x, manifests.Options{Image: "registry.example.org/extensions:1.0"})
	if err != nil {
		log.Fatal(err)
	}
	for _, o := range objects {
		if d, ok := o.(*appsv1.Deployment); ok {
			d.Spec.Template.Spec.HostNetwork = true
			d.Spec.Template.Spec.DNSPolicy = corev1.DNSClusterFirstWithHostNet
		}
	}
	for _, o := range objects {
		fmt.Println(o.GetObjectKind().GroupVersionKind().Kind, o.GetName())
	}
	// Output:
	// ServiceAccount eirini-x
	// Role eirinix:eirini-x
	// RoleBinding eirinix:eirini-x
	// ClusterRole eirinix:eirini-x
	// ClusterRoleBinding eirinix:eirini-x
	// Service extensions
	// NetworkPolicy eirini-x
	// PodDisruptionBudget eirini-x
	// Deployment eirini-x
}

// Objects of one's own may be written along.
func ExampleWrite() {
	err := manifests.Write(os.Stdout,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cf-system", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: "cf-system"}, Data: map[string]string{"level": "info"}},
	)
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// apiVersion: v1
	// kind: Namespace
	// metadata:
	//   labels:
	//     pod-security.kubernetes.io/enforce: restricted
	//   name: cf-system
	// spec: {}
	// ---
	// apiVersion: v1
	// data:
	//   level: info
	// kind: ConfigMap
	// metadata:
	//   name: settings
	//   namespace: cf-system
}
