// Unique-host refuses Ingresses whose host another Ingress has, and pods whose images come from an unknown registry. Its
// steps look at other objects than that of the request.
package main

import (
	"cmp"
	"flag"
	"log"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/examples/cli"
	"code.cloudfoundry.org/eirinix/examples/unique-host/hosts"
)

func main() {
	log.SetFlags(0)
	reserve := flag.Bool("reserve", false, "decide between requests at the same time, with a ConfigMap for each host")
	o := cli.Options("unique-host-example")
	namespace := cmp.Or(o.WebhookNamespace, corev1.NamespaceDefault)
	x, ingresses := eirinix.NewManager(o), hosts.Unique()
	var more []client.Object
	if *reserve {
		ingresses, more = hosts.Reserved(namespace), rights(namespace)
	}
	for _, step := range []any{ingresses, hosts.Registries(namespace)} {
		if err := x.AddExtension(step); err != nil {
			log.Fatal(err)
		}
	}
	if err := cli.Run(x, more...); err != nil {
		log.Fatal(err)
	}
}

// rights returns the right to make reservations. The library knows only those that it needs itself.
func rights(namespace string) []client.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "unique-host-example:reserve"}
	kind := func(name string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: name}
	}
	return []client.Object{
		&rbacv1.Role{
			TypeMeta: kind("Role"), ObjectMeta: meta,
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "get", "update"}}},
		},
		&rbacv1.RoleBinding{
			TypeMeta: kind("RoleBinding"), ObjectMeta: meta,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "unique-host-example"}},
		},
	}
}
