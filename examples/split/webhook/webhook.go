// Package webhook holds the parts that the two halves of a split deployment share: the extension, and the options,
// which must be the same for both. The registering half has the right to write webhook configurations and runs once.
// The serving half does not need that right and runs permanently.
package webhook

import (
	"context"
	"flag"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
)

// Annotation is the annotation that the extension adds to a pod. Its value is the namespace of the request.
const Annotation = "example.org/admitted-to"

// Stamp records in an annotation the namespace that a pod was admitted to. The zero value is ready to use.
type Stamp struct{}

// Name keeps the webhook's name stable when the type is renamed. Both halves must agree on the name, even while their
// versions differ.
func (Stamp) Name() string { return "stamp" }

// Handle changes its own copy of the pod and makes the Manager compute the patch.
func (Stamp) Handle(_ context.Context, m eirinix.Manager, pod *corev1.Pod, req admission.Request) admission.Response {
	if pod == nil { // the request carries none
		return admission.Allowed("")
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, Annotation, req.Namespace)
	return m.PatchFromPod(req, pod)
}

// New returns the Manager of either half.
func New(o eirinix.ManagerOptions) (*eirinix.ExtensionManager, error) {
	x := eirinix.NewManager(o)
	return x, x.AddExtension(Stamp{})
}

// Options declares the flags of both halves and parses the command line.
func Options() (o eirinix.ManagerOptions) {
	flag.StringVar(&o.Namespace, "namespace", os.Getenv("STAMP_NAMESPACE"),
		"namespace whose pods are stamped; the certificate Secret lies there too, unless -webhook-namespace is given [$STAMP_NAMESPACE]")
	flag.StringVar(&o.Host, "host", os.Getenv("STAMP_HOST"),
		"name or IP address under which the API server reaches the serving half; left out with -service [$STAMP_HOST]")
	flag.StringVar(&o.ServiceName, "service", os.Getenv("STAMP_SERVICE"),
		"Service through which the API server reaches the serving half, in place of -host [$STAMP_SERVICE]")
	flag.StringVar(&o.WebhookNamespace, "webhook-namespace", os.Getenv("STAMP_WEBHOOK_NAMESPACE"),
		"namespace of that Service and of the certificate Secret [$STAMP_WEBHOOK_NAMESPACE]")
	flag.StringVar(&o.OperatorFingerprint, "fingerprint", "split-example",
		"names the Secret and the configuration in the cluster; two programs need two")
	flag.StringVar(&o.KubeConfig, "kubeconfig", "",
		"path of a kubeconfig; empty means the pod's service account, else $KUBECONFIG, else ~/.kube/config")
	flag.StringVar(&o.ListenAddress, "listen", "",
		"host:port that the serving half listens on where it differs from -host and -port")
	flag.Func("port", "`port` that the API server calls (default 443)", func(s string) error {
		n, err := strconv.ParseInt(s, 10, 32)
		o.Port = int32(n)
		return err
	})
	flag.Parse()
	return o
}
