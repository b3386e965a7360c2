package diagnose

// This file builds the RBAC objects that grant rights.

import (
	"context"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"sigs.k8s.io/yaml"
)

// serviceAccountPrefix begins the user name of every ServiceAccount. The namespace and the name follow.
const serviceAccountPrefix = "system:serviceaccount:"

// WhoAmI asks the API server for the caller's identity, and returns it as the subject of a binding. If the API server
// does not answer, it returns the fallback instead of an error.
func WhoAmI(ctx context.Context, reviews authenticationv1client.SelfSubjectReviewInterface, fallback rbacv1.Subject) rbacv1.Subject {
	review, err := reviews.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username == "" {
		return fallback
	}
	return SubjectOf(review.Status.UserInfo.Username)
}

// SubjectOf returns the subject of a binding for a user name.
func SubjectOf(user string) rbacv1.Subject {
	if account, ok := strings.CutPrefix(user, serviceAccountPrefix); ok {
		if namespace, name, ok := strings.Cut(account, ":"); ok {
			return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
		}
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}
}

// Objects returns the roles that grant the rights, and their bindings to the subject. It returns a Role for each
// namespace, and a ClusterRole for rights without a namespace. All have the same name.
func Objects(name string, subject rbacv1.Subject, rights []Right) []runtime.Object {
	byNamespace := map[string][]Right{}
	var namespaces []string
	for _, r := range rights {
		if _, seen := byNamespace[r.Namespace]; !seen {
			namespaces = append(namespaces, r.Namespace)
		}
		byNamespace[r.Namespace] = append(byNamespace[r.Namespace], r)
	}
	slices.Sort(namespaces)
	slices.Reverse(namespaces) // the ClusterRole last
	var objects []runtime.Object
	for _, namespace := range namespaces {
		rules := Rules(byNamespace[namespace])
		meta, subjects := metav1.ObjectMeta{Namespace: namespace, Name: name}, []rbacv1.Subject{subject}
		if namespace == "" {
			objects = append(objects,
				&rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: meta, Rules: rules},
				&rbacv1.ClusterRoleBinding{TypeMeta: kind("ClusterRoleBinding"), ObjectMeta: meta, Subjects: subjects, RoleRef: reference("ClusterRole", name)})
			continue
		}
		objects = append(objects,
			&rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: meta, Rules: rules},
			&rbacv1.RoleBinding{TypeMeta: kind("RoleBinding"), ObjectMeta: meta, Subjects: subjects, RoleRef: reference("Role", name)})
	}
	return objects
}

// Manifest returns Objects as YAML for kubectl apply. It is empty if there are no rights.
func Manifest(name string, subject rbacv1.Subject, rights []Right) (string, error) {
	var documents []string
	for _, o := range Objects(name, subject, rights) {
		text, err := yaml.Marshal(o)
		if err != nil {
			return "", err
		}
		documents = append(documents, string(text))
	}
	return strings.Join(documents, "---\n"), nil
}

func kind(name string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: name}
}

func reference(kind, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}

// ServiceAccount returns the subject of a ServiceAccount.
func ServiceAccount(namespace, name string) rbacv1.Subject {
	if namespace == "" {
		namespace = corev1.NamespaceDefault
	}
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}
