package manifests

import (
	"context"

	. "github.com/onsi/ginkgo/v2/dsl/core"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"

	"code.cloudfoundry.org/eirinix"
)

// readingStep returns a step that refuses no pod, and declares Reads.
func readingStep(reads ...eirinix.Read) eirinix.Validation[*corev1.Pod] {
	return eirinix.Validation[*corev1.Pod]{
		ID: "looks", Settings: eirinix.Settings{Reads: reads}, Create: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil },
	}
}

var _ = Describe("The objects that steps read", func() {
	It("are rights in the manifests, and no more than they need", func() {
		m := eirinix.NewManager(eirinix.ManagerOptions{ServiceName: "hooks", WebhookNamespace: "hooks"})
		Expect(m.AddExtension(readingStep(
			eirinix.Read{Object: &corev1.Secret{}, Namespaces: []string{"vault"}, Fields: fields.OneTermEqualSelector("metadata.name", "keys")},
			eirinix.Read{Object: &corev1.Secret{}, Namespaces: []string{"vault"}, Fields: fields.OneTermEqualSelector("metadata.name", "more")},
			eirinix.Read{Object: &corev1.Service{}},
			eirinix.Read{Object: &corev1.Node{}},
		))).To(Succeed())
		objects, err := Of(m, Options{Image: "example.org/hooks:1", Args: []string{}, AuditSchedule: "@daily"})
		Expect(err).NotTo(HaveOccurred())
		rule := func(names []string, resources ...string) rbacv1.PolicyRule {
			return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: resources, ResourceNames: names, Verbs: []string{"get", "list", "watch"}}
		}
		roles := map[string][]rbacv1.PolicyRule{}
		for _, o := range objects {
			switch o := o.(type) {
			case *rbacv1.Role:
				roles[o.Namespace+"/"+o.Name] = o.Rules
			case *rbacv1.ClusterRole:
				roles["/"+o.Name] = o.Rules
			}
		}
		Expect(roles).To(HaveKeyWithValue("vault/eirinix:eirini-x", ConsistOf(rule([]string{"keys", "more"}, "secrets"))))
		Expect(roles).To(HaveKeyWithValue("vault/eirinix:eirini-x:audit", ConsistOf(rule([]string{"keys", "more"}, "secrets"))))
		for _, name := range []string{"/eirinix:eirini-x", "/eirinix:eirini-x:audit"} {
			Expect(roles[name]).To(ContainElement(rule(nil, "nodes", "services")))
			Expect(roles[name]).NotTo(ContainElement(HaveField("Resources", ContainElement("secrets"))))
		}
		for name, rules := range roles {
			if name != "/eirinix:eirini-x" && name != "/eirinix:eirini-x:audit" {
				Expect(rules).NotTo(ContainElement(HaveField("Resources", ContainElement("services"))), name)
			}
		}
	})

	It("are an error in the manifests if the kind is in no namespace, or unknown without a cluster", func() {
		m := eirinix.NewManager(eirinix.ManagerOptions{ServiceName: "hooks", WebhookNamespace: "hooks"})
		shop := &unstructured.Unstructured{}
		shop.SetAPIVersion("example.org/v1")
		shop.SetKind("Shop")
		Expect(m.AddExtension(readingStep(eirinix.Read{Object: &corev1.Node{}, Namespaces: []string{"a"}}, eirinix.Read{Object: shop}))).To(Succeed())
		Expect(m.Validate()).To(Succeed())
		_, err := Of(m, Options{Image: "example.org/hooks:1", Args: []string{}})
		Expect(err).To(MatchError(SatisfyAll(ContainSubstring("Node is in no namespace"), ContainSubstring("Settings.Reads[1]"), ContainSubstring("ManagerOptions.Scheme"))))
	})
})
