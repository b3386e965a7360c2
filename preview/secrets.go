package preview

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

// shown are the object before and after as they may be shown: logs of a pipeline are no place for the data of Secrets.
// As with kubectl diff, it can be seen that a value has changed, and not to what.
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

// mapOf is a member that is a map, to be changed in place. Of any other, nothing is left.
func mapOf(u *unstructured.Unstructured, member string) map[string]any {
	m, ok := u.Object[member].(map[string]any)
	if !ok && u.Object[member] != nil {
		u.Object[member] = "***"
	}
	return m
}
