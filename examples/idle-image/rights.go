package main

// This file declares the rights that the extension itself needs.

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
)

// rights returns the rights that the extension needs in addition to the Manager's: to create Events.
func rights(x *eirinix.ExtensionManager) []client.Object {
	o := x.GetManagerOptions()
	meta := metav1.ObjectMeta{Name: o.OperatorFingerprint + "-events"}
	return []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: meta,
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: o.WebhookNamespace, Name: o.OperatorFingerprint}},
		},
	}
}
