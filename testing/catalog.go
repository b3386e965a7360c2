package eirinixtest

import (
	"context"
	"errors"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
)

// Catalog gives ready-made managers, extensions and watchers to the unit tests of extensions, as EiriniX's
// catalog did: hand SimpleManager to Handle and look at the Response. Nothing in it touches a cluster.
type Catalog struct{}

// NewCatalog makes a Catalog.
func NewCatalog() Catalog { return Catalog{} }

// SimpleManager is a Manager in URL mode that is not started.
func (*Catalog) SimpleManager() eirinix.Manager {
	return eirinix.NewManager(eirinix.ManagerOptions{Namespace: "namespace", Host: "127.0.0.1", Port: 90})
}

// SimpleManagerService is a Manager in Service mode that is not started.
func (*Catalog) SimpleManagerService() eirinix.Manager {
	return eirinix.NewManager(eirinix.ManagerOptions{
		Namespace: "eirini", Host: "0.0.0.0", ServiceName: "extension", WebhookNamespace: "cf",
	})
}

// SimpleExtension is an EditEnvExtension.
func (*Catalog) SimpleExtension() eirinix.Extension { return &EditEnvExtension{} }

// SimpleWatcher is a SimpleWatch.
func (*Catalog) SimpleWatcher() eirinix.Watcher { return &SimpleWatch{} }

// EditEnvExtension gives every container the environment variable STICKY_MESSAGE.
type EditEnvExtension struct{}

// Handle adds the variable to a copy of the pod.
func (*EditEnvExtension) Handle(_ context.Context, m eirinix.Manager, pod *corev1.Pod, req admission.Request) admission.Response {
	if pod == nil {
		return admission.Errored(http.StatusBadRequest, errors.New("the request carries no pod"))
	}
	pod = pod.DeepCopy()
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		c.Env = append(c.Env, corev1.EnvVar{Name: "STICKY_MESSAGE", Value: "Eirinix is awesome!"})
	}
	return m.PatchFromPod(req, pod)
}

// SimpleWatch keeps the events it is told of. Read Handled after the Manager has stopped.
type SimpleWatch struct{ Handled []watch.Event }

// Handle appends the event.
func (w *SimpleWatch) Handle(_ eirinix.Manager, e watch.Event) { w.Handled = append(w.Handled, e) }
