package examples_test

import (
	"context"
	"net"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/examples/internal/programs"
)

var _ = Describe("the example agnhost with the arguments of agnhost", func() {
	var (
		certificates authority
		files        string
		port         string
		namespace    string
		endpoint     func(path string) admissionregistrationv1.WebhookClientConfig
	)
	arguments := func() []string {
		return []string{
			"webhook", "--tls-cert-file=" + filepath.Join(files, "tls.crt"), "--tls-private-key-file=" + filepath.Join(files, "tls.key"),
			"-v=4", "--port=" + port,
		}
	}

	BeforeEach(func(ctx SpecContext) {
		certificates = newAuthority()
		files = certificates.folder("tls.crt", "tls.key", "ca.crt")
		_, port = programs.FreeAddress()
		namespace = programs.Namespace(ctx, client)
		endpoint = func(path string) admissionregistrationv1.WebhookClientConfig {
			return admissionregistrationv1.WebhookClientConfig{URL: new("https://" + net.JoinHostPort("127.0.0.1", port) + path), CABundle: certificates.CertificatePEM}
		}
	})

	inNamespace := func() *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	}
	rules := func(group, resource string, operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
		return []admissionregistrationv1.RuleWithOperations{{
			Operations: operations,
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}}
	}

	ofRoles := rules("rbac.authorization.k8s.io", "roles", admissionregistrationv1.Create)

	// validates registers an endpoint for what the rules select in the namespace, as the owner of a cluster would.
	validates := func(ctx context.Context, path string, rules []admissionregistrationv1.RuleWithOperations, timeout int32) {
		GinkgoHelper()
		made, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "agnhost-"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "validates.agnhost.example.org", Rules: rules, ClientConfig: endpoint(path), NamespaceSelector: inNamespace(),
				SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: new(timeout),
			}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, made.Name, metav1.DeleteOptions{})).To(Succeed())
		})
	}

	// mutates registers an endpoint for the ConfigMaps of the namespace.
	mutates := func(ctx context.Context, path string) {
		GinkgoHelper()
		made, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "agnhost-"},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name: "mutates.agnhost.example.org", Rules: rules("", "configmaps", admissionregistrationv1.Create), ClientConfig: endpoint(path), NamespaceSelector: inNamespace(),
				SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1", "v1beta1"},
			}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, made.Name, metav1.DeleteOptions{})).To(Succeed())
		})
	}

	configMap := func(ctx context.Context, data map[string]string) (*corev1.ConfigMap, error) {
		return client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"}, Data: data}, metav1.CreateOptions{})
	}
	role := func(ctx context.Context) error {
		_, err := client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{GenerateName: "r-"}}, metav1.CreateOptions{})
		return err
	}

	It("serves the configurations and the certificate of others, until it is stopped", func(ctx SpecContext) {
		agnhost := programs.Start(programs.Build("agnhost"), arguments()...)

		By("refusing objects of any kind, also to delete them")
		kept, err := configMap(ctx, map[string]string{"webhook-e2e-test": "webhook-nondeletable"})
		Expect(err).NotTo(HaveOccurred())
		validates(ctx, "/configmaps", rules("", "configmaps", admissionregistrationv1.Create, admissionregistrationv1.Delete), 10)
		validates(ctx, "/always-deny", ofRoles, 10)
		Eventually(role, programs.Patience).WithContext(ctx).Should(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("this webhook denies all requests"))))
		Eventually(client.CoreV1().ConfigMaps(namespace).Delete, programs.Patience).WithArguments(ctx, kept.Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}).Should(MatchError(ContainSubstring("cannot be deleted")))

		By("changing objects, one stage for each webhook")
		mutates(ctx, "/mutating-configmaps")
		stages := func(g Gomega) map[string]string {
			made, err := configMap(ctx, map[string]string{"mutation-start": "yes"})
			g.Expect(err).NotTo(HaveOccurred())
			return made.Data
		}
		Eventually(stages, programs.Patience).Should(Equal(map[string]string{"mutation-start": "yes", "mutation-stage-1": "yes"}))
		mutates(ctx, "/mutating-configmaps")
		Eventually(stages, programs.Patience).Should(Equal(map[string]string{"mutation-start": "yes", "mutation-stage-1": "yes", "mutation-stage-2": "yes"}))

		By("changing objects that have no labels")
		mutates(ctx, "/add-label")
		Eventually(func(g Gomega) {
			made, err := configMap(ctx, nil)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(made.Labels).To(HaveKeyWithValue("added-label", "yes"))
		}, programs.Patience).Should(Succeed())

		programs.StopsCleanly(agnhost)
	})

	It("is later than the timeout of others, and lets it pass", func(ctx SpecContext) {
		programs.Start(programs.Build("agnhost"), arguments()...)
		validates(ctx, "/always-allow-delay-5s", rules("", "configmaps", admissionregistrationv1.Create), 1)
		Eventually(func() error {
			_, err := configMap(ctx, nil)
			return err
		}, programs.Patience).Should(MatchError(And(ContainSubstring("/always-allow-delay-5s?timeout=1s"), ContainSubstring("deadline exceeded"))))
	})

	DescribeTable("does not start without a certificate", func(arguments ...string) {
		agnhost := programs.Start(programs.Build("agnhost"), arguments...)
		Eventually(agnhost, programs.Patience).Should(gexec.Exit(1))
		Expect(agnhost.Err.Contents()).To(ContainSubstring("--tls-cert-file and --tls-private-key-file"))
	},
		Entry("that is named", "webhook"),
		Entry("that can be read", "webhook", "--tls-cert-file=/nowhere/tls.crt", "--tls-private-key-file=/nowhere/tls.key"),
	)

	It("serves a certificate that others renew", func(ctx SpecContext) {
		programs.Start(programs.Build("agnhost"), arguments()...)
		validates(ctx, "/always-deny", ofRoles, 10)
		Eventually(role, programs.Patience).WithContext(ctx).Should(Satisfy(apierrors.IsForbidden))

		certificates = newAuthority()
		renewed := certificates.folder("tls.crt", "tls.key", "ca.crt")
		for _, name := range []string{"tls.crt", "tls.key"} {
			Expect(os.Rename(filepath.Join(renewed, name), filepath.Join(files, name))).To(Succeed())
		}
		namespace = programs.Namespace(ctx, client)
		validates(ctx, "/always-deny", ofRoles, 10)
		Eventually(role, programs.Patience).WithContext(ctx).Should(Satisfy(apierrors.IsForbidden))
	})
})
