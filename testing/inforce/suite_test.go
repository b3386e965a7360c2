package inforce_test

// This file starts the control plane, and holds the clients of the specs.

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// patience bounds the time that a slow machine may take. A spec that passes does not wait for it.
const patience = 30 * time.Second

func TestMain(m *testing.M) { os.Exit(eirinixtest.Main(m)) }

func TestInForce(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultEventuallyPollingInterval(10 * time.Millisecond)
	RunSpecs(t, "In force", Label(APIServer))
}

var (
	plane   *eirinixtest.ControlPlane
	clients kubernetes.Interface // of a cluster administrator
	objects dynamic.Interface    // the same, for custom kinds
)

var _ = BeforeSuite(func() {
	plane = eirinixtest.StartControlPlane(GinkgoTB(), eirinixtest.Shared)
	config := unlimited(plane.Config())
	clients, objects = Clients(config), Must(dynamic.NewForConfig(config))
})

// unlimited lets a client send as fast as it can.
func unlimited(config *rest.Config) *rest.Config {
	config.QPS = -1
	return config
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// shops is the custom kind of a spec.
type shops struct{ group string }

func (s shops) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: s.group, Version: "v1", Resource: "shops"}
}

// empty returns an object of the kind.
func (s shops) empty(kind string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: s.group, Version: "v1", Kind: kind})
	return u
}

// define has the cluster serve the kind, at the latest until the spec ends.
func (s shops) define(ctx context.Context) {
	GinkgoHelper()
	Must(objects.Resource(definitions).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "shops." + s.group},
		"spec": map[string]any{
			"group": s.group, "scope": "Namespaced",
			"names": map[string]any{"kind": "Shop", "plural": "shops", "singular": "shop", "listKind": "ShopList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}, metav1.CreateOptions{}))
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(objects.Resource(definitions).Delete(ctx, "shops."+s.group, metav1.DeleteOptions{}))).To(Succeed())
	})
}

// serve is define, and waits until the cluster serves the kind.
func (s shops) serve(ctx context.Context) {
	GinkgoHelper()
	s.define(ctx)
	Eventually(s.served).WithContext(ctx).Should(BeTrue())
}

// remove deletes the definition, and waits until the cluster does not serve the kind.
func (s shops) remove(ctx context.Context) {
	GinkgoHelper()
	Expect(objects.Resource(definitions).Delete(ctx, "shops."+s.group, metav1.DeleteOptions{})).To(Succeed())
	Eventually(func() bool {
		_, err := objects.Resource(definitions).Get(ctx, "shops."+s.group, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).WithContext(ctx).Should(BeTrue())
	Eventually(s.served).WithContext(ctx).Should(BeFalse())
}

// served reports whether discovery lists the kind.
func (s shops) served() (bool, error) {
	list, err := clients.Discovery().ServerResourcesForGroupVersion(s.group + "/v1")
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && len(list.APIResources) > 0, err
}
