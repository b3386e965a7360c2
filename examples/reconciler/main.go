// Reconciler runs a controller that records in an annotation how many containers a pod has. It also sees existing pods,
// which a webhook never sees. Extensions could run alongside it in the same Manager.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"code.cloudfoundry.org/eirinix"
)

const annotation = "example.org/containers"

type counter struct{ client client.Client }

// Register builds the controller on the Manager's controller-runtime manager, which Start then runs.
func (c *counter) Register(m eirinix.Manager) error {
	kube := m.GetKubeManager()
	c.client = kube.GetClient()
	return builder.ControllerManagedBy(kube).For(&corev1.Pod{}).Complete(c)
}

// Reconcile brings one pod into the desired state, whichever event caused the call.
func (c *counter) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := c.client.Get(ctx, req.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	want := strconv.Itoa(len(pod.Spec.Containers))
	if pod.Annotations[annotation] == want || pod.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	before := pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, annotation, want)
	return reconcile.Result{}, client.IgnoreNotFound(c.client.Patch(ctx, pod, client.MergeFrom(before)))
}

func main() {
	log.SetFlags(0)
	o := eirinix.ManagerOptions{}
	flag.StringVar(&o.Namespace, "namespace", os.Getenv("RECONCILER_NAMESPACE"), "namespace of the pods; empty means all [$RECONCILER_NAMESPACE]")
	flag.StringVar(&o.KubeConfig, "kubeconfig", "", "path of a kubeconfig; empty means the pod's service account, else $KUBECONFIG, else ~/.kube/config")
	flag.Parse()

	x := eirinix.NewManager(o)
	x.AddReconciler(&counter{})
	if err := x.Start(); err != nil { // until SIGINT or SIGTERM
		log.Fatal(err)
	}
}
