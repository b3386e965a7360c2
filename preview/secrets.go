package preview

// This file hides the data of Secrets.

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

func isSecret(d apiserver.Document) bool {
	return d.Kind.GroupKind() == schema.GroupKind{Kind: "Secret"}
}

// shown returns the object before and after, with the data of Secrets masked unless secrets is set. Pipeline logs must
// not contain such data. As in kubectl diff, the output shows that a value has changed, but not the values.
func shown(secrets bool, before, after apiserver.Document) (apiserver.Document, apiserver.Document) {
	if secrets || !isSecret(before) {
		return before, after
	}
	was, is := before.Unstructured(), after.Unstructured()
	for _, member := range []string{"data", "stringData"} {
		from, to := mapOf(was, member), mapOf(is, member)
		for key, value := range from {
			now, kept := to[key]
			from[key] = "***"
			if kept && !reflect.DeepEqual(value, now) {
				from[key], to[key] = "*** (before)", "*** (after)"
				continue
			}
			if kept {
				to[key] = "***"
			}
		}
		for key := range to {
			if _, had := from[key]; !had {
				to[key] = "***"
			}
		}
	}
	masked := func(d apiserver.Document, tree *unstructured.Unstructured) apiserver.Document {
		if d.Absent() {
			return d
		}
		unstructured.RemoveNestedField(tree.Object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
		return d.With(func(u *unstructured.Unstructured) { u.Object = tree.Object })
	}
	return masked(before, was), masked(after, is)
}

// mapOf returns a member that is a map, which the caller can change in place. If the member is not a map, its value is
// masked and mapOf returns nil.
func mapOf(u *unstructured.Unstructured, member string) map[string]any {
	m, ok := u.Object[member].(map[string]any)
	if !ok && u.Object[member] != nil {
		u.Object[member] = "***"
	}
	return m
}
