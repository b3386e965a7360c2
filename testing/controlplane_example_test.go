package eirinixtest_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// A program, such as a demo, starts and stops a control plane by itself.
func ExampleNewControlPlane() {
	ctx := context.Background()

	plane, err := eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{})
	if err != nil {
		log.Fatal(err)
	}

	defer func() {
		if err := plane.Stop(); err != nil {
			log.Fatal(err)
		}
	}()

	client, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		log.Fatal(err)
	}

	namespace, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(namespace.Name, namespace.Status.Phase)
	// Output: default Active
}

// A test gets a control plane that stops when the test ends. In ginkgo, pass GinkgoT().
func ExampleStartControlPlane() {
	_ = func(t *testing.T) {
		plane := eirinixtest.StartControlPlane(t, func(o *eirinixtest.ControlPlaneOptions) {
			o.ControllerManager = true // Deployments get pods, owned objects are collected
		})

		developer, err := plane.User("jane", "developers")
		if err != nil {
			t.Fatal(err)
		}

		t.Logf("kubectl --kubeconfig %s; or as %s at %s", plane.Kubeconfig(), "jane", developer.Host)
	}
}

// The tests of a package share a control plane, in parallel too, each with a namespace of its own. Main stops it.
func ExampleShared() {
	_ = func(m *testing.M) { // TestMain
		os.Exit(eirinixtest.Main(m))
	}

	_ = func(t *testing.T) {
		t.Parallel()

		plane := eirinixtest.StartControlPlane(t, eirinixtest.Shared)
		t.Logf("%s at %s", plane.NewNamespace(t), plane.Config().Host)
	}
}

// A second API server on the same etcd has caches of its own, and can be frozen to test a program against a stale one.
func ExampleControlPlane_AddAPIServer() {
	_ = func(t *testing.T, plane *eirinixtest.ControlPlane) {
		second, err := plane.AddAPIServer(t.Context(), "--v=4")
		if err != nil {
			t.Fatal(err)
		}

		if err := second.Pause(); err != nil {
			t.Fatal(err)
		}

		// second learns of changes in the meantime after Resume.

		if err := second.Resume(); err != nil {
			t.Fatal(err)
		}
	}
}
