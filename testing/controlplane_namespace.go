package eirinixtest

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

// NewNamespace makes a namespace for a test, so that tests which share a control plane do not meet, and deletes it when
// the test ends. Its name is unique; it begins with the test's, where t has a name. If it cannot be made, the test fails.
//
// Without a controller manager nobody empties a namespace that is deleted: it stays, terminating, with what is in it,
// and takes nothing new.
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
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // conflict: it is going already
			t.Logf("eirinixtest: NewNamespace: delete %s: %v", made.Name, err)
		}
	})

	return made.Name
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// namespacePrefix makes the beginning of a DNS label out of the test's name. The API server adds five characters, and
// objects in the namespace may be named after it, so it is not as long as it could be.
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
