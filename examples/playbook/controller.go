package main

// This file holds the controller, which deletes completed Playbooks.

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"code.cloudfoundry.org/eirinix"
	opsv1 "code.cloudfoundry.org/eirinix/examples/playbook/api/v1"
)

// controller deletes completed Playbooks. Each replica runs one, because a deletion can safely be repeated.
type controller struct{ client client.Client }

// Register builds an ordinary controller-runtime controller.
func (c *controller) Register(m eirinix.Manager) error {
	kube := m.GetKubeManager()
	c.client = kube.GetClient()
	return builder.ControllerManagedBy(kube).For(&opsv1.Playbook{}).Complete(c)
}

// Reconcile deletes one Playbook if it is completed, whichever event caused the call.
func (c *controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	p := &opsv1.Playbook{}
	if err := c.client.Get(ctx, req.NamespacedName, p); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if p.Status.Progress < 100 || p.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(c.client.Delete(ctx, p))
}

// rights returns the rights that the controller needs in addition to the Manager's.
func rights(x *eirinix.ExtensionManager) []client.Object {
	o := x.GetManagerOptions()
	meta := metav1.ObjectMeta{Name: o.OperatorFingerprint + "-controller"}
	return []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: meta,
			Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{opsv1.GroupVersion.Group}, Resources: []string{"playbooks"}, Verbs: []string{"get", "list", "watch", "delete"},
			}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: o.WebhookNamespace, Name: o.OperatorFingerprint}},
		},
	}
}
