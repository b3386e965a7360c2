package eirinixtest

// This file provides EiriniX's test catalog: ready-made managers, extensions and watchers for unit tests.

import (
	"context"
	"errors"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
)

// Catalog provides ready-made managers, extensions and watchers for unit tests of extensions, as EiriniX's catalog
// did. Pass SimpleManager to Handle and check the Response. No method contacts a cluster.
type Catalog struct{}

// NewCatalog returns a Catalog.
func NewCatalog() Catalog { return Catalog{} }

// SimpleManager returns a Manager in URL mode that is not started.
func (*Catalog) SimpleManager() eirinix.Manager {
	return eirinix.NewManager(eirinix.ManagerOptions{Namespace: "namespace", Host: "127.0.0.1", Port: 90})
}

// SimpleManagerService returns a Manager in Service mode that is not started.
func (*Catalog) SimpleManagerService() eirinix.Manager {
	return eirinix.NewManager(eirinix.ManagerOptions{
		Namespace: "eirini", Host: "0.0.0.0", ServiceName: "extension", WebhookNamespace: "cf",
	})
}

// SimpleExtension returns an EditEnvExtension.
func (*Catalog) SimpleExtension() eirinix.Extension { return &EditEnvExtension{} }

// SimpleWatcher returns a SimpleWatch.
func (*Catalog) SimpleWatcher() eirinix.Watcher { return &SimpleWatch{} }

// EditEnvExtension adds the environment variable STICKY_MESSAGE to every container.
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

// SimpleWatch stores the events it receives. Read Handled only after the Manager has stopped.
type SimpleWatch struct{ Handled []watch.Event }

// Handle appends the event.
func (w *SimpleWatch) Handle(_ eirinix.Manager, e watch.Event) { w.Handled = append(w.Handled, e) }
