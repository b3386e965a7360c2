// Package examples_test runs the example programs as their users do: as processes, against a real API server.
package examples_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/examples/hello/greeting"
	"code.cloudfoundry.org/eirinix/examples/internal/programs"
	"code.cloudfoundry.org/eirinix/examples/split/webhook"
	"code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

func TestMain(m *testing.M) { os.Exit(eirinixtest.Main(m)) }

func TestExamples(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	RunSpecs(t, "Examples", Label("api-server"))
}

var (
	plane      *eirinixtest.ControlPlane
	kubeconfig string
	client     kubernetes.Interface
	c          crclient.Client
)

var _ = BeforeSuite(func() {
	DeferCleanup(gexec.CleanupBuildArtifacts)
	logf.SetLogger(GinkgoLogr) // of controllers and clients in this process
	plane = eirinixtest.StartControlPlane(GinkgoT(), eirinixtest.Shared)
	kubeconfig, client = plane.Kubeconfig(), kubernetes.NewForConfigOrDie(plane.Config())
	var err error
	c, err = crclient.New(plane.Config(), crclient.Options{})
	Expect(err).NotTo(HaveOccurred())
})

var _ = Describe("the example", func() {
	var namespace string

	BeforeEach(func(ctx SpecContext) {
		namespace = programs.Namespace(ctx, client)
	})

	// greeted creates a pod and says which of its containers were greeted, and whether it was labelled.
	greeted := func(g Gomega, ctx SpecContext) {
		pod, err := programs.CreatePod(ctx, client, namespace)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pod.Labels).To(HaveKeyWithValue(greeting.Label, "true"))
		greets := corev1.EnvVar{Name: greeting.Variable, Value: greeting.Message}
		g.Expect(pod.Spec.Containers[0].Env).To(Equal([]corev1.EnvVar{greets}))
		g.Expect(pod.Spec.Containers[1].Env).To(Equal([]corev1.EnvVar{{Name: "OWN", Value: "kept"}, greets}))
	}

	It("quickstart labels pods, and leaves no webhook behind", func(ctx SpecContext) {
		unregisterAfterwards("eirini-x")
		quickstart := programs.StartWith(kubeconfig, programs.Build("quickstart"))
		Eventually(func(g Gomega) {
			pod, err := programs.CreatePod(ctx, client, metav1.NamespaceDefault)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pod.Labels).To(HaveKeyWithValue("team", "platform"))
		}, programs.Patience).Should(Succeed())
		programs.StopsCleanly(quickstart)
		_, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "eirini-x-mutating-hook", metav1.GetOptions{})
		Expect(err).To(Satisfy(apierrors.IsNotFound))
	})

	It("hello greets pods when the API server calls a URL", func(ctx SpecContext) {
		unregisterAfterwards("eirini-x")
		hello := programs.Start(programs.Build("hello"), "-kubeconfig", kubeconfig,
			"-namespace", namespace, "-host", "127.0.0.1", "-listen", "127.0.0.1:0")
		Eventually(greeted, programs.Patience).WithContext(ctx).Should(Succeed())
		programs.StopsCleanly(hello)
	})

	It("service greets pods when the API server calls a Service", func(ctx SpecContext) {
		unregisterAfterwards("greeting")
		webhookNamespace := programs.Namespace(ctx, client)
		_, err := client.CoreV1().Services(webhookNamespace).Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "greeter"},
			// There is no kube-proxy here; an ExternalName is resolved by the API server itself.
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())

		address, port := programs.FreeAddress()
		service := programs.Start(programs.Build("service"), "-kubeconfig", kubeconfig, "-namespace", namespace,
			"-service", "greeter", "-webhook-namespace", webhookNamespace, "-port", port, "-listen", address)
		Eventually(greeted, programs.Patience).WithContext(ctx).Should(Succeed())
		programs.StopsCleanly(service)
	})

	It("split works in either order of its halves, the one that serves with no right but to read the Secret", func(ctx SpecContext) {
		unregisterAfterwards("split-example")
		_, err := client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: "serve"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"split-example-setupcertificate"}, Verbs: []string{"get"}}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "serve"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "serve"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "serve"}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		address, port := programs.FreeAddress()
		flags := []string{"-namespace", namespace, "-host", "127.0.0.1", "-port", port}
		serves := func() *gexec.Session {
			return programs.Start(programs.Build("split/serve"), append(flags, "-listen", address, "-kubeconfig", programs.AsServiceAccount(kubeconfig, namespace, "serve"))...)
		}
		registers := func(kubeconfig string) *gexec.Session {
			session := programs.Start(programs.Build("split/register"), append(flags, "-kubeconfig", kubeconfig)...)
			Eventually(session, programs.Patience).Should(gexec.Exit())
			return session
		}
		powerless := registers(programs.AsServiceAccount(kubeconfig, namespace, "serve"))
		Expect(powerless).To(gexec.Exit(1))
		Expect(string(powerless.Err.Contents())).To(ContainSubstring("split-example-setupcertificate"))

		first := serves()
		Eventually(func() string { return string(first.Err.Contents()) }, programs.Patience).Should(ContainSubstring("waiting for the certificate Secret"))
		Expect(registers(kubeconfig)).To(gexec.Exit(0))
		isReady(first)
		Eventually(func(g Gomega) {
			pod, err := programs.CreatePod(ctx, client, namespace)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pod.Annotations).To(HaveKeyWithValue(webhook.Annotation, namespace))
		}, programs.Patience).Should(Succeed())
		programs.StopsCleanly(first)

		second := serves()
		isReady(second)
		Expect(string(second.Err.Contents())).NotTo(ContainSubstring("waiting for the certificate Secret"))
		programs.StopsCleanly(second)
	})

	It("watcher prints the events of pods", func(ctx SpecContext) {
		before, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		pod := spectest.Must(programs.CreatePod(ctx, client, namespace))

		watcher := programs.Start(programs.Build("watcher"), "-kubeconfig", kubeconfig,
			"-namespace", namespace, "-from", before.ResourceVersion)
		Eventually(watcher.Out.Contents, programs.Patience).Should(ContainSubstring("ADDED    %s/%s Pending\n", namespace, pod.Name))
		Expect(client.CoreV1().Pods(namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))).To(Succeed())
		Eventually(watcher.Out.Contents, programs.Patience).Should(ContainSubstring("DELETED  %s/%s Pending\n", namespace, pod.Name))
		programs.StopsCleanly(watcher)
	})

	It("reconciler annotates the pods that are there, and those that come", func(ctx SpecContext) {
		annotations := func(name string) func(SpecContext) (map[string]string, error) {
			return func(ctx SpecContext) (map[string]string, error) {
				pod, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return nil, err
				}
				return pod.Annotations, nil
			}
		}
		counted := HaveKeyWithValue("example.org/containers", "2")

		old, err := programs.CreatePod(ctx, client, namespace)
		Expect(err).NotTo(HaveOccurred())
		reconciler := programs.Start(programs.Build("reconciler"), "-kubeconfig", kubeconfig, "-namespace", namespace)
		Eventually(annotations(old.Name), programs.Patience).WithContext(ctx).Should(counted)
		young := spectest.Must(programs.CreatePod(ctx, client, namespace))
		Eventually(annotations(young.Name), programs.Patience).WithContext(ctx).Should(counted)
		programs.StopsCleanly(reconciler)
	})
})

// quiet logs into the output of the spec.
func quiet() *zap.SugaredLogger {
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.AddSync(GinkgoWriter), zapcore.InfoLevel)).Sugar()
}

// run runs a Manager of the spec's own until its end, and waits until it is ready.
func run(ctx context.Context, m *eirinix.ExtensionManager) {
	GinkgoHelper()
	ended := make(chan error, 1)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() { ended <- m.Run(running) }()
	DeferCleanup(func() {
		stop()
		Eventually(ended, programs.Patience).Should(Receive(Succeed()))
	})
	Eventually(m.Ready(), programs.Patience).Should(BeClosed())
}

var _ = Describe("the example deploy", func() {
	var (
		apps, webhooks string
		address, port  string
	)

	BeforeEach(func(ctx SpecContext) {
		apps, webhooks = programs.Namespace(ctx, client), programs.Namespace(ctx, client)
		address, port = programs.FreeAddress()
		unregisterAfterwards("deploy-example")
		Expect(c.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: webhooks}}, crclient.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)))).To(Succeed())
	})

	run := func(flags ...string) *gexec.Session {
		GinkgoHelper()
		session := programs.Start(programs.Build("deploy"), append([]string{
			"manifests", "-image=registry.example.org/greeting:1.0", "-namespace=" + apps, "-service=greeter", "-webhook-namespace=" + webhooks, "-port=" + port,
		}, flags...)...)
		Eventually(session, programs.Patience).Should(gexec.Exit(0))
		return session
	}
	// printed are the objects that the program prints.
	printed := func(flags ...string) []crclient.Object { return printedBy(run(flags...)) }

	It("writes the objects that it prints as a kustomize base, and as a chart", func() {
		kinds, dir := map[string]bool{}, GinkgoT().TempDir()
		for _, object := range printed("-split") {
			kinds[strings.ToLower(object.GetObjectKind().GroupVersionKind().Kind)] = true
		}
		for flag, below := range map[string]string{"-kustomize": "", "-helm": "templates"} {
			for range 2 { // the second time over its own files
				Expect(run("-split", flag, filepath.Join(dir, flag)).Out.Contents()).To(BeEmpty())
			}
			for kind := range kinds {
				files := spectest.Must(filepath.Glob(filepath.Join(dir, flag, below, kind+"-*.yaml")))
				Expect(files).NotTo(BeEmpty(), kind)
			}
		}
		values := spectest.Must(os.ReadFile(filepath.Join(dir, "-helm", "values.yaml")))
		Expect(string(values)).To(And(ContainSubstring("\nnamespace: "+webhooks+"\n"), ContainSubstring("\n- -namespace="+apps+"\n"), Not(ContainSubstring("-helm"))))
	})

	It("runs with the manifests that it prints for two halves", func(ctx SpecContext) {
		objects := printed("-split")
		create(ctx, objects)
		serve := startPod("deploy", webhooks, podOf[*appsv1.Deployment](objects), "-listen", address)
		Eventually(func() string { return string(serve.Err.Contents()) }, programs.Patience).Should(ContainSubstring("waiting for the certificate Secret"))
		register := startPod("deploy", webhooks, podOf[*batchv1.Job](objects))
		Eventually(register, programs.Patience).Should(gexec.Exit(0))
		Eventually(programs.CreatePod, programs.Patience).WithArguments(ctx, client, apps).
			Should(HaveField("Labels", HaveKeyWithValue(greeting.Label, "true")))
		programs.StopsCleanly(serve)
	})
})

var _ = Describe("the example migrate", func() { // testing/drills has its migrations
	It("says so where the cluster does not serve the API", func() {
		older := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			kind := map[string]string{"/api": "APIVersions", "/apis": "APIGroupList"}[r.URL.Path]
			if kind == "" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"kind": %q, "apiVersion": "v1"}`, kind)
		}))
		DeferCleanup(older.Close)
		kubeconfig := spectest.WriteKubeconfig(GinkgoT().TempDir(), "older", older.URL, "default")
		session := programs.Start(programs.Build("migrate"), "-kubeconfig", kubeconfig, "-resource", "widgets.example.org")
		Eventually(session, programs.Patience).Should(gexec.Exit(1))
		Expect(string(session.Err.Contents())).To(And(ContainSubstring("it is older than Kubernetes 1.37"), ContainSubstring("\nremedy: write each object yourself")))
	})
})

// The output of preview must equal the effect on objects that a real API server sends, which the specs beside this one
// check. Here there is neither a cluster nor a kubeconfig.
var _ = Describe("An example without a cluster", func() {
	preview := func(example string, args ...string) *gexec.Session {
		GinkgoHelper()
		cmd := exec.Command(programs.Build(example), append([]string{"preview"}, args...)...)
		cmd.Env = []string{"HOME=" + GinkgoT().TempDir()}
		session := spectest.Must(gexec.Start(cmd, GinkgoWriter, GinkgoWriter))
		Eventually(session, programs.Patience).Should(gexec.Exit())
		return session
	}

	DescribeTable("shows its effect on manifests, by the command of the README", func(example string, shown ...string) {
		readme := spectest.Must(os.ReadFile("README.md"))
		text := string(readme)
		beginning := fmt.Sprintf("    go run ./examples/%s preview ", example)
		Expect(strings.Count(text, beginning)).To(Equal(1))
		_, rest, _ := strings.Cut(text, beginning)
		line, _, _ := strings.Cut(rest, "\n")
		var args []string
		for _, path := range strings.Fields(line) {
			args = append(args, strings.TrimPrefix(path, "examples/"))
		}
		session := preview(example, args...)
		Expect(session).To(gexec.Exit(0))
		for _, text := range shown {
			Expect(string(session.Out.Contents())).To(ContainSubstring(text))
		}
		Expect(session.Err.Contents()).To(BeEmpty())
	},
		Entry("sidecar", "sidecar", "+    - mountPath: /var/log/app", `its matchCondition "not-opted-out" is false`, "2 objects: 1 changed"),
		Entry("idle-image", "idle-image", "+      - image: empty-container:latest", "would write: create events", "+  publishNotReadyAddresses: true", "3 objects: 2 changed"),
		Entry("playbook", "playbook", "+spec:", "1 object: 1 changed"),
		Entry("policies", "policies", "+  automountServiceAccountToken: false", "2 objects: 1 changed"),
		Entry("agnhost", "agnhost", "create Widget in-stages", `+  mutation-stage-2: "yes"`, "5 objects: 3 changed"),
	)

	It("shows what a step says in view of objects that exist", func() {
		args := readmeOf("unique-host").command("go run ./examples/unique-host preview")
		for i := range args {
			args[i] = strings.TrimPrefix(args[i], "examples/")
		}
		session := preview("unique-host", args...)
		Expect(session).To(gexec.Exit(1))
		Expect(string(session.Out.Contents())).To(ContainSubstring("host shop.example.com belongs to Ingress default/shop"))
	})
})
