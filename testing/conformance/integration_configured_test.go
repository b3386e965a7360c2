package conformance_test

import (
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// admissionConfiguration has the plugins show these credentials. The mutating one can have more options.
const admissionConfiguration = `{"apiVersion": "apiserver.k8s.io/v1alpha1", "kind": "AdmissionConfiguration", "plugins": [
	{"name": "ValidatingAdmissionWebhook", "configuration":
		{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": %[1]q}},
	{"name": "MutatingAdmissionWebhook", "configuration":
		{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": %[1]q%[2]s}}
]}`

// staticRelease is the minor release since which webhooks can stand in files (alpha).
const staticRelease, staticWebhooks = 36, "webhooks in files, the feature gate ManifestBasedAdmissionControlConfig"

// An API server whose administrator has configured the admission plugins: it authenticates itself to webhooks, and
// knows webhooks that are not in the API (alpha).
var _ = Describe("An API server with an AdmissionConfiguration", Ordered, func() {
	var (
		namespaces = map[mode]string{}
		taps       = map[mode]*wiretap{}
		static     string // the namespace of the webhook that is in a file
		configured kubernetes.Interface
	)
	BeforeAll(func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		users := []any{map[string]any{"name": "*", "user": map[string]any{"token": "of-anybody"}}}
		var manifest *admissionregistrationv1.MutatingWebhookConfiguration
		static = newNamespace(ctx)
		for _, mode := range modes {
			namespaces[mode], taps[mode] = newNamespace(ctx), newWiretap()
			m := serve(ctx, mode, namespaces[mode], taps[mode].options, labelOnce("maps", "by", string(mode), eirinix.Settings{}))
			host := "127.0.0.1"
			if o := m.GetManagerOptions(); mode == serviceMode {
				host = o.ServiceName + "." + o.WebhookNamespace + ".svc"
			} else {
				manifest = mutatingConfiguration(ctx, m)
			}
			users = append(users,
				map[string]any{"name": host, "user": map[string]any{"token": "of-host"}},
				map[string]any{"name": net.JoinHostPort(host, strconv.Itoa(int(taps[mode].port()))), "user": map[string]any{"token": "of-host-and-port-" + string(mode)}})
		}
		manifest.TypeMeta = metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"}
		manifest.ObjectMeta = metav1.ObjectMeta{Name: "conformance.static.k8s.io"}
		manifest.Webhooks = manifest.Webhooks[:1]
		manifest.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: static}}

		write := func(name string, content any) string {
			path := filepath.Join(dir, name)
			text, ok := content.(string)
			if !ok {
				encoded, err := json.Marshal(content)
				Expect(err).NotTo(HaveOccurred())
				text = string(encoded)
			}
			Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
			return path
		}
		manifests := filepath.Join(dir, "manifests")
		Expect(os.Mkdir(manifests, 0o700)).To(Succeed())
		write("manifests/webhook.yaml", manifest)
		credentials := write("kubeconfig", map[string]any{"apiVersion": "v1", "kind": "Config", "users": users})
		more, args := "", []string{}
		if has(staticRelease) {
			more = fmt.Sprintf(`, "staticManifestsDir": %q`, manifests)
			args = append(args, "--feature-gates=ManifestBasedAdmissionControlConfig=true")
		}
		args = append(args, "--admission-control-config-file="+write("admission.yaml", fmt.Sprintf(admissionConfiguration, credentials, more)))
		server, err := controlPlane().AddAPIServer(ctx, args...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(server.Stop)
		configured = Clients(server.Config())
	})

	// created is a config map that the webhook of that mode has labelled: this server's informer may be late.
	created := func(ctx SpecContext, namespace string, by mode) {
		GinkgoHelper()
		Eventually(func() (*corev1.ConfigMap, error) {
			return configured.CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("configured", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		}).WithContext(ctx).WithPolling(pollMarker).Should(HaveField("Labels", HaveKeyWithValue("by", string(by))))
	}

	eachMode(func(mode mode) {
		It("S28 shows the webhook the credentials of its host and port, and a server without shows none", Label("S28"), func(ctx SpecContext) {
			created(ctx, namespaces[mode], mode)
			Expect(taps[mode].about("configured")).To(HaveEach(authorizedBy("Bearer of-host-and-port-" + string(mode))))
			_, err := createConfigMap(ctx, namespaces[mode], newConfigMap("unauthenticated", nil))
			Expect(err).NotTo(HaveOccurred())
			Expect(taps[mode].about("unauthenticated")).To(ConsistOf(authorizedBy("")))
		}, SpecTimeout(2*patience))
	})

	It("S33 calls a webhook that is in a file, as the library made it", Label("S33"), func(ctx SpecContext) {
		needs(staticRelease, staticWebhooks)
		created(ctx, static, urlMode)
		c, err := createConfigMap(ctx, static, newConfigMap("of-the-other-server", nil))
		Expect(err).NotTo(HaveOccurred())
		Expect(c.Labels).To(BeEmpty())
	}, SpecTimeout(2*patience))

	It("S33 keeps the names of such webhooks from the API, which the library's never are", Label("S33"), func(ctx SpecContext) {
		needs(staticRelease, staticWebhooks)
		hooks, mine := configured.AdmissionregistrationV1(), namespaces[urlMode]+"-mutating-hook"
		live, err := hooks.MutatingWebhookConfigurations().Get(ctx, mine, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		renamed := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: mine}, Webhooks: live.Webhooks}
		dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		renamed.Name = "a-" + mine
		_, err = hooks.MutatingWebhookConfigurations().Create(ctx, renamed, dry)
		Expect(err).NotTo(HaveOccurred())
		renamed.Name = mine + ".static.k8s.io"
		_, err = hooks.MutatingWebhookConfigurations().Create(ctx, renamed, dry)
		Expect(err).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring("reserved for static manifest-based configurations"))))

		o := optionsFor(ctx, urlMode, static)
		o.OperatorFingerprint = "mine.static.k8s.io"
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(labelOnce("maps", "a", "b", eirinix.Settings{}))).To(Succeed())
		Expect(m.Validate()).To(MatchError(ContainSubstring("OperatorFingerprint")), "a name with dots is none")
	}, SpecTimeout(2*patience))
})

func authorizedBy(credentials string) OmegaMatcher {
	return WithTransform(func(h heard) string { return h.authorization }, Equal(credentials))
}
