package eirinix_test

import (
	"context"
	"os"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/manifests"
)

// documentedRules returns the rules of docs/deploy.md, for this fingerprint.
func documentedRules(fingerprint, own string) (role, clusterRole []rbacv1.PolicyRule) {
	text, err := os.ReadFile("docs/deploy.md")
	Expect(err).NotTo(HaveOccurred())
	found := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(text)
	Expect(found).NotTo(BeNil())
	text = []byte(strings.NewReplacer("eirini-x-", fingerprint+"-", "cf-system", own).Replace(string(found[1])))
	documents := strings.Split(string(text), "---\n")
	Expect(documents).To(HaveLen(2))
	var r rbacv1.Role
	var c rbacv1.ClusterRole
	Expect(yaml.UnmarshalStrict([]byte(documents[0]), &r)).To(Succeed())
	Expect(yaml.UnmarshalStrict([]byte(documents[1]), &c)).To(Succeed())
	return r.Rules, c.Rules
}

// userWith makes a user with these rights, in one namespace and in the cluster.
func userWith(ctx context.Context, namespace string, role, clusterRole []rbacv1.PolicyRule) *rest.Config {
	user := "user-" + namespace
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user, APIGroup: rbacv1.GroupName}}
	rbac := clients().RbacV1()
	r, err := rbac.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}, Rules: role}, metav1.CreateOptions{})
	ExpectWithOffset(1, err).NotTo(HaveOccurred())
	_, err = rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: r.Name},
	}, metav1.CreateOptions{})
	ExpectWithOffset(1, err).NotTo(HaveOccurred())
	c, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}, Rules: clusterRole}, metav1.CreateOptions{})
	ExpectWithOffset(1, err).NotTo(HaveOccurred())
	_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: c.Name},
	}, metav1.CreateOptions{})
	ExpectWithOffset(1, err).NotTo(HaveOccurred())
	config, err := controlPlane().User(user)
	ExpectWithOffset(1, err).NotTo(HaveOccurred())
	return config
}

var _ = Describe("The rights that the README lists", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	It("are enough to start, and to start again", func(ctx SpecContext) {
		role, clusterRole := documentedRules(namespace, namespace)
		config := userWith(ctx, namespace, role, clusterRole)
		for range 2 {
			o := urlOptions(namespace)
			o.RestConfig, o.Port, o.ListenAddress = config, FreePort(), ""
			m := addEnvManager(o)
			done := startManager(ctx, m)
			Eventually(m.Ready()).WithContext(ctx).WithTimeout(patience).Should(BeClosed())
			pod := NewPod("", nil)
			pod.GenerateName = "pod-"
			Expect(createPod(ctx, namespace, pod)).To(beMutated())
			m.Stop()
			Eventually(done).WithContext(ctx).WithTimeout(patience).Should(Receive(BeNil()))
		}
	}, SpecTimeout(3*patience))

	DescribeTable("are found in few requests, by", func(ctx SpecContext, granted bool) {
		system, options := newNamespace(ctx), urlOptions(namespace)
		options.WebhookNamespace = system
		if granted {
			o := options
			o.Host, o.ServiceName, o.ListenAddress = "", "hooks", ""
			objects, err := manifests.Of(addEnvManager(o), manifests.Options{Image: "registry.example.org/hooks:1.0"})
			Expect(err).NotTo(HaveOccurred())
			var role, clusterRole []rbacv1.PolicyRule
			for _, object := range objects {
				switch r := object.(type) {
				case *rbacv1.Role:
					role = append(role, r.Rules...)
				case *rbacv1.ClusterRole:
					clusterRole = append(clusterRole, r.Rules...)
				}
			}
			options.RestConfig = userWith(ctx, system, role, clusterRole)
		}
		m := &meter{}
		options.RestConfig = m.on(options.RestConfig)
		logger, logs := Observed()
		options.Logger = logger
		runManager(ctx, addEnvManager(options))
		Eventually(func() int { return logs.FilterMessage("the API server calls this program").Len() }).WithTimeout(patience).Should(Equal(1))
		Expect(logs.FilterMessageSnippet("rights are missing").All()).To(BeEmpty())
		Expect(logs.FilterMessageSnippet("may not be watched").All()).To(BeEmpty())
		m.mu.Lock()
		defer m.mu.Unlock()
		var reviews []string
		for _, w := range m.writes {
			if strings.Contains(w, "reviews") {
				reviews = append(reviews, w)
			}
		}
		GinkgoWriter.Println(reviews)
		Expect(len(reviews)).To(BeNumerically("<=", 12))
	},
		Entry("an administrator", false, SpecTimeout(2*patience)),
		Entry("an account with what its manifests grant", true, SpecTimeout(2*patience)),
	)

	It("are get on the Secret alone for the serving half of a split deployment", func(ctx SpecContext) {
		o := urlOptions(namespace)
		o.Port, o.ListenAddress = FreePort(), ""
		registering := addEnvManager(o)

		o.RegisterWebHook = new(false)
		o.RestConfig = userWith(ctx, namespace, []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"},
			ResourceNames: []string{namespace + "-setupcertificate"},
		}}, nil)
		logger, logs := Observed()
		o.Logger = logger
		serving := addEnvManager(o)
		startManager(ctx, serving)
		Eventually(func() int { return logs.FilterMessageSnippet("waiting for the certificate Secret").Len() }).
			WithContext(ctx).WithTimeout(patience).Should(BeNumerically(">", 0))
		Expect(registering.RegisterExtensions()).To(Succeed())
		Eventually(serving.Ready()).WithContext(ctx).WithTimeout(patience).Should(BeClosed())
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
	}, SpecTimeout(3*patience))
})
