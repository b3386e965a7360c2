package main

// This file holds the endpoints that accept or refuse objects.

import (
	"context"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
)

// The key and the value, in labels or data, that make an endpoint refuse.
const (
	key      = "webhook-e2e-test"
	disallow = "webhook-disallow"
	keep     = "webhook-nondeletable" // refuses only the deletion
)

// validating returns the endpoints that accept or refuse objects.
func (e endpoints) validating() []any {
	return []any{
		e.always(late, 10*time.Second, allowLate),
		e.always("always-deny", 0, deny),
		eirinix.Validation[*corev1.Pod]{ID: "pods", Settings: e.alone(), Create: checkPod},
		eirinix.Subresource[*corev1.PodAttachOptions]{
			ID: "pods-attach", Settings: e.alone(), Check: checkAttach,
			Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "attach",
		},
		eirinix.Validation[*corev1.ConfigMap]{
			ID: "configmaps", Settings: e.alone(), Create: checkConfigMap, Update: checkChangedConfigMap, Delete: checkDeletedConfigMap,
		},
		eirinix.Validation[*unstructured.Unstructured]{
			ID: "custom-resource", Settings: e.alone(on("agnhost.example.org", "v1", "widgets", created, updated, deleted)),
			Create: checkWidget, Update: checkChangedWidget, Delete: checkDeletedWidget,
		},
		eirinix.Validation[*unstructured.Unstructured]{
			ID: "crd", Settings: e.alone(on("apiextensions.k8s.io", "v1", "customresourcedefinitions", created)), Create: checkDefinition,
		},
	}
}

// check decides about an object of any kind.
type check func(ctx context.Context, c *eirinix.Call, o *unstructured.Unstructured) error

// always returns an endpoint that treats every object alike. Where this program registers it, that is only the creation
// of ConfigMaps.
func (e endpoints) always(endpoint string, timeout time.Duration, treat check) eirinix.Validation[*unstructured.Unstructured] {
	operations := []admissionregistrationv1.OperationType{created}
	if e.othersRegister {
		operations = append(operations, updated, deleted)
	}
	v := eirinix.Validation[*unstructured.Unstructured]{
		ID: endpoint, Settings: e.where(endpoint, on("", "v1", "configmaps", operations...)), Create: treat,
	}
	v.Settings.Timeout = timeout
	if e.othersRegister {
		v.Delete = treat
		v.Update = func(ctx context.Context, c *eirinix.Call, _, o *unstructured.Unstructured) error {
			return treat(ctx, c, o)
		}
	}
	return v
}

// allowLate stops waiting when the API server does.
func allowLate(ctx context.Context, _ *eirinix.Call, _ *unstructured.Unstructured) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(5 * time.Second):
		return nil
	}
}

func deny(context.Context, *eirinix.Call, *unstructured.Unstructured) error {
	return eirinix.Deny("this webhook denies all requests")
}

func checkPod(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
	var reasons []string
	for _, container := range pod.Spec.Containers {
		if strings.Contains(container.Name, disallow) {
			reasons = append(reasons, "the pod contains unwanted container name")
		}
	}
	switch pod.Labels[key] {
	case disallow:
		reasons = append(reasons, "the pod contains unwanted label")
	case "wait-forever":
		<-ctx.Done()
		return ctx.Err()
	}
	if len(reasons) == 0 {
		c.Annotate("verdict", "nothing unwanted")
		return nil
	}
	return eirinix.Deny("%s", strings.Join(reasons, "; "))
}

func checkAttach(_ context.Context, c *eirinix.Call, _, options *corev1.PodAttachOptions) error {
	if c.Name == "to-be-attached-pod" && options.Container == "container1" && options.Stdin {
		return eirinix.Deny("attaching to pod '%s' is not allowed", c.Name)
	}
	return nil
}

func checkConfigMap(_ context.Context, _ *eirinix.Call, m *corev1.ConfigMap) error {
	if m.Data[key] == disallow {
		return eirinix.Deny("the configmap contains unwanted key and value")
	}
	return nil
}

func checkChangedConfigMap(ctx context.Context, c *eirinix.Call, _, m *corev1.ConfigMap) error {
	return checkConfigMap(ctx, c, m)
}

func checkDeletedConfigMap(_ context.Context, _ *eirinix.Call, m *corev1.ConfigMap) error {
	if m.Data[key] == keep {
		return eirinix.Deny("the configmap cannot be deleted because it contains unwanted key and value")
	}
	return nil
}

func checkWidget(_ context.Context, _ *eirinix.Call, w *unstructured.Unstructured) error {
	if value, _, _ := unstructured.NestedString(w.Object, "data", key); value == disallow {
		return eirinix.Deny("the custom resource contains unwanted data")
	}
	return nil
}

func checkChangedWidget(ctx context.Context, c *eirinix.Call, _, w *unstructured.Unstructured) error {
	return checkWidget(ctx, c, w)
}

func checkDeletedWidget(_ context.Context, _ *eirinix.Call, w *unstructured.Unstructured) error {
	if value, _, _ := unstructured.NestedString(w.Object, "data", key); value == keep {
		return eirinix.Deny("the custom resource cannot be deleted because it contains unwanted key and value")
	}
	return nil
}

func checkDefinition(_ context.Context, _ *eirinix.Call, d *unstructured.Unstructured) error {
	if d.GetLabels()[key] == disallow {
		return eirinix.Deny("the crd contains unwanted label")
	}
	return nil
}
