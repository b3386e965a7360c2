package diagnose_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/manifest"
)

func rule(group string, resources, names, verbs []string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, ResourceNames: names, Verbs: verbs}
}

func l(s ...string) []string { return s }

func secret(verb string) diagnosis.Right {
	return diagnosis.Right{Resource: "secrets", Verb: verb, Namespace: "cf", Name: "eirini-x-setupcertificate"}
}

var _ = DescribeTable("Rights become rules",
	func(rights []diagnosis.Right, expected ...rbacv1.PolicyRule) {
		Expect(diagnose.Rules(rights)).To(HaveExactElements(expected))
		Expect(diagnose.Rules(diagnose.RightsOf(manifest.Grant{Namespace: "cf", Rules: expected}))).To(HaveExactElements(expected), "and are the same rights again")
	},
	Entry("verbs of one object in the order of people, each once",
		[]diagnosis.Right{secret("update"), secret("get"), secret("watch"), secret("get")},
		rule("", l("secrets"), l("eirini-x-setupcertificate"), l("get", "watch", "update"))),
	Entry("creation apart, because RBAC cannot restrict it by name",
		[]diagnosis.Right{secret("create"), secret("get")},
		rule("", l("secrets"), nil, l("create")), rule("", l("secrets"), l("eirini-x-setupcertificate"), l("get"))),
	Entry("names of the same resource and verbs together",
		[]diagnosis.Right{{Resource: "secrets", Verb: "get", Name: "b"}, {Resource: "secrets", Verb: "get", Name: "a"}},
		rule("", l("secrets"), l("a", "b"), l("get"))),
	Entry("names with other verbs apart",
		[]diagnosis.Right{{Resource: "secrets", Verb: "get", Name: "b"}, {Resource: "secrets", Verb: "update", Name: "a"}},
		rule("", l("secrets"), l("a"), l("update")), rule("", l("secrets"), l("b"), l("get"))),
	Entry("resources with the same verbs together",
		[]diagnosis.Right{{Resource: "pods", Verb: "list"}, {Resource: "events", Verb: "list"}, {Resource: "pods", Verb: "watch"}, {Resource: "events", Verb: "watch"}},
		rule("", l("events", "pods"), nil, l("list", "watch"))),
	Entry("resources with the same names together, with other names apart",
		[]diagnosis.Right{{Resource: "pods", Verb: "get", Name: "a"}, {Resource: "events", Verb: "get", Name: "a"}, {Resource: "nodes", Verb: "get", Name: "b"}, {Resource: "leases", Verb: "get"}},
		rule("", l("events", "pods"), l("a"), l("get")), rule("", l("leases"), nil, l("get")), rule("", l("nodes"), l("b"), l("get"))),
	Entry("groups apart",
		[]diagnosis.Right{{Group: "apps", Resource: "deployments", Verb: "get"}, {Resource: "pods", Verb: "get"}},
		rule("", l("pods"), nil, l("get")), rule("apps", l("deployments"), nil, l("get"))),
	Entry("subresources as RBAC writes them",
		[]diagnosis.Right{{Resource: "pods/exec", Verb: "create"}},
		rule("", l("pods/exec"), nil, l("create"))),
	Entry("nothing by name that is granted for all",
		[]diagnosis.Right{{Resource: "secrets", Verb: "get"}, secret("get"), secret("update")},
		rule("", l("secrets"), nil, l("get")), rule("", l("secrets"), l("eirini-x-setupcertificate"), l("update"))),
)

var _ = Describe("A manifest", func() {
	It("can be applied as it is", func() {
		Expect(diagnose.Manifest("eirini-x", diagnose.ServiceAccount("cf", "logger"), []diagnosis.Right{
			secret("get"), secret("create"), secret("update"),
			{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Verb: "get", Name: "eirini-x-mutating-hook"},
		})).To(Equal(`apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: eirini-x
  namespace: cf
rules:
- apiGroups:
  - ""
  resources:
  - secrets
  verbs:
  - create
- apiGroups:
  - ""
  resourceNames:
  - eirini-x-setupcertificate
  resources:
  - secrets
  verbs:
  - get
  - update
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: eirini-x
  namespace: cf
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: eirini-x
subjects:
- kind: ServiceAccount
  name: logger
  namespace: cf
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: eirini-x
rules:
- apiGroups:
  - admissionregistration.k8s.io
  resourceNames:
  - eirini-x-mutating-hook
  resources:
  - mutatingwebhookconfigurations
  verbs:
  - get
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: eirini-x
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: eirini-x
subjects:
- kind: ServiceAccount
  name: logger
  namespace: cf
`))
	})

	It("is empty without rights", func() {
		Expect(diagnose.Rules(nil)).To(BeEmpty())
		Expect(diagnose.Manifest("eirini-x", diagnose.ServiceAccount("cf", "logger"), nil)).To(BeEmpty())
	})

	DescribeTable("binds the caller under the name that the API server knows",
		func(user string, expected rbacv1.Subject) { Expect(diagnose.SubjectOf(user)).To(Equal(expected)) },
		Entry("a ServiceAccount", "system:serviceaccount:cf:logger", rbacv1.Subject{Kind: "ServiceAccount", Namespace: "cf", Name: "logger"}),
		Entry("a user", "ada@example.org", rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "ada@example.org"}),
		Entry("a user whose name only looks like it", "system:serviceaccount:cf", rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "system:serviceaccount:cf"}),
	)
})

var _ = Describe("Rules become rights", func() {
	It("one for each verb on each thing", func() {
		Expect(diagnose.RightsOf(manifest.Grant{Namespace: "cf", Rules: []rbacv1.PolicyRule{rule("apps", l("deployments", "deployments/scale"), l("a", "b"), l("get", "update")), rule("", l("pods"), nil, l("list"))}})).To(Equal([]diagnosis.Right{
			{Group: "apps", Resource: "deployments", Verb: "get", Namespace: "cf", Name: "a"},
			{Group: "apps", Resource: "deployments", Verb: "update", Namespace: "cf", Name: "a"},
			{Group: "apps", Resource: "deployments", Verb: "get", Namespace: "cf", Name: "b"},
			{Group: "apps", Resource: "deployments", Verb: "update", Namespace: "cf", Name: "b"},
			{Group: "apps", Resource: "deployments/scale", Verb: "get", Namespace: "cf", Name: "a"},
			{Group: "apps", Resource: "deployments/scale", Verb: "update", Namespace: "cf", Name: "a"},
			{Group: "apps", Resource: "deployments/scale", Verb: "get", Namespace: "cf", Name: "b"},
			{Group: "apps", Resource: "deployments/scale", Verb: "update", Namespace: "cf", Name: "b"},
			{Resource: "pods", Verb: "list", Namespace: "cf"},
		}))
	})
})
