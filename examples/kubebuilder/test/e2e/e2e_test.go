// Package e2e runs the whole project as a process, with the rights of its ServiceAccount, against a real API server. It
// also compares the files of the project that a tool makes, and the page that quotes the project.
package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"code.cloudfoundry.org/eirinix/examples/internal/programs"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

func TestMain(m *testing.M) { os.Exit(eirinixtest.Main(m)) }

func TestE2E(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "The project of kubebuilder", Label("api-server"))
}

const (
	namespace      = "tutorial-system"
	serviceAccount = "tutorial-controller-manager"
)

var project = filepath.Join("..", "..")

var (
	plane *eirinixtest.ControlPlane
	c     client.Client
)

var _ = BeforeSuite(func(ctx SpecContext) {
	DeferCleanup(gexec.CleanupBuildArtifacts)
	plane = eirinixtest.StartControlPlane(GinkgoT(), eirinixtest.Shared)
	_, err := envtest.InstallCRDs(plane.Config(), envtest.CRDInstallOptions{Paths: []string{filepath.Join(project, "config", "crd", "bases")}, ErrorIfPathMissing: true})
	Expect(err).NotTo(HaveOccurred())
	c, err = client.New(plane.Config(), client.Options{})
	Expect(err).NotTo(HaveOccurred())
	Expect(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
	for _, role := range programs.ObjectsIn(filepath.Join(project, "config", "rbac", "webhook_role.yaml")) {
		Expect(c.Create(ctx, role)).To(Succeed())
	}
})

// created creates the only object of a file in config/samples, after a change.
func created(ctx context.Context, file string, change func(spec map[string]any)) (*unstructured.Unstructured, error) {
	GinkgoHelper()
	object := programs.ObjectsIn(filepath.Join(project, "config", "samples", file))[0]
	spec, _ := object.Object["spec"].(map[string]any)
	change(spec)
	return object, c.Create(ctx, object, client.DryRunAll)
}

// registered describes the webhooks in the program's configurations, without the one that a diagnosis is called by.
func registered(ctx context.Context) (found []string) {
	GinkgoHelper()
	hooks := kubernetes.NewForConfigOrDie(plane.Config()).AdmissionregistrationV1()
	mutating, err := hooks.MutatingWebhookConfigurations().Get(ctx, "tutorial-mutating-hook", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, w := range mutating.Webhooks {
		if strings.HasPrefix(w.Name, "eirinix-canary.") {
			continue
		}
		Expect(w.Rules).To(HaveLen(1))
		found = append(found, fmt.Sprint("mutating ", describe(w.Rules[0]), " ", *w.FailurePolicy, " ", *w.SideEffects, " ", *w.ReinvocationPolicy))
	}
	validating, err := hooks.ValidatingWebhookConfigurations().Get(ctx, "tutorial-validating-hook", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, w := range validating.Webhooks {
		Expect(w.Rules).To(HaveLen(1))
		found = append(found, fmt.Sprint("validating ", describe(w.Rules[0]), " ", *w.FailurePolicy, " ", *w.SideEffects))
	}
	return found
}

func describe(r admissionregistrationv1.RuleWithOperations) string {
	return fmt.Sprintf("%s.%s/%s %s", strings.Join(r.Resources, ","), strings.Join(r.APIGroups, ","), strings.Join(r.APIVersions, ","), r.Operations)
}

func unchanged(map[string]any) {}

var _ = Describe("The program", func() {
	It("has its seven webhooks called, with no more rights than it prints", func(ctx SpecContext) {
		line := regexp.MustCompile(`(?m)^    go run ./examples/kubebuilder/cmd (--webhook-host.*)$`).FindStringSubmatch(text(project, "README.md"))
		Expect(line).NotTo(BeNil(), "README.md says how to run the program")
		args := append(strings.Fields(line[1]), "--health-probe-bind-address=0")
		program := programs.StartWith(programs.AsServiceAccount(plane.Kubeconfig(), namespace, serviceAccount), programs.Build("kubebuilder/cmd"), args...)

		By("defaulting")
		Eventually(func(g Gomega) {
			cronJob, err := created(ctx, "batch_v1_cronjob.yaml", unchanged)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(cronJob.Object["spec"]).To(HaveKeyWithValue("concurrencyPolicy", "Allow"))
			destroyer, err := created(ctx, "ship_v1_destroyer.yaml", unchanged)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(destroyer.Object["spec"]).To(HaveKeyWithValue("class", "destroyer-sample"))
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example/web"}}},
			}
			g.Expect(c.Create(ctx, pod, client.DryRunAll)).To(Succeed())
			g.Expect(pod.Spec.Containers[0].TerminationMessagePolicy).To(Equal(corev1.TerminationMessageFallbackToLogsOnError))
		}, programs.Patience).Should(Succeed())

		By("validating")
		Eventually(func(g Gomega) {
			_, err := created(ctx, "batch_v1_cronjob.yaml", func(spec map[string]any) { spec["schedule"] = "daily" })
			g.Expect(err).To(Satisfy(apierrors.IsInvalid))
			_, err = created(ctx, "crew_v1_captain.yaml", func(spec map[string]any) { spec["rank"] = int64(11) })
			g.Expect(err).To(MatchError(ContainSubstring("rank 11 does not exist")))
			_, err = created(ctx, "ship_v1_frigate.yaml", func(spec map[string]any) { spec["sails"] = int64(16) })
			g.Expect(err).To(Satisfy(apierrors.IsInvalid))
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}
			deployment.Spec.Selector = metav1.SetAsLabelSelector(map[string]string{"app": "web"})
			deployment.Spec.Template.Labels = map[string]string{"app": "web"}
			deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "example/web"}}
			g.Expect(c.Create(ctx, deployment, client.DryRunAll)).To(MatchError(ContainSubstring("the label tutorial.example/team is missing")))
		}, programs.Patience).Should(Succeed())

		By("registering the settings that the markers had")
		Expect(registered(ctx)).To(ConsistOf(
			"mutating cronjobs.batch.tutorial.example/v1 [CREATE UPDATE] Fail None Never",
			"mutating destroyers.ship.tutorial.example/v1 [CREATE UPDATE] Fail None Never",
			"mutating pods./v1 [CREATE] Ignore None IfNeeded",
			"validating cronjobs.batch.tutorial.example/v1 [CREATE UPDATE] Fail None",
			"validating captains.crew.tutorial.example/v1 [CREATE UPDATE DELETE] Fail None",
			"validating frigates.ship.tutorial.example/v1 [CREATE UPDATE] Fail None",
			"validating deployments.apps/v1 [CREATE UPDATE] Fail None",
		))

		By("admitting the samples")
		for _, file := range []string{"batch_v1_cronjob.yaml", "crew_v1_captain.yaml", "ship_v1_destroyer.yaml", "ship_v1_frigate.yaml"} {
			_, err := created(ctx, file, unchanged)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(string(program.Err.Contents())).NotTo(ContainSubstring("forbidden"))
		programs.StopsCleanly(program)
	})
})

func text(path ...string) string {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(path...))
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}

var _ = Describe("The project", func() {
	It("has the rights in config/rbac that the program prints", func() {
		session := programs.Start(programs.Build("kubebuilder/cmd"), "--print-rights")
		Eventually(session, programs.Patience).Should(gexec.Exit(0))
		Expect(string(session.Out.Contents())).To(Equal(text(project, "config", "rbac", "webhook_role.yaml")),
			"run go run ./cmd --print-rights > config/rbac/webhook_role.yaml")
	})

	It("has its generated files as the generator makes them", func(ctx SpecContext) {
		programs.ExpectGenerated(ctx, project, "cmd/main.go",
			"api/batch/v1/zz_generated.deepcopy.go", "api/crew/v1/zz_generated.deepcopy.go", "api/ship/v1/zz_generated.deepcopy.go",
			"config/crd/bases/batch.tutorial.example_cronjobs.yaml", "config/crd/bases/crew.tutorial.example_captains.yaml",
			"config/crd/bases/ship.tutorial.example_destroyers.yaml", "config/crd/bases/ship.tutorial.example_frigates.yaml")
	})
})
