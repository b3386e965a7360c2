package eirinix_test

import (
	"context"
	"fmt"
	"log"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/diagnosis"
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
	if err := x.Start(); err != nil {
		log.Fatal(err)
	}
}

// Typed steps are for objects of any kind.
func ExampleMutation() {
	x := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org"})
	x.AddExtension(eirinix.Mutation[*appsv1.Deployment]{
		ID: "replicas",
		Apply: func(_ context.Context, c *eirinix.Call, d *appsv1.Deployment) error {
			if d.Spec.Replicas == nil {
				d.Spec.Replicas = new(int32(2))
				c.Warn("two replicas, because you gave no number")
			}
			return nil
		},
	})
	x.AddExtension(eirinix.Validation[*corev1.ConfigMap]{
		ID: "immutable-settings",
		Update: func(_ context.Context, _ *eirinix.Call, oldObj, newObj *corev1.ConfigMap) error {
			if oldObj.Data["version"] != newObj.Data["version"] {
				return eirinix.Deny("version is %q and stays so", oldObj.Data["version"])
			}
			return nil
		},
	})
	fmt.Println(x.Validate(), played(x, &appsv1.Deployment{}, &corev1.ConfigMap{Data: map[string]string{"version": "1"}}))
	// Output: <nil> <nil>
}

// A Rule lets an older object be edited where it does not violate the rule. Update is for transitions.
func ExampleValidation() {
	x := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org"})
	x.AddExtension(eirinix.Validation[*corev1.ConfigMap]{
		ID: "versioned-settings",
		Rule: func(_ context.Context, _ *eirinix.Call, m *corev1.ConfigMap) error {
			if m.Data["version"] == "" {
				return eirinix.Invalid(field.ErrorList{field.Required(field.NewPath("data").Key("version"), "")})
			}
			return nil
		},
	})
	fmt.Println(x.Validate(), played(x, &corev1.ConfigMap{Data: map[string]string{"version": "1"}}))
	// Output: <nil> <nil>
}

// ClientCA says who may call.
func ExampleClientCA() {
	x := eirinix.NewManager(eirinix.ManagerOptions{
		ServiceName:      "extensions",
		WebhookNamespace: "cf-system",
		ClientCA: eirinix.ClientCA{
			ConfigMap: "cf-system/webhook-callers", // its key ca.crt
			Names:     []string{"kube-apiserver"},
		},
	})
	fmt.Println(x.Validate())
	// Output: <nil>
}

// Settings holds the fields of a webhook in the API.
func ExampleSettings() {
	x := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org"})
	x.AddExtension(eirinix.Mutation[*corev1.Pod]{
		ID: "proxy", // the name in webhooks, paths, logs and metrics: keep it stable
		Settings: eirinix.Settings{
			Objects:       &metav1.LabelSelector{MatchLabels: map[string]string{"proxy": "yes"}},
			FailurePolicy: admissionregistrationv1.Ignore, // a pod without proxy is better than none
			Timeout:       2 * time.Second,
			Reinvoke:      admissionregistrationv1.IfNeededReinvocationPolicy,
		},
		Apply: func(_ context.Context, _ *eirinix.Call, p *corev1.Pod) error {
			if !slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == "proxy" }) {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "proxy", Image: "registry.example.org/proxy:1"})
			}
			return nil
		},
	})
	fmt.Println(x.Validate(), played(x, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"proxy": "yes"}}}))
	// Output: <nil> <nil>
}

// A step reads other objects from memory, if it declares them.
func ExampleCall_Reader() {
	x := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org"})
	x.AddExtension(eirinix.Validation[*corev1.Pod]{
		ID: "known-team",
		Settings: eirinix.Settings{Reads: []eirinix.Read{{
			Object: &corev1.ConfigMap{}, Namespaces: []string{"platform"},
			Fields: fields.OneTermEqualSelector("metadata.name", "teams"), Required: true,
		}}},
		Create: func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
			var teams corev1.ConfigMap
			if err := c.Reader().Get(ctx, client.ObjectKey{Namespace: "platform", Name: "teams"}, &teams); err != nil {
				return err
			}
			if _, known := teams.Data[pod.Labels["team"]]; !known {
				return eirinix.Deny("team %q is unknown", pod.Labels["team"])
			}
			return nil
		},
	})
	fmt.Println(x.Validate())
	// Output: <nil>
}

// Exec, attach, eviction and scale are subresources.
func ExampleSubresource() {
	x := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org"})
	err := x.AddExtension(eirinix.Subresource[*corev1.PodExecOptions]{
		Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "exec",
		Settings: eirinix.Settings{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Connect}},
		Check: func(_ context.Context, c *eirinix.Call, _, options *corev1.PodExecOptions) error {
			if options.Stdin {
				return eirinix.Deny("%s may look, but not type", c.UserInfo.Username)
			}
			return nil
		},
	})
	fmt.Println(err)
	// Output: <nil>
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

// Certificates may come from cert-manager, or from whatever else keeps them in a Secret.
func ExampleFromSecret() {
	x := eirinix.NewManager(eirinix.ManagerOptions{
		ServiceName:      "extensions",
		WebhookNamespace: "cf-system",
		Certificates:     eirinix.FromSecret("cf-system", "extensions-tls"),
	})
	fmt.Println(x.Validate())
	// Output: <nil>
}

// Diagnose has the API server call the webhook, and reports why a call fails.
func ExampleExtensionManager_Diagnose() {
	x := eirinix.NewManager(eirinix.ManagerOptions{ServiceName: "extensions", WebhookNamespace: "cf-system", KubeConfig: "nowhere"})
	report := x.Diagnose(context.Background())
	for _, finding := range report.Findings {
		fmt.Println(finding.Severity, finding.Message)
	}
	fmt.Println(report.Err() != nil)
	// Output:
	// problem eirinix: ManagerOptions.KubeConfig "nowhere" cannot be used; give the path of a kubeconfig file: stat nowhere: no such file or directory
	// true
}

// A program branches on the code of a finding.
func ExampleFinding() {
	x := eirinix.NewManager(eirinix.ManagerOptions{
		ServiceName: "extensions", WebhookNamespace: "cf-system",
		RestConfig: &rest.Config{Host: "https://127.0.0.1:1"}, // where no API server listens
	})
	report := x.Diagnose(context.Background())
	_, offline := report.Find(diagnosis.APIServerUnreachable)
	_, pending := report.Find(diagnosis.NoReadyEndpoints)
	switch {
	case offline:
		fmt.Println("check the kubeconfig")
	case pending:
		fmt.Println("wait for the pods")
	case report.Err() != nil:
		fmt.Println(report)
	}
	// Output: check the kubeconfig
}

// A program that has a controller-runtime manager already makes the webhook a part of it.
func ExampleNewManager_kubeManager() {
	var mgr manager.Manager // from ctrl.NewManager
	x := eirinix.NewManager(eirinix.ManagerOptions{
		ServiceName:      "extensions",
		WebhookNamespace: "cf-system",
		KubeManager:      mgr,
	})
	fmt.Println(x.Validate())
	// mgr.Start(ctx) serves the webhook too.
	// Output: <nil>
}

// All faults of the options are reported at once.
func ExampleExtensionManager_Validate() {
	x := eirinix.NewManager(eirinix.ManagerOptions{ServiceName: "extensions", WebhookNamespace: "cf system", Port: -1})
	fmt.Println(x.Validate())
	// Output:
	// eirinix: ManagerOptions.WebhookNamespace is "cf system": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character
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
