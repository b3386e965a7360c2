// Package webhook is what the two halves of a split deployment have in common: the extension, and the options
// that both must be given alike. The registering half may write webhook configurations and runs once; the
// serving half needs no such right and runs as long as the cluster does.
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

// Annotation is what the extension adds to a pod: the namespace that the API server was asked for.
const Annotation = "example.org/admitted-to"

// Stamp notes in an annotation where a pod was admitted to. The zero value is ready to use.
type Stamp struct{}

// Name keeps the webhook's name when the type is renamed: both halves must agree on it, also while one of
// them is newer than the other.
func (Stamp) Name() string { return "stamp" }

// Handle changes its own copy of the pod and lets the Manager make the patch.
func (Stamp) Handle(_ context.Context, m eirinix.Manager, pod *corev1.Pod, req admission.Request) admission.Response {
	if pod == nil { // the request carries none
		return admission.Allowed("")
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, Annotation, req.Namespace)
	return m.PatchFromPod(req, pod)
}

// New makes the Manager of either half.
func New(o eirinix.ManagerOptions) (*eirinix.ExtensionManager, error) {
	x := eirinix.NewManager(o)
	return x, x.AddExtension(Stamp{})
}

// Options declares the flags that both halves have and parses the command line.
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
