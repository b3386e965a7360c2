package hosts

// This file refuses pods whose images come from a registry that a ConfigMap does not list.

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
)

// registries is the name of the ConfigMap. Its key "allowed" has a prefix of images on each line.
const registries = "registries"

// Registries returns the step. The ConfigMap is in that namespace. While it is missing, the step fails.
func Registries(namespace string) eirinix.Validation[*corev1.Pod] {
	return eirinix.Validation[*corev1.Pod]{
		ID: "known-registries",
		Settings: eirinix.Settings{Reads: []eirinix.Read{{
			Object: &corev1.ConfigMap{}, Namespaces: []string{namespace},
			Fields: fields.OneTermEqualSelector("metadata.name", registries), Required: true,
		}}},
		Create: func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
			var list corev1.ConfigMap
			if err := c.Reader().Get(ctx, client.ObjectKey{Namespace: namespace, Name: registries}, &list); err != nil {
				return err
			}
			allowed := strings.Fields(list.Data["allowed"])
			for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
				known := func(prefix string) bool { return strings.HasPrefix(container.Image, prefix) }
				if !slices.ContainsFunc(allowed, known) {
					return eirinix.Deny("image %s is from no registry that ConfigMap %s/%s lists", container.Image, namespace, registries)
				}
			}
			return nil
		},
	}
}
