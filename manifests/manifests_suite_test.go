package manifests

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
)

func TestManifests(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "manifests")
}

// valueExtension, namedExtension, watcher and reconciler are what a program adds. They do nothing.
type (
	valueExtension struct{}
	namedExtension struct {
		valueExtension
		name string
	}
	watcher    struct{}
	reconciler struct{}
)

func (valueExtension) Handle(context.Context, eirinix.Manager, *corev1.Pod, admission.Request) admission.Response {
	return admission.Allowed("")
}

func (n namedExtension) Name() string { return n.name }

func (*watcher) Handle(eirinix.Manager, watch.Event) {}

func (*reconciler) Reconcile(context.Context, reconcile.Request) (reconcile.Result, error) {
	return reconcile.Result{}, nil
}
func (*reconciler) Register(eirinix.Manager) error { return nil }
