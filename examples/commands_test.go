package examples_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/examples/hello/greeting"
	"code.cloudfoundry.org/eirinix/examples/internal/programs"
	"code.cloudfoundry.org/eirinix/internal/spectest"
)

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

	greets := func(g Gomega, ctx SpecContext) {
		pod, err := programs.CreatePod(ctx, client, apps)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pod.Labels).To(HaveKeyWithValue(greeting.Label, "true"))
	}

	It("runs with the manifests that it prints", func(ctx SpecContext) {
		objects := printed()
		create(ctx, objects)
		serve := startPod("deploy", webhooks, podOf[*appsv1.Deployment](objects), "-listen", address)
		Eventually(greets, programs.Patience).WithContext(ctx).Should(Succeed())
		programs.StopsCleanly(serve)
	})

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
				files, err := filepath.Glob(filepath.Join(dir, flag, below, kind+"-*.yaml"))
				Expect(err).NotTo(HaveOccurred())
				Expect(files).NotTo(BeEmpty(), kind)
			}
		}
		values, err := os.ReadFile(filepath.Join(dir, "-helm", "values.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(values)).To(And(ContainSubstring("\nnamespace: "+webhooks+"\n"), ContainSubstring("\n- -namespace="+apps+"\n"), Not(ContainSubstring("-helm"))))
	})

	It("runs with the manifests that it prints for two halves", func(ctx SpecContext) {
		objects := printed("-split")
		create(ctx, objects)
		serve := startPod("deploy", webhooks, podOf[*appsv1.Deployment](objects), "-listen", address)
		Eventually(func() string { return string(serve.Err.Contents()) }, programs.Patience).Should(ContainSubstring("waiting for the certificate Secret"))
		register := startPod("deploy", webhooks, podOf[*batchv1.Job](objects))
		Eventually(register, programs.Patience).Should(gexec.Exit(0))
		Eventually(greets, programs.Patience).WithContext(ctx).Should(Succeed())
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
		session, err := gexec.Start(cmd, GinkgoWriter, GinkgoWriter)
		Expect(err).NotTo(HaveOccurred())
		Eventually(session, programs.Patience).Should(gexec.Exit())
		return session
	}

	DescribeTable("shows its effect on manifests, by the command of the README", func(example string, shown ...string) {
		readme, err := os.ReadFile("README.md")
		Expect(err).NotTo(HaveOccurred())
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
