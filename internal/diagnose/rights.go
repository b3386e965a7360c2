package diagnose

// This file holds the forms of a right: as an authorizer receives it, and of the one who has it.

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/list"
)

// reviewed returns the right in the form that an authorizer receives. It does not know the name of an object that is
// being created, and a collection has none.
func reviewed(r diagnosis.Right) diagnosis.Right {
	if r.Verb == "create" || r.Verb == "deletecollection" {
		r.Name = ""
	}
	return r
}

func sentence(rights []diagnosis.Right) string {
	return strings.Join(list.Of(rights, diagnosis.Right.String), ", ")
}

// SubjectOf returns the subject of a binding for a user name.
func SubjectOf(user string) rbacv1.Subject {
	if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		if namespace, name, ok := strings.Cut(account, ":"); ok {
			return ServiceAccount(namespace, name)
		}
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}
}

// ServiceAccount returns the subject of a ServiceAccount.
func ServiceAccount(namespace, name string) rbacv1.Subject {
	namespace = cmp.Or(namespace, corev1.NamespaceDefault)
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}
