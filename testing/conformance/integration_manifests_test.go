package conformance_test

// This file plays a webhook that is in a file of the API server, since that needs no feature gate.

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// manifestsRelease is the minor release since which the feature gate of webhooks in files is on (beta).
const manifestsRelease, manifestsByDefault = 37, "webhooks in files without setting the feature gate ManifestBasedAdmissionControlConfig"

const manifestsConfiguration = `{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [
	{"name": "MutatingAdmissionWebhook", "configuration":
		{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration", "staticManifestsDir": %q}}
]}`

// serverWithFile starts an API server that knows the configuration's first webhook from a file. There it is for this
// namespace, and fails closed: that is the hardest case for its Manager.
func serverWithFile(ctx context.Context, configuration *admissionregistrationv1.MutatingWebhookConfiguration, namespace string) *eirinixtest.APIServer {
	GinkgoHelper()
	webhook := configuration.Webhooks[0]
	webhook.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	webhook.FailurePolicy = new(admissionregistrationv1.Fail)
	manifest, err := json.Marshal(&admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: "manifests.static.k8s.io"},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{webhook},
	})
	Expect(err).NotTo(HaveOccurred())

	dir := GinkgoT().TempDir()
	manifests, plugins := filepath.Join(dir, "manifests"), filepath.Join(dir, "admission.yaml")
	Expect(os.Mkdir(manifests, 0o700)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(manifests, "webhook.yaml"), manifest, 0o600)).To(Succeed())
	Expect(os.WriteFile(plugins, fmt.Appendf(nil, manifestsConfiguration, manifests), 0o600)).To(Succeed())
	server := Must(controlPlane().AddAPIServer(ctx, "--admission-control-config-file="+plugins))
	DeferCleanup(server.Stop)
	return server
}

var _ = Describe("S33 A webhook in a file, without a feature gate", Label("S33"), func() {
	It("is called from the first request on, and neither a rotation nor its Manager's registration runs into it", func(ctx SpecContext) {
		needs(manifestsRelease, manifestsByDefault)
		everything := eirinix.Mutation[*unstructured.Unstructured]{
			ID:       "everything",
			Settings: eirinix.Settings{Rules: ruleFor("*", "*", []string{"*/*"}, admissionregistrationv1.Create), FailurePolicy: admissionregistrationv1.Ignore},
			Apply: func(_ context.Context, _ *eirinix.Call, u *unstructured.Unstructured) error {
				u.SetLabels(map[string]string{"by": "everything"})
				return nil
			},
		}
		namespace, static := newNamespace(ctx), newNamespace(ctx)
		m := serve(ctx, urlMode, namespace, func(o *eirinix.ManagerOptions) {
			o.ListenAddress = net.JoinHostPort(o.Host, strconv.Itoa(int(FreePort())))
		}, everything)
		server := serverWithFile(ctx, mutatingConfiguration(ctx, m), static)
		create := func(name string) (*corev1.ConfigMap, error) {
			return Clients(server.Config()).CoreV1().ConfigMaps(static).Create(ctx, newConfigMap(name, nil), metav1.CreateOptions{})
		}
		called := HaveField("Labels", HaveKeyWithValue("by", "everything"))
		Expect(create("first")).To(called)

		By("trusting the CA of the file after a rotation, in new connections too")
		Expect(m.RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed())
		Expect(server.Restart(ctx)).To(Succeed())
		Expect(create("rotated")).To(called)

		By("being in force while its Manager is down")
		m.Stop()
		Eventually(func() error {
			_, err := create("unattended")
			return err
		}).WithContext(ctx).Should(MatchError(And(ContainSubstring("failed calling webhook"), ContainSubstring("connection refused"))))

		By("letting its Manager register through this API server while it does not serve")
		mine := mutatingConfiguration(ctx, m).Name
		Expect(clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, mine, metav1.DeleteOptions{})).To(Succeed())
		o := m.GetManagerOptions()
		o.RestConfig = server.Config()
		registering, serving := eirinix.NewManager(o), eirinix.NewManager(o)
		Expect(registering.AddExtension(everything)).To(Succeed())
		Expect(registering.RegisterExtensions()).To(Succeed())
		Expect(mutatingConfiguration(ctx, m).Webhooks).NotTo(BeEmpty())

		By("being called again when its Manager is back")
		Expect(serving.AddExtension(everything)).To(Succeed())
		start(ctx, serving)
		Expect(create("attended")).To(called)
		Expect(serving.Diagnose(ctx).Err()).NotTo(HaveOccurred())
	}, SpecTimeout(6*patience))
})
