package diagnose_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/rights"
)

func rule(group string, resources, names, verbs []string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, ResourceNames: names, Verbs: verbs}
}

func l(s ...string) []string { return s }

func secret(verb string) diagnosis.Right {
	return diagnosis.Right{Resource: "secrets", Verb: verb, Namespace: "cf", Name: "eirini-x-setupcertificate"}
}

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
  resourceNames:
  - eirini-x-setupcertificate
  resources:
  - secrets
  verbs:
  - get
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

	It("grants the rights that are asked for and no others, but creation under any name", func() {
		mutating := diagnosis.Right{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Verb: "get", Name: "eirini-x-mutating-hook"}
		exec := diagnosis.Right{Resource: "pods/exec", Verb: "create", Namespace: "cf"}
		create := secret("create")
		create.Name = ""
		var granted []diagnosis.Right
		for _, object := range diagnose.Objects("eirini-x", diagnose.ServiceAccount("cf", "logger"), []diagnosis.Right{mutating, secret("get"), secret("create"), exec}) {
			switch role := object.(type) {
			case *rbacv1.Role:
				granted = append(granted, diagnose.RightsOf(rights.Grant{Namespace: role.Namespace, Rules: role.Rules})...)
			case *rbacv1.ClusterRole:
				granted = append(granted, diagnose.RightsOf(rights.Grant{Rules: role.Rules})...)
			}
		}
		Expect(granted).To(Equal([]diagnosis.Right{secret("get"), create, exec, mutating}))
	})

	It("is empty without rights", func() {
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
		Expect(diagnose.RightsOf(rights.Grant{Namespace: "cf", Rules: []rbacv1.PolicyRule{rule("apps", l("deployments", "deployments/scale"), l("a", "b"), l("get", "update")), rule("", l("pods"), nil, l("list"))}})).To(Equal([]diagnosis.Right{
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
