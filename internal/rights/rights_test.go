package rights_test

// The rights of a program and of its halves, as the rules that grant them.

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix/internal/rights"
)

func TestRights(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "internal/rights")
}

// whole is a program that uses everything but certificates from elsewhere.
func whole(edits ...func(*rights.Rights)) rights.Rights {
	r := rights.Rights{
		Secret: "cert", Versions: "x-versions", MakesSecret: true, Unregisters: true,
		Configurations: []rights.Configuration{{Resource: "mutatingwebhookconfigurations", Name: "x-mutating-hook"}},
		ClientCA:       types.NamespacedName{Namespace: "kube-system", Name: "callers"},
	}
	for _, e := range edits {
		e(&r)
	}
	return r
}

var (
	// certified is a program with a certificate from another Secret.
	certified = whole(func(r *rights.Rights) {
		r.Secret, r.ClientCA, r.Configurations = "", types.NamespacedName{}, nil
		r.Source = rights.SourceRights{SecretNamespace: "issuer", Secret: "made"}
	})

	// converts is a program that converts objects, and has keys for what they lose.
	converts = rights.Rights{Keys: "keys", CRDs: []string{"shops.example.org"}}
)

// lines are the rights of a program that lives in namespace cf.
func lines(r rights.Rights, half rights.Half) []string {
	var all []string
	for _, g := range r.Grants(half, "cf") {
		for _, rule := range g.Rules {
			line := fmt.Sprintf("%s: %s %s", g.Namespace, strings.Join(rule.Verbs, ","), strings.Join(rule.Resources, ","))
			if group := strings.Join(rule.APIGroups, ","); group != "" {
				line += "." + group
			}
			all = append(all, strings.TrimSpace(line+" "+strings.Join(rule.ResourceNames, ",")))
		}
	}
	return all
}

var _ = DescribeTable("The rights of",
	func(r rights.Rights, half rights.Half, expected ...string) {
		Expect(lines(r, half)).To(HaveExactElements(expected))
	},
	Entry("a whole program", whole(), rights.Whole,
		"cf: create configmaps,secrets",
		"cf: get,list,update,watch secrets cert",
		"cf: create leases.coordination.k8s.io",
		"cf: get,list,update,watch leases.coordination.k8s.io x-versions",
		"cf: create,patch events.events.k8s.io",
		"kube-system: get,list,watch configmaps callers",
		": get namespaces cf",
		": create mutatingwebhookconfigurations.admissionregistration.k8s.io",
		": delete,get,list,update,watch mutatingwebhookconfigurations.admissionregistration.k8s.io x-mutating-hook",
	),
	Entry("a program whose modes are in a ConfigMap",
		rights.Rights{Modes: "modes", Versions: "x-versions"}, rights.Serving,
		"cf: get,list,watch configmaps modes",
		"cf: get,list,watch leases.coordination.k8s.io x-versions",
		": get,list,watch namespaces",
	),
	Entry("the registering half of it",
		rights.Rights{Modes: "modes"}, rights.Registering,
		"cf: get configmaps modes",
		"cf: create,patch events.events.k8s.io",
	),
	Entry("a serving half", whole(), rights.Serving,
		"cf: get,list,watch secrets cert",
		"cf: get,list,watch leases.coordination.k8s.io x-versions",
		"kube-system: get,list,watch configmaps callers",
	),
	Entry("a registering half", whole(), rights.Registering,
		"cf: create secrets",
		"cf: get,update secrets cert",
		"cf: create leases.coordination.k8s.io",
		"cf: get,update leases.coordination.k8s.io x-versions",
		"cf: create,patch events.events.k8s.io",
		": get namespaces cf",
		": create mutatingwebhookconfigurations.admissionregistration.k8s.io",
		": get,update mutatingwebhookconfigurations.admissionregistration.k8s.io x-mutating-hook",
	),
	Entry("a program whose Secret another one makes", rights.Rights{Secret: "cert", Configurations: whole().Configurations}, rights.Whole,
		"cf: create configmaps",
		"cf: get,list,update,watch secrets cert",
		"cf: create,patch events.events.k8s.io",
		": get namespaces cf",
		": create mutatingwebhookconfigurations.admissionregistration.k8s.io",
		": get,list,update,watch mutatingwebhookconfigurations.admissionregistration.k8s.io x-mutating-hook",
	),
	Entry("a program with a certificate from another Secret", certified, rights.Whole,
		"cf: create leases.coordination.k8s.io",
		"cf: get,list,update,watch leases.coordination.k8s.io x-versions",
		"cf: create,patch events.events.k8s.io",
		"issuer: list,watch secrets made",
	),
	Entry("its registering half", certified, rights.Registering,
		"cf: create leases.coordination.k8s.io",
		"cf: get,update leases.coordination.k8s.io x-versions",
		"cf: create,patch events.events.k8s.io",
		"issuer: get secrets made",
	),
	Entry("a program that converts objects", converts, rights.Whole,
		"cf: create secrets",
		"cf: get secrets keys",
		"cf: create,patch events.events.k8s.io",
		": get namespaces cf",
		": get,list,patch,watch customresourcedefinitions.apiextensions.k8s.io shops.example.org",
	),
	Entry("its serving half", converts, rights.Serving, "cf: get secrets keys"),
	Entry("a program that asks about those who read its metrics", rights.Rights{Reviews: true}, rights.Whole,
		": create tokenreviews.authentication.k8s.io", ": create subjectaccessreviews.authorization.k8s.io"),
	Entry("its registering half, which serves none", rights.Rights{Reviews: true}, rights.Registering),
	Entry("the serving half of a program whose steps look at other objects", rights.Rights{Reads: lookedAt}, rights.Serving,
		"cf: get,list,watch configmaps settings",
		"vault: get,list,watch secrets",
		": get,list,watch ingresses.networking.k8s.io",
	),
	Entry("its registering half, which looks at nothing", rights.Rights{Reads: lookedAt}, rights.Registering),
	Entry("a program of several resources, whose rights on them are the same", rights.Rights{
		Modes: "modes",
		Reads: []rights.Read{
			{Resource: "namespaces", Name: "shop"}, {Resource: "pods"}, {Resource: "nodes"}, {Resource: "secrets", Name: "b"}, {Resource: "secrets", Name: "a"}, {Resource: "secrets", Name: "b"},
		},
	}, rights.Serving,
		"cf: get,list,watch configmaps modes",
		": get,list,watch namespaces,nodes,pods", // all of the first, whose names are then too many
		": get,list,watch secrets a,b",
	),
	Entry("a program whose rule about its namespace has the place that docs/gitops.md names", whole(func(r *rights.Rights) {
		r.Secret, r.Versions, r.ClientCA = "", "", types.NamespacedName{}
		r.Reads = []rights.Read{{Resource: "configmaps"}, {Resource: "endpoints", Name: "a"}}
	}), rights.Whole,
		"cf: create configmaps",
		": get namespaces cf",
		": get,list,watch configmaps",
		": get,list,watch endpoints a",
		": create mutatingwebhookconfigurations.admissionregistration.k8s.io",
		": delete,get,list,update,watch mutatingwebhookconfigurations.admissionregistration.k8s.io x-mutating-hook",
	),
	Entry("a program without steps", rights.Rights{MakesSecret: true, Watches: true}, rights.Whole, ": list,watch pods"),
)

var _ = DescribeTable("The roles of a half are named", func(half rights.Half, name string) {
	Expect(rights.RoleName("x", half)).To(Equal(name))
},
	Entry("by the program alone if it serves", rights.Serving, "eirinix:x"),
	Entry("with what it does if it registers", rights.Registering, "eirinix:x:register"),
	Entry("with what it does if it audits", rights.Auditing, "eirinix:x:audit"),
)

// lookedAt are two Secrets by name and all of the same namespace, a ConfigMap, and Ingresses that two steps look at.
var lookedAt = []rights.Read{
	{Resource: "secrets", Namespace: "vault", Name: "one"},
	{Resource: "secrets", Namespace: "vault"},
	{Resource: "secrets", Namespace: "vault", Name: "two"},
	{Resource: "configmaps", Namespace: "cf", Name: "settings"},
	{Group: "networking.k8s.io", Resource: "ingresses"},
	{Group: "networking.k8s.io", Resource: "ingresses"},
}
