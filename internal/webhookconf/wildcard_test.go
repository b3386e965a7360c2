package webhookconf_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

const wildcardCondition = "eirinix.cloudfoundry.org/wildcard"

func clusterScoped(r admissionregistrationv1.RuleWithOperations) admissionregistrationv1.RuleWithOperations {
	r.Scope = new(admissionregistrationv1.ClusterScope)
	return r
}

var _ = Describe("A wildcard", func() {
	DescribeTable("is bounded where it would include the objects that a cluster starts and heals by",
		func(changes []change, scopes map[string]admissionregistrationv1.ScopeType, spares bool) {
			w := build(urlOptions(), changes...)[0]
			found := map[string]admissionregistrationv1.ScopeType{}
			for _, r := range w.Rules {
				found[fmt.Sprint(r.APIGroups, r.Resources)] = *r.Scope
			}
			Expect(found).To(Equal(scopes))
			names := []string{}
			for _, c := range w.MatchConditions {
				names = append(names, c.Name)
			}
			if spares {
				Expect(names).To(HaveExactElements(wildcardCondition))
			} else {
				Expect(names).To(BeEmpty())
			}
		},
		Entry("everything", []change{rules(rule("*", "*", "*/*", "*"))}, map[string]admissionregistrationv1.ScopeType{"[*] [*/*]": "Namespaced"}, true),
		Entry("every resource", []change{rules(rule("*", "*", "*", "*"))}, map[string]admissionregistrationv1.ScopeType{"[*] [*]": "Namespaced"}, true),
		Entry("whatever the failurePolicy", []change{ignore, rules(rule("*", "*", "*", "*"))}, map[string]admissionregistrationv1.ScopeType{"[*] [*]": "Namespaced"}, true),
		Entry("every status: those of Nodes, too", []change{rules(rule("", "v1", "*/status", "*"))}, map[string]admissionregistrationv1.ScopeType{"[] [*/status]": "Namespaced"}, true),
		Entry("every resource of pods' group", []change{rules(rule("", "v1", "*", "*"))}, map[string]admissionregistrationv1.ScopeType{"[] [*]": "Namespaced"}, true),
		Entry("of Leases'", []change{rules(rule("coordination.k8s.io", "v1", "*", "*"))}, map[string]admissionregistrationv1.ScopeType{"[coordination.k8s.io] [*]": "Namespaced"}, true),
		Entry("of one in which nothing is to be spared", []change{rules(rule("apps", "v1", "*", "*"))}, map[string]admissionregistrationv1.ScopeType{"[apps] [*]": "Namespaced"}, false),
		Entry("of roles'", []change{rules(rule("rbac.authorization.k8s.io", "v1", "*", "*"))}, map[string]admissionregistrationv1.ScopeType{"[rbac.authorization.k8s.io] [*]": "Namespaced"}, false),
		Entry("not of a group that is not Kubernetes' own", []change{rules(rule("example.org", "v1", "*", "*"))}, map[string]admissionregistrationv1.ScopeType{"[example.org] [*]": "*"}, false),
		Entry("not objects that are in namespaces only, but for the spared ones", []change{rules(scoped(rule("*", "*", "*", "*")))}, map[string]admissionregistrationv1.ScopeType{"[*] [*]": "Namespaced"}, true),
		Entry("not named resources", []change{rules(rule("", "v1", "nodes", "*"), rule("coordination.k8s.io", "v1", "leases", "*"), rule("*", "*", "pods/*", "*"))},
			map[string]admissionregistrationv1.ScopeType{"[] [nodes]": "*", "[coordination.k8s.io] [leases]": "*", "[*] [pods/*]": "*"}, false),
		Entry("not resources that are named beside it", []change{rules(rule("", "v1", "*", "*"), rule("", "v1", "nodes", "UPDATE"))},
			map[string]admissionregistrationv1.ScopeType{"[] [*]": "Namespaced", "[] [nodes]": "*"}, true),
		Entry("not resources that are named beside it in one rule", []change{rules(rule("", "v1", "*,nodes/proxy", "*"))},
			map[string]admissionregistrationv1.ScopeType{"[] [*]": "Namespaced", "[] [nodes/proxy]": "*"}, true),
		Entry("not for those who know", []change{critical, rules(rule("*", "*", "*/*", "*"))}, map[string]admissionregistrationv1.ScopeType{"[*] [*/*]": "*"}, false),
	)

	It("keeps the step's own conditions in front", func() {
		w := build(urlOptions(), rules(rule("*", "*", "*", "*")), conditions(condition("b", "true"), condition("a", "true")))[0]
		Expect(w.MatchConditions).To(HaveExactElements(HaveField("Name", "b"), HaveField("Name", "a"), HaveField("Name", wildcardCondition)))
	})
})

// This webhook has no server, and is called for every object in the cluster. Check would refuse it.
var _ = Describe("A cluster with a broken webhook for everything", Label("api-server", "S27"), Ordered, func() {
	var (
		plane   plane
		clients kubernetes.Interface
	)
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	isRefused := MatchError(ContainSubstring("failed calling webhook"))

	// register puts the steps in the place of others and waits until they are in force.
	register := func(ctx context.Context, all ...admissionregistrationv1.RuleWithOperations) {
		GinkgoHelper()
		o := webhookconf.Options{Fingerprint: "broken", Target: webhookconf.Target{Host: "127.0.0.1", Port: 1}}
		_, c := both(Must(dynamic.NewForConfig(plane.config)), o)
		// The caBundle is empty: the port is closed anyway.
		Expect(registers(ctx, c, desired(o, step("broken", validating, rules(all...))), "")).To(BeElementOf(webhookconf.Created, webhookconf.Updated, webhookconf.Unchanged))
		Eventually(func() error {
			_, err := clients.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "any"}}, dry)
			return err
		}).WithContext(ctx).WithTimeout(10 * time.Second).Should(isRefused)
	}

	meta := metav1.ObjectMeta{Name: "spec"}

	BeforeAll(func(ctx SpecContext) {
		plane = controlPlane()
		var err error
		clients, err = kubernetes.NewForConfig(plane.config)
		Expect(err).NotTo(HaveOccurred())
		_, err = clients.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() error { // the API server creates its own Service after it is ready
			_, err := clients.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
			return err
		}).WithContext(ctx).WithTimeout(20 * time.Second).Should(Succeed())
	})
	BeforeEach(func(ctx SpecContext) { register(ctx, rule("*", "*", "*/*", "*")) })

	allowed := &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: "default"}
	lease := func(ctx context.Context) error {
		_, err := clients.CoordinationV1().Leases("default").Create(ctx, &coordinationv1.Lease{ObjectMeta: meta}, dry)
		return err
	}
	node := func(ctx context.Context) error {
		_, err := clients.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: meta}, dry)
		return err
	}
	token := func(ctx context.Context) error {
		_, err := clients.CoreV1().ServiceAccounts("default").CreateToken(ctx, "spec", &authenticationv1.TokenRequest{}, dry)
		return err
	}
	service := func(ctx context.Context, name string) error {
		_, err := clients.CoreV1().Services("default").Patch(ctx, name, "application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	DescribeTable("still admits",
		func(ctx SpecContext, request func(context.Context) error) {
			Expect(request(ctx)).To(Succeed())
		},
		Entry("Leases, by which controllers elect who works", lease),
		Entry("Nodes", node),
		Entry("access reviews of oneself", func(ctx context.Context) error {
			_, err := clients.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: allowed}}, metav1.CreateOptions{})
			return err
		}),
		Entry("access reviews of others", func(ctx context.Context) error {
			_, err := clients.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "x", ResourceAttributes: allowed}}, metav1.CreateOptions{})
			return err
		}),
		Entry("access reviews in a namespace", func(ctx context.Context) error {
			_, err := clients.AuthorizationV1().LocalSubjectAccessReviews("default").Create(ctx, &authorizationv1.LocalSubjectAccessReview{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: authorizationv1.SubjectAccessReviewSpec{User: "x", ResourceAttributes: allowed},
			}, metav1.CreateOptions{})
			return err
		}),
		Entry("token reviews", func(ctx context.Context) error {
			_, err := clients.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "x"}}, metav1.CreateOptions{})
			return err
		}),
		Entry("Namespaces", func(ctx context.Context) error {
			_, err := clients.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta}, dry)
			return err
		}),
		Entry("ClusterRoles", func(ctx context.Context) error {
			_, err := clients.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta}, dry)
			return err
		}),
		Entry("PriorityClasses", func(ctx context.Context) error {
			_, err := clients.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: meta, Value: 1}, dry)
			return err
		}),
		Entry("admission policies", func(ctx context.Context) error {
			_, err := clients.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
				ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "x", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
			}, dry)
			return err
		}),
		Entry("webhook configurations", func(ctx context.Context) error {
			_, err := clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta}, dry)
			return err
		}),
		Entry("tokens of ServiceAccounts", token),
		Entry("changes of its API servers' Service", func(ctx context.Context) error { return service(ctx, "kubernetes") }),
		Entry("the objects of kube-system", func(ctx context.Context) error {
			_, err := clients.CoreV1().ConfigMaps("kube-system").Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, dry)
			return err
		}),
	)

	It("calls the webhook for named resources", func(ctx SpecContext) {
		register(ctx, rule("*", "*", "*/*", "*"), rule("coordination.k8s.io", "v1", "leases", "*"), rule("", "v1", "nodes,serviceaccounts/token,services", "*"))
		for _, request := range []func(context.Context) error{lease, node, token, func(ctx context.Context) error { return service(ctx, "kubernetes") }} {
			Eventually(request).WithContext(ctx).WithTimeout(10 * time.Second).Should(isRefused)
		}
		_, err := clients.AuthorizationV1().LocalSubjectAccessReviews("default").Create(ctx, &authorizationv1.LocalSubjectAccessReview{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: authorizationv1.SubjectAccessReviewSpec{User: "x", ResourceAttributes: allowed},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred(), "and nothing else")
	})

	It("lets its API server start, which creates the missing objects that it needs", func(ctx SpecContext) {
		const role, class = "system:basic-user", "system-node-critical"
		Expect(clients.RbacV1().ClusterRoles().Delete(ctx, role, metav1.DeleteOptions{})).To(Succeed())
		Expect(clients.RbacV1().ClusterRoleBindings().Delete(ctx, role, metav1.DeleteOptions{})).To(Succeed())
		Expect(clients.FlowcontrolV1().FlowSchemas().Delete(ctx, "service-accounts", metav1.DeleteOptions{})).To(Succeed())
		Expect(plane.restart(ctx)).To(Succeed())
		Eventually(func(g Gomega) {
			_, err := clients.RbacV1().ClusterRoles().Get(ctx, role, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			_, err = clients.RbacV1().ClusterRoleBindings().Get(ctx, role, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			_, err = clients.FlowcontrolV1().FlowSchemas().Get(ctx, "service-accounts", metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			_, err = clients.SchedulingV1().PriorityClasses().Get(ctx, class, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
		}).WithContext(ctx).WithTimeout(20 * time.Second).Should(Succeed())
	})
})
