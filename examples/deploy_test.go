package examples_test

import (
	"os"
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
