package eirinix_test

// Specs of what an audit cannot ask, and of the reports that stay then, against a real API server.

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/audit"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// installReports makes the cluster serve openreports.io until the spec ends.
func installReports() client.Client {
	GinkgoHelper()
	crds := envtest.CRDInstallOptions{Paths: []string{filepath.Join("internal", "audit", "reports", "testdata", "openreports.io.yaml")}, ErrorIfPathMissing: true}
	installed := Must(envtest.InstallCRDs(controlPlane().Config(), crds))
	admin := Must(client.New(controlPlane().Config(), client.Options{}))
	DeferCleanup(func(ctx SpecContext) {
		Expect(envtest.UninstallCRDs(controlPlane().Config(), crds)).To(Succeed())
		for _, crd := range installed { // the next spec installs them again
			Eventually(func() bool {
				return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(crd), crd.DeepCopy()))
			}).WithContext(ctx).WithTimeout(4*patience).Should(BeTrue(), "a finalizer of the API server removes its objects first")
		}
		Eventually(func() bool {
			_, err := clients().Discovery().ServerResourcesForGroupVersion("openreports.io/v1alpha1")
			return apierrors.IsNotFound(err)
		}).WithContext(ctx).WithTimeout(4 * patience).Should(BeTrue())
	}, NodeTimeout(9*patience))
	return admin
}

// reportsIn returns the reports of a namespace by name.
func reportsIn(ctx context.Context, admin client.Client, namespace string) map[string]unstructured.Unstructured {
	GinkgoHelper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("openreports.io/v1alpha1")
	list.SetKind("ReportList")
	Expect(admin.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	all := map[string]unstructured.Unstructured{}
	for _, r := range list.Items {
		all[r.GetName()] = r
	}
	return all
}

var _ = Describe("What an audit cannot ask", Label("api-server"), func() {
	var namespace string
	var options eirinix.ManagerOptions
	BeforeEach(func(ctx SpecContext) {
		namespace = NewNamespace(ctx, clients(), map[string]string{"spec-gaps": "yes"}).Name
		options = urlOptions(namespace)
	})
	create := func(ctx context.Context, in, name string, labels map[string]string) {
		GinkgoHelper()
		Must(clients().CoreV1().ConfigMaps(in).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}))
	}
	// owner is a step about the ConfigMaps of namespaces with these labels.
	owner := func(id string, namespaces *metav1.LabelSelector) eirinix.Validation[*corev1.ConfigMap] {
		return eirinix.Validation[*corev1.ConfigMap]{ID: id, Settings: eirinix.Settings{Namespaces: namespaces}, Create: func(_ context.Context, _ *eirinix.Call, cm *corev1.ConfigMap) error {
			if cm.Labels["owner"] == "" {
				return eirinix.Deny("set the label owner")
			}
			return nil
		}}
	}
	run := func(ctx context.Context, o audit.Options, steps ...any) (audit.Summary, error) {
		GinkgoHelper()
		m := eirinix.NewManager(options)
		for _, s := range steps {
			Expect(m.AddExtension(s)).To(Succeed())
		}
		return audit.Run(ctx, m, o)
	}
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}

	It("keeps its last report, whichever right is lost, and is reported again once the right is back", func(ctx SpecContext) {
		admin := installReports()
		create(ctx, namespace, "bad", nil)
		create(ctx, namespace, "good", map[string]string{"owner": "me"})
		options.Namespace, options.WebhookNamespace = "", namespace
		config := userWith(ctx, namespace, nil, []rbacv1.PolicyRule{
			rule("openreports.io", "*", "list", "create", "patch", "delete"), rule("wgpolicyk8s.io", "*", "list", "create", "patch", "delete"),
		})
		options.RestConfig = config
		// grant gives rights until they are taken away.
		grant := func(rules ...rbacv1.PolicyRule) (take func()) {
			GinkgoHelper()
			role := Must(clients().RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}, Rules: rules}, metav1.CreateOptions{}))
			Must(clients().RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "user-" + namespace, APIGroup: rbacv1.GroupName}},
			}, metav1.CreateOptions{}))
			return func() {
				GinkgoHelper()
				Expect(clients().RbacV1().ClusterRoleBindings().Delete(ctx, role.Name, metav1.DeleteOptions{})).To(Succeed())
			}
		}
		labelled := owner("labelled", &metav1.LabelSelector{MatchLabels: map[string]string{"spec-gaps": "yes"}})
		steps := []any{labelled, owner("all", nil)}
		ask := func() (audit.Summary, error) {
			GinkgoHelper()
			return run(ctx, audit.Options{PolicyReports: true}, steps...)
		}
		names := func() (all []string) {
			for name := range reportsIn(ctx, admin, namespace) {
				all = append(all, strings.TrimPrefix(name, namespace+"-"))
			}
			return all
		}
		spaces, objects := []rbacv1.PolicyRule{rule("", "namespaces", "get", "list")}, []rbacv1.PolicyRule{rule("", "configmaps", "list")}
		takeSpaces, takeObjects := grant(spaces...), grant(objects...)
		Eventually(func(g Gomega) { // the authorizer learns of roles from a watch
			_, err := ask()
			g.Expect(err).NotTo(HaveOccurred())
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		Expect(names()).To(ConsistOf("labelled-configmaps.v1", "all-configmaps.v1"))
		first := reportsIn(ctx, admin, namespace)
		report := first[namespace+"-labelled-configmaps.v1"]
		Expect(report.Object["results"]).To(HaveExactElements(And(HaveKeyWithValue("rule", "labelled"), HaveKeyWithValue("result", "fail"))))
		Expect(report.Object["summary"]).To(And(HaveKeyWithValue("pass", int64(1)), HaveKeyWithValue("fail", int64(1))))
		Expect(report.GetOwnerReferences()).To(ConsistOf(And(HaveField("Kind", "Namespace"), HaveField("Name", namespace))))

		By("changing nothing the second time")
		_, err := ask()
		Expect(err).NotTo(HaveOccurred())
		Expect(reportsIn(ctx, admin, namespace)).To(Equal(first))

		By("losing the right to list namespaces")
		takeSpaces()
		var summary audit.Summary
		lost := func(gaps int) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				summary, err = ask()
				incomplete, ok := errors.AsType[*audit.IncompleteError](err)
				g.Expect(ok).To(BeTrue(), "%v", err)
				g.Expect(summary.Gaps).To(HaveLen(gaps))
				g.Expect(incomplete.Gaps).To(Equal(summary.Gaps))
			}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		}
		lost(1)
		Expect(summary.Gaps).To(HaveExactElements(And(
			HaveField("Step", "labelled"), HaveField("Reason", ContainSubstring(`cannot list resource "namespaces"`)), HaveField("Remedy", ContainSubstring(`resources: ["namespaces"]`)))))
		Expect(summary.Findings["all"]).To(HaveKeyWithValue(audit.Denied, BeNumerically(">", 0)))
		now := reportsIn(ctx, admin, namespace)
		Expect(now[namespace+"-labelled-configmaps.v1"]).To(Equal(report), "it is as it was")

		By("asking what can be asked meanwhile")
		Must(clients().CoreV1().ConfigMaps(namespace).Update(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bad", Labels: map[string]string{"owner": "me"}}}, metav1.UpdateOptions{}))
		lost(1)
		Expect(names()).To(ConsistOf("labelled-configmaps.v1"), "the other step's is clean")

		By("losing the right to list the kind")
		takeObjects()
		lost(2)
		Expect(reportsIn(ctx, admin, namespace)).To(HaveKeyWithValue(report.GetName(), report))

		By("getting them back")
		grant(append(spaces, objects...)...)
		Eventually(func(g Gomega) {
			_, err := ask()
			g.Expect(err).NotTo(HaveOccurred())
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		Expect(names()).To(BeEmpty())
	}, SpecTimeout(4*patience))

	It("is everything without any right, and that is not clean", func(ctx SpecContext) {
		options.RestConfig = Must(controlPlane().User("nobody-" + namespace))
		summary, err := run(ctx, audit.Options{PolicyReports: true}, owner("here", nil))
		Expect(err).To(HaveOccurred())
		Expect(err).To(MatchError(ContainSubstring(`cannot list resource "configmaps"`)))
		Expect(summary.Gaps).To(HaveExactElements(And(HaveField("Step", "here"), HaveField("Namespace", namespace), HaveField("Resource.Resource", "configmaps"))))

		By("missing the right to impersonate")
		options.RestConfig = rest.CopyConfig(options.RestConfig)
		options.RestConfig.Impersonate.UserName = "admin"
		_, err = run(ctx, audit.Options{}, owner("here", nil))
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	}, SpecTimeout(patience))

	It("can be one of several namespaces", func(ctx SpecContext) {
		other := newNamespace(ctx)
		create(ctx, namespace, "a", nil)
		create(ctx, other, "b", nil)
		options.RestConfig = userWith(ctx, namespace, []rbacv1.PolicyRule{rule("", "configmaps", "list")}, nil)
		options.Namespace, options.WebhookNamespace = "", namespace
		both := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{namespace, other}}}}
		Eventually(func(g Gomega) {
			summary, err := run(ctx, audit.Options{}, owner("both", both))
			g.Expect(err).To(HaveOccurred())
			g.Expect(summary.Asked).To(HaveKeyWithValue("both", 1))
			g.Expect(summary.Gaps).To(HaveExactElements(And(
				HaveField("Namespace", other), HaveField("Reason", ContainSubstring("is forbidden")), HaveField("Remedy", ContainSubstring("a Role in the namespace "+other)))))
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	}, SpecTimeout(2*patience))

	It("can be a kind that is deleted meanwhile, or that is not served", func(ctx SpecContext) {
		group := "x" + strings.ReplaceAll(namespace, "-", "") + ".example.org"
		admin := Must(client.New(controlPlane().Config(), client.Options{}))
		crd := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"group": group, "scope": "Namespaced", "names": map[string]any{"plural": "shops", "singular": "shop", "kind": "Shop", "listKind": "ShopList"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
		}}}
		crd.SetAPIVersion("apiextensions.k8s.io/v1")
		crd.SetKind("CustomResourceDefinition")
		crd.SetName("shops." + group)
		Expect(admin.Create(ctx, crd)).To(Succeed())
		listed := func() bool {
			_, err := clients().CoreV1().RESTClient().Get().AbsPath("/apis/" + group + "/v1/shops").DoRaw(ctx)
			return err == nil
		}
		Eventually(listed).WithContext(ctx).WithTimeout(patience).Should(BeTrue())
		create(ctx, namespace, "a", nil)
		shops := eirinix.Validation[*unstructured.Unstructured]{
			ID: "shops", Settings: eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{"shops"}},
			}}},
			Create: func(context.Context, *eirinix.Call, *unstructured.Unstructured) error { return nil },
		}
		gone := false
		summary, err := run(ctx, audit.Options{Finding: func(audit.Finding) error { // of the first step, before the second is listed
			if !gone {
				Expect(admin.Delete(ctx, crd)).To(Succeed())
				Eventually(listed).WithContext(ctx).WithTimeout(patience).Should(BeFalse())
			}
			gone = true
			return nil
		}}, owner("here", nil), shops)
		Expect(err).To(HaveOccurred())
		Expect(summary.Findings["here"]).To(HaveKeyWithValue(audit.Denied, 1))
		Expect(summary.Gaps).To(HaveExactElements(And(HaveField("Step", "shops"), HaveField("Resource.Group", group), HaveField("Remedy", ContainSubstring("CustomResourceDefinition")))))

		summary, err = run(ctx, audit.Options{}, shops)
		Expect(err).To(HaveOccurred())
		Expect(summary.Gaps).To(HaveExactElements(And(HaveField("Step", "shops"), HaveField("Remedy", ContainSubstring("CustomResourceDefinition")))))
	}, SpecTimeout(3*patience))

	It("does not outlive the registration, in reports", func(ctx SpecContext) {
		admin := installReports()
		create(ctx, namespace, "a", nil)
		m := eirinix.NewManager(options)
		Expect(m.AddExtension(owner("here", nil))).To(Succeed())
		audited := func() {
			GinkgoHelper()
			Must(audit.Run(ctx, m, audit.Options{PolicyReports: true}))
			Expect(reportsIn(ctx, admin, namespace)).To(HaveLen(1))
		}
		audited()
		Expect(m.Unregister(ctx)).To(Succeed())
		Expect(reportsIn(ctx, admin, namespace)).To(BeEmpty())

		By("stopping with UnregisterOnStop")
		options.UnregisterOnStop = true
		m = eirinix.NewManager(options)
		Expect(m.AddExtension(owner("here", nil))).To(Succeed())
		done := startManager(ctx, m)
		Eventually(m.Ready()).WithContext(ctx).WithTimeout(patience).Should(BeClosed())
		audited()
		m.Stop()
		Eventually(done).WithContext(ctx).WithTimeout(patience).Should(Receive(BeNil()))
		Expect(reportsIn(ctx, admin, namespace)).To(BeEmpty())
	}, SpecTimeout(3*patience))
})

var _ = Describe("The findings of an audit", Label("api-server"), func() {
	var namespace, team string
	var options eirinix.ManagerOptions
	BeforeEach(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		team = NewNamespace(ctx, clients(), map[string]string{"spec-team": namespace}).Name
		options = urlOptions(namespace)
		options.Namespace, options.WebhookNamespace, options.ModesConfigMap = "", namespace, "modes"
		for _, in := range []string{namespace, team} {
			Must(clients().CoreV1().ConfigMaps(in).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"spec-modes": "yes"}}}, metav1.CreateOptions{}))
		}
	})
	ours := func() eirinix.Settings {
		return eirinix.Settings{
			Mode: eirinix.ModeShadow, Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"spec-modes": "yes"}},
			Namespaces: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{namespace, team}}}},
		}
	}
	manager := func() *eirinix.ExtensionManager {
		GinkgoHelper()
		m := eirinix.NewManager(options)
		Expect(m.AddExtension(eirinix.Mutation[*corev1.ConfigMap]{ID: "stage", Settings: ours(), Apply: func(_ context.Context, _ *eirinix.Call, cm *corev1.ConfigMap) error {
			metav1.SetMetaDataLabel(&cm.ObjectMeta, "stage", "test")
			return nil
		}})).To(Succeed())
		Expect(m.AddExtension(eirinix.Validation[*corev1.ConfigMap]{ID: "sees", Settings: ours(), Create: func(_ context.Context, _ *eirinix.Call, cm *corev1.ConfigMap) error {
			return eirinix.Deny("stage %q", cm.Labels["stage"])
		}})).To(Succeed())
		return m
	}
	found := func(ctx context.Context, m *eirinix.ExtensionManager) (all []string, summary audit.Summary) {
		GinkgoHelper()
		summary = Must(audit.Run(ctx, m, audit.Options{Finding: func(f audit.Finding) error {
			all = append(all, fmt.Sprintf("%s %s %s %s", f.Step, map[string]string{namespace: "here", team: "team"}[f.Namespace], f.Mode, strings.TrimPrefix(f.Message, "it would change the object")))
			return nil
		}}))
		return all, summary
	}

	It("have the mode in force, and pass on what that changes", func(ctx SpecContext) {
		all, _ := found(ctx, manager())
		Expect(all).To(ConsistOf("stage here Shadow ", "stage team Shadow ", `sees here Shadow stage ""`, `sees team Shadow stage ""`), "there is no ConfigMap yet")
		Must(clients().CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "modes"}, Data: map[string]string{
			"stage": "Deny where spec-team=" + namespace + "\nWarn", "sees": "Audit",
		}}, metav1.CreateOptions{}))
		expected := ConsistOf("stage here Warn ", "stage team Deny ", `sees here Audit stage ""`, `sees team Audit stage "test"`)
		all, _ = found(ctx, manager())
		Expect(all).To(expected)

		By("running")
		m := manager()
		runManager(ctx, m)
		Eventually(func() []string { all, _ := found(ctx, m); return all }).WithContext(ctx).WithTimeout(patience).Should(expected)

		By("lacking the right to read the ConfigMap")
		options.RestConfig = userWith(ctx, namespace, nil, []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"}, Verbs: []string{"list"}}})
		Eventually(func(g Gomega) {
			var all []string
			summary, err := audit.Run(ctx, manager(), audit.Options{Finding: func(f audit.Finding) error { all = append(all, string(f.Mode)); return nil }})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(all).To(HaveEach("Shadow"))
			g.Expect(summary.Notes).To(ConsistOf(And(ContainSubstring("the modes are the program's own"), ContainSubstring(namespace+"/modes"))))
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	}, SpecTimeout(4*patience))

	It("come at the rate for the requests of steps", func(ctx SpecContext) {
		m := eirinix.NewManager(options)
		sent := 0
		Expect(m.AddExtension(eirinix.Validation[*corev1.ConfigMap]{ID: "asks", Settings: ours(), Create: func(ctx context.Context, c *eirinix.Call, cm *corev1.ConfigMap) error {
			sent++
			api, err := c.Manager.GetKubeClient()
			if err == nil {
				_, err = api.ConfigMaps(cm.Namespace).Get(ctx, cm.Name, metav1.GetOptions{})
			}
			return err
		}})).To(Succeed())
		began := time.Now()
		Must(audit.Run(ctx, m, audit.Options{StepRequestsPerSecond: 10}))
		Expect(sent).To(BeNumerically(">=", 2))
		Expect(time.Since(began)).To(BeNumerically(">=", time.Duration(sent)*time.Second/10))
		began, sent = time.Now(), 0
		Must(audit.Run(ctx, m, audit.Options{}))
		Expect(time.Since(began)).To(BeNumerically(">=", time.Duration(sent)*time.Second/50))
	}, SpecTimeout(patience))
})
