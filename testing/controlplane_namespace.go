package eirinixtest

// This file creates namespaces for tests that share a control plane.

import (
	"context"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// namespaceTimeout bounds one request of NewNamespace.
const namespaceTimeout = 30 * time.Second

// NewNamespace creates a namespace for a test and deletes it when the test ends. It isolates tests that share a
// control plane from each other. The name is unique. It begins with the test's name, if t has one. The test fails if
// the namespace cannot be created.
//
// Without a controller manager, a deleted namespace is never emptied. It stays in the phase Terminating with its
// contents and accepts no new objects.
func (c *ControlPlane) NewNamespace(t TB) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatalf("eirinixtest: NewNamespace: %v", err)
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), namespaceTimeout)
	defer cancel()

	namespaces := client.CoreV1().Namespaces()

	made, err := namespaces.Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: namespacePrefix(t)}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("eirinixtest: NewNamespace: %v", err)
		return ""
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), namespaceTimeout)
		defer cancel()

		err := namespaces.Delete(ctx, made.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // conflict: it is being deleted
			t.Logf("eirinixtest: NewNamespace: delete %s: %v", made.Name, err)
		}
	})
	return made.Name
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// namespacePrefix turns the test's name into the beginning of a DNS label. It is shorter than necessary, because the
// API server appends five characters and objects in the namespace can be named after it.
func namespacePrefix(t TB) string {
	const limit = 40

	name := "test"
	if named, ok := t.(interface{ Name() string }); ok {
		name = notInNames.ReplaceAllString(strings.ToLower(named.Name()), "-")
	}
	if len(name) > limit {
		name = name[:limit]
	}
	if name = strings.Trim(name, "-"); name == "" {
		name = "test"
	}
	return name + "-"
}
