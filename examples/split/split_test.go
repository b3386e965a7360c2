// Package split_test runs the two halves of the split deployment as processes, in either order, against a real
// API server.
package split_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"code.cloudfoundry.org/eirinix/examples/internal/programs"
	"code.cloudfoundry.org/eirinix/examples/split/webhook"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

const (
	secretName        = "split-example-setupcertificate"
	configurationName = "split-example-mutating-hook"

	waitsForSecret       = `"msg":"waiting for the certificate Secret`
	waitsForRegistration = `"msg":"not ready: serving, but not registered`
	isReady              = `"msg":"ready"`
)

func TestSplit(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Split deployment", Label("api-server"))
}

var (
	plane  *eirinixtest.ControlPlane
	client kubernetes.Interface
)

var _ = BeforeSuite(func() {
	DeferCleanup(gexec.CleanupBuildArtifacts)
	plane = eirinixtest.StartControlPlane(GinkgoT())
	client = kubernetes.NewForConfigOrDie(plane.Config())
})

// deployment is both halves with equal options, in a namespace of its own.
type deployment struct {
	namespace     string
	address, port string
}

func (d deployment) register(kubeconfig string) *gexec.Session {
	GinkgoHelper()
	session := programs.Start(programs.Build("split/register"), d.flags(kubeconfig)...)
	Eventually(session, programs.Patience).Should(gexec.Exit())
	return session
}

func (d deployment) serve(kubeconfig string, more ...string) *gexec.Session {
	GinkgoHelper()
	flags := append(d.flags(kubeconfig), "-listen", d.address)
	return programs.Start(programs.Build("split/serve"), append(flags, more...)...)
}

func (d deployment) flags(kubeconfig string) []string {
	return []string{"-kubeconfig", kubeconfig, "-namespace", d.namespace, "-host", "127.0.0.1", "-port", d.port}
}

// stamps is for Eventually: the API server learns of a registration a moment after it is written.
func (d deployment) stamps(g Gomega, ctx SpecContext) {
	pod, err := programs.CreatePod(ctx, client, d.namespace)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pod.Annotations).To(HaveKeyWithValue(webhook.Annotation, d.namespace))
}

// versions are the resourceVersions of all that the registering half writes.
func (d deployment) versions(ctx context.Context) (secret, configuration string) {
	GinkgoHelper()
	s, err := client.CoreV1().Secrets(d.namespace).Get(ctx, secretName, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	c, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, configurationName, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return s.ResourceVersion, c.ResourceVersion
}

func log(session *gexec.Session) func() string {
	return func() string { return string(session.Err.Contents()) }
}

var _ = Describe("a split deployment", func() {
	var d deployment

	BeforeEach(func(ctx SpecContext) {
		d = deployment{namespace: programs.Namespace(ctx, client)}
		d.address, d.port = programs.FreeAddress()
		DeferCleanup(func(ctx SpecContext) {
			err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, configurationName, metav1.DeleteOptions{})
			if !apierrors.IsNotFound(err) {
				Expect(err).NotTo(HaveOccurred())
			}
		})
	})

	It("works when it is registered first, and is registered again without a write", func(ctx SpecContext) {
		Expect(d.register(plane.Kubeconfig())).To(gexec.Exit(0))
		secret, configuration := d.versions(ctx)
		serve := d.serve(plane.Kubeconfig())
		Eventually(log(serve), programs.Patience).Should(ContainSubstring(isReady))
		Eventually(d.stamps, programs.Patience).WithContext(ctx).Should(Succeed())
		Expect(log(serve)()).NotTo(ContainSubstring(waitsForSecret))
		Expect(d.register(plane.Kubeconfig())).To(gexec.Exit(0))
		secretAgain, configurationAgain := d.versions(ctx)
		Expect(secretAgain).To(Equal(secret))
		Expect(configurationAgain).To(Equal(configuration))
		programs.StopsCleanly(serve)
	})

	DescribeTable("works when it is served first, and logs what it waits for:", func(ctx SpecContext, kubeconfig func(SpecContext) string, awaited string, more ...string) {
		serve := d.serve(kubeconfig(ctx), more...)
		Eventually(log(serve), programs.Patience).Should(ContainSubstring(awaited))
		Expect(log(serve)()).NotTo(ContainSubstring(isReady))
		Expect(d.register(plane.Kubeconfig())).To(gexec.Exit(0))
		Eventually(log(serve), programs.Patience).Should(ContainSubstring(isReady))
		Eventually(d.stamps, programs.Patience).WithContext(ctx).Should(Succeed())
		programs.StopsCleanly(serve)
	},
		Entry("the Secret, with no other right than to read it", func(ctx SpecContext) string { return readerOf(ctx, d.namespace) }, waitsForSecret),
		Entry("the registration, with the right to make the Secret", func(SpecContext) string { return plane.Kubeconfig() }, waitsForRegistration, "-setup-certificate"),
	)

	It("has a registering half that names the remedy and exits with 1", func() {
		config, err := plane.User("powerless")
		Expect(err).NotTo(HaveOccurred())
		register := d.register(kubeconfigOf(config))
		Expect(register).To(gexec.Exit(1))
		Expect(log(register)()).To(And(ContainSubstring(secretName), ContainSubstring("needs get, create")))
	})
})

// readerOf returns the kubeconfig of a user who may only read the certificate Secret.
func readerOf(ctx context.Context, namespace string) string {
	GinkgoHelper()
	_, err := client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "serve"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{secretName}, Verbs: []string{"get"},
		}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "serve"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "serve"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "serve"}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	config, err := plane.User("serve")
	Expect(err).NotTo(HaveOccurred())
	return kubeconfigOf(config)
}

// kubeconfigOf writes a connection to a file that the end of the spec removes.
func kubeconfigOf(config *rest.Config) string {
	GinkgoHelper()
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			"u": {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData},
		},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	})
	Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(path, data, 0o600)).To(Succeed())
	return path
}
