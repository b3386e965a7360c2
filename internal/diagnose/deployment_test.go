package diagnose_test

// A program with one extension for pods, as the root package would put it together: a server, its certificate, the
// configurations, and the canary's entry.

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/rights"
	"code.cloudfoundry.org/eirinix/internal/serving"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/typedconf"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// patience bounds the time that a slow machine may take. A spec that passes does not wait for it.
const patience = 60 * time.Second

func TestMain(m *testing.M) { os.Exit(eirinixtest.Main(m)) }

func TestDiagnose(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second) // of a busy machine
	RunSpecs(t, "internal/diagnose")
}

// controlPlane is one for the whole suite.
var controlPlane *eirinixtest.ControlPlane

var _ = BeforeSuite(func() {
	if !Label("api-server").MatchesLabelFilter(GinkgoLabelFilter()) {
		return
	}
	controlPlane = eirinixtest.StartControlPlane(GinkgoTB(), eirinixtest.Shared)
})

func admin() kubernetes.Interface {
	GinkgoHelper()
	return clientsFor(controlPlane.Config())
}

func clientsFor(config *rest.Config) kubernetes.Interface {
	GinkgoHelper()
	return Must(kubernetes.NewForConfig(config))
}

// newNamespace makes a namespace of the spec's own.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	return Must(admin().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}}, metav1.CreateOptions{})).Name
}

type deployment struct {
	diagnose.Config
	authority *ca.Authority
	leaf      *serving.Leaf
	server    *http.Server
	listener  net.Listener

	registered *webhookconf.Options // where another writer has registered other options
}

// newDeployment serves in URL mode and is not registered yet.
func newDeployment(ctx context.Context) *deployment {
	GinkgoHelper()
	return newDeploymentWith(ctx, serving.NewLeaf([]string{"127.0.0.1", "localhost"}, 7*24*time.Hour, time.Now))
}

func newDeploymentWith(ctx context.Context, leaf *serving.Leaf) *deployment {
	GinkgoHelper()
	namespace := newNamespace(ctx)
	d := &deployment{authority: newCA(), leaf: leaf}
	Expect(leaf.Use(d.authority)).To(Succeed())
	d.Canary = diagnose.Canary{Fingerprint: namespace, Namespace: namespace, Instance: "pod-1"}
	d.serve(d.handler())
	d.Options = webhookconf.Options{
		Fingerprint: namespace, Namespace: namespace, CABundle: d.authority.CertificatePEM,
		Target: webhookconf.Target{Host: "127.0.0.1", Port: d.port()},
	}
	d.Clients, d.Owner = admin(), namespace+"/secret"
	d.Entries = append(webhookconf.Group([]webhookconf.Step{podStep(false)}), d.Canary.Entry())
	d.Verify, d.Listen = leaf.Verify, d.listener.Addr().String()
	d.Timeout, d.Settle = 2*time.Second, patience
	d.Others = true
	return d
}

func newCA() *ca.Authority {
	GinkgoHelper()
	return Must(ca.New("spec", 24*365*time.Hour, time.Now().Add(-30*24*time.Hour)))
}

func podStep(validating bool) webhookconf.Step {
	return webhookconf.Step{
		Name: "pods", Validating: validating, Kind: corev1.SchemeGroupVersion.WithKind("Pod"),
		Settings: webhookconf.Settings{
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: new(admissionregistrationv1.NamespacedScope),
				},
			}},
			FailurePolicy: admissionregistrationv1.Fail, MatchPolicy: admissionregistrationv1.Equivalent, Timeout: 5 * time.Second,
			Reinvoke: admissionregistrationv1.NeverReinvocationPolicy, SideEffects: admissionregistrationv1.SideEffectClassNone,
		},
	}
}

func (d *deployment) handler() http.Handler {
	h := &admit.Handler{MaxBytes: 1 << 20}
	for _, path := range []string{"/mutate/", "/validate/"} {
		h.Serve(path+diagnose.CanaryName, chain.Config{Steps: []chain.Step{{Name: diagnose.CanaryName, Handle: d.Canary.Answer}}})
	}
	return h
}

// serve starts a server on a port of its own; an earlier one goes on.
func (d *deployment) serve(h http.Handler) {
	GinkgoHelper()
	d.listener = Must(net.Listen("tcp", "127.0.0.1:0"))
	d.server = serveTLS(d.listener, h, &tls.Config{GetCertificate: d.leaf.GetCertificate})
}

func serveTLS(l net.Listener, h http.Handler, config *tls.Config) *http.Server {
	server := &http.Server{Handler: h, TLSConfig: config, ReadHeaderTimeout: patience}
	go func() { _ = server.ServeTLS(l, "", "") }()
	DeferCleanup(func() { _ = server.Close() })
	return server
}

func (d *deployment) port() int32 { return portOf(d.listener) }

func portOf(l net.Listener) int32 { return int32(l.Addr().(*net.TCPAddr).Port) }

// freePort is one on which nothing listens.
func freePort() int32 {
	GinkgoHelper()
	l := Must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return portOf(l)
}

// behind makes it a deployment behind a Service, for which its certificate is good.
func (d *deployment) behind(ctx context.Context, spec corev1.ServiceSpec) {
	GinkgoHelper()
	namespace := d.Canary.Namespace
	if spec.Selector != nil { // as Manifests has it
		spec.Selector[webhookconf.FingerprintLabel] = namespace
	}
	Must(admin().CoreV1().Services(namespace).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "hooks"}, Spec: spec}, metav1.CreateOptions{}))
	d.inServiceMode()
}

func (d *deployment) inServiceMode() {
	GinkgoHelper()
	namespace := d.Canary.Namespace
	d.leaf = serving.NewLeaf([]string{"hooks." + namespace + ".svc"}, 7*24*time.Hour, time.Now)
	Expect(d.leaf.Use(d.authority)).To(Succeed())
	Expect(d.server.Close()).To(Succeed())
	d.serve(d.handler())
	d.Verify, d.Listen = d.leaf.Verify, d.listener.Addr().String()
	d.Options.Target = webhookconf.Target{Service: "hooks", Namespace: namespace, Port: d.port()}
}

// toLoopback is a Service that the API server resolves itself.
func toLoopback() corev1.ServiceSpec {
	return corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}
}

// register writes the configurations, as a process that starts now, and takes them away when the spec ends. edits is how
// another writer has changed the entries since.
func (d *deployment) register(ctx context.Context, edits ...func(*admissionregistrationv1.MutatingWebhook)) {
	GinkgoHelper()
	annotations := map[string]string{webhookconf.OwnerAnnotation: d.Owner}
	options := d.Options
	if d.registered != nil {
		options = *d.registered
	}
	hooks := admin().AdmissionregistrationV1()
	if c := typedconf.Of[admissionregistrationv1.MutatingWebhookConfiguration](options, webhookconf.Mutating, d.Entries); c != nil {
		c.Name, c.Annotations = webhookconf.Mutating.ConfigurationName(d.Options.Fingerprint), annotations
		for i := range c.Webhooks {
			for _, e := range edits {
				e(&c.Webhooks[i])
			}
		}
		Must(hooks.MutatingWebhookConfigurations().Create(ctx, c, metav1.CreateOptions{}))
		DeferCleanup(func(ctx context.Context) error {
			return hooks.MutatingWebhookConfigurations().Delete(ctx, c.Name, metav1.DeleteOptions{})
		})
	}
	if c := typedconf.Of[admissionregistrationv1.ValidatingWebhookConfiguration](options, webhookconf.Validating, d.Entries); c != nil {
		c.Name, c.Annotations = webhookconf.Validating.ConfigurationName(d.Options.Fingerprint), annotations
		Must(hooks.ValidatingWebhookConfigurations().Create(ctx, c, metav1.CreateOptions{}))
		DeferCleanup(func(ctx context.Context) error {
			return hooks.ValidatingWebhookConfigurations().Delete(ctx, c.Name, metav1.DeleteOptions{})
		})
	}
}

// remove takes entries out of the configuration.
func (d *deployment) remove(ctx context.Context, unwanted func(name string) bool) {
	GinkgoHelper()
	hooks := admin().AdmissionregistrationV1().MutatingWebhookConfigurations()
	live := Must(hooks.Get(ctx, webhookconf.Mutating.ConfigurationName(d.Options.Fingerprint), metav1.GetOptions{}))
	live.Webhooks = slices.DeleteFunc(live.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool { return unwanted(w.Name) })
	Must(hooks.Update(ctx, live, metav1.UpdateOptions{}))
}

func (d *deployment) isCanary(name string) bool {
	return name == d.Options.WebhookName(diagnose.CanaryName)
}

// entry is the name of the pods' entry as it is registered.
func (d *deployment) entry() string {
	return d.Options.WebhookName(d.Entries[0].Name)
}

func (d *deployment) run(ctx context.Context) diagnosis.Report {
	r := diagnose.Run(ctx, d.Config)
	GinkgoWriter.Print(r)
	return r
}

// as runs the diagnosis as a user with these rights alone.
func (d *deployment) as(ctx context.Context, granted ...diagnosis.Right) {
	GinkgoHelper()
	name := "user-" + d.Canary.Namespace
	grant(ctx, name, granted...)
	d.Clients = clientsFor(Must(controlPlane.User(name)))
}

// createsConfigMaps is the right that a canary needs.
func (d *deployment) createsConfigMaps() diagnosis.Right {
	return diagnosis.Right{Resource: "configmaps", Verb: "create", Namespace: d.Canary.Namespace}
}

// grant gives a user rights until the spec ends.
func grant(ctx context.Context, user string, granted ...diagnosis.Right) {
	GinkgoHelper()
	client := Must(dynamic.NewForConfig(controlPlane.Config()))
	for _, g := range diagnose.Granting(granted...) {
		for _, object := range rights.Bind(metav1.ObjectMeta{Namespace: g.Namespace, Name: user}, diagnose.SubjectOf(user), g.Rules) {
			tree := Must(runtime.DefaultUnstructuredConverter.ToUnstructured(object))
			resource := client.Resource(rbacv1.SchemeGroupVersion.WithResource(strings.ToLower(object.GetObjectKind().GroupVersionKind().Kind) + "s")).Namespace(g.Namespace)
			Must(resource.Create(ctx, &unstructured.Unstructured{Object: tree}, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}))
			DeferCleanup(func(ctx context.Context) error { return resource.Delete(ctx, user, metav1.DeleteOptions{}) })
		}
	}
}

// awaitCalls waits until the API server calls for the entries.
func (d *deployment) awaitCalls(ctx context.Context) {
	GinkgoHelper()
	_, through := d.run(ctx).Find(diagnosis.Healthy)
	Expect(through).To(BeTrue())
}

// codes are those of the findings, those of problems first.
func codes(r diagnosis.Report) []diagnosis.Code {
	return list.Of(r.Findings, func(f diagnosis.Finding) diagnosis.Code { return f.Code })
}

// problems are the codes of the problems.
func problems(r diagnosis.Report) []diagnosis.Code {
	return codes(diagnosis.Report{Findings: slices.DeleteFunc(slices.Clone(r.Findings), func(f diagnosis.Finding) bool { return f.Severity != diagnosis.Problem })})
}

// haveOneProblem matches the report of a single fault, with these parts of its text.
func haveOneProblem(code diagnosis.Code, texts ...string) OmegaMatcher {
	all := []OmegaMatcher{HaveField("Object", Not(BeEmpty())), HaveField("Remedy", Not(BeEmpty()))}
	for _, t := range texts {
		all = append(all, WithTransform(diagnosis.Finding.String, ContainSubstring(t)))
	}
	return And(
		WithTransform(problems, Equal([]diagnosis.Code{code})),
		WithTransform(func(r diagnosis.Report) diagnosis.Finding { f, _ := r.Find(code); return f }, And(all...)),
	)
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }

// denyAll is a webhook that admits nothing.
var denyAll http.HandlerFunc = func(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if json.NewDecoder(r.Body).Decode(&review) != nil || review.Request == nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "not today"}}
	review.Request = nil
	_ = json.NewEncoder(w).Encode(review)
}

// newBlackhole returns a port that drops everything, as a firewall does.
func newBlackhole() int32 {
	GinkgoHelper()
	l := Must(net.Listen("tcp", "127.0.0.1:0"))
	DeferCleanup(l.Close) // it never accepts: the kernel connects, and no process answers
	connection := Must(net.DialTimeout("tcp", l.Addr().String(), time.Second))
	Expect(connection.Close()).To(Succeed())
	return portOf(l)
}
