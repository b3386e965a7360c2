package drills_test

// This file holds the program of the drills, and the API server that calls it.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/diagnosis"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/testing/internal/load"
	"code.cloudfoundry.org/eirinix/testing/internal/netns"
)

const patience = load.Patience

func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }

func TestDrills(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	RunSpecs(t, "Drills", Label(APIServer))
}

var (
	config   *rest.Config
	admin    kubernetes.Interface
	auditLog string // its path: it names the webhooks that changed a pod
)

var _ = BeforeSuite(func(ctx SpecContext) {
	folder := Must(os.MkdirTemp("", "drills-"))
	DeferCleanup(os.RemoveAll, folder)
	auditLog = filepath.Join(folder, "audit.log")
	policy := filepath.Join(folder, "policy.yaml")
	Expect(os.WriteFile(policy, []byte(`{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
		{"level": "Metadata", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods"]}]},
		{"level": "None"}
	]}`), 0o600)).To(Succeed())
	plane := load.NewControlPlane(ctx, "--audit-policy-file="+policy, "--audit-log-path="+auditLog, "--enable-aggregator-routing=true")
	config, admin = plane.Config(), Clients(plane.Config())
	defineLedgers(ctx) // first: the garbage collector looks for new kinds only each 30 s
	Expect(plane.StartControllerManager(ctx)).To(Succeed())
})

// changedBy returns the webhook configurations that changed pods of the namespace.
func changedBy(namespace string) (configurations []string) {
	GinkgoHelper()
	for line := range bytes.Lines(Must(os.ReadFile(auditLog))) {
		var event struct {
			ObjectRef   struct{ Namespace string }
			Annotations map[string]string
		}
		if json.Unmarshal(line, &event) != nil || event.ObjectRef.Namespace != namespace {
			continue // the last line may not be complete
		}
		for key, value := range event.Annotations {
			var m struct {
				Configuration string
				Mutated       bool
			}
			if strings.HasPrefix(key, "mutation.webhook.admission.k8s.io/") && json.Unmarshal([]byte(value), &m) == nil && m.Mutated {
				configurations = append(configurations, m.Configuration)
			}
		}
	}
	return configurations
}

// program is a program that sets the memory limit of pods, behind a Service.
type program struct {
	name, objects string // its namespace and fingerprint, and the namespace of the pods that it is called for
	endpoint      string
	settings      eirinix.Settings
	limit         string
	registers     bool
	service       *load.Service
	replica       *load.Replica
}

func newProgram(ctx context.Context, prefix string) *program {
	GinkgoHelper()
	p := &program{limit: "128Mi", registers: true, endpoint: load.NewEndpoint()}
	namespace := Must(admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}, metav1.CreateOptions{}))
	p.name, p.objects = namespace.Name, NewNamespace(ctx, admin, nil).Name
	p.service = load.NewService(ctx, admin, p.name, p.labels())
	DeferCleanup(func(ctx context.Context) error {
		hooks := admin.AdmissionregistrationV1().MutatingWebhookConfigurations()
		return client.IgnoreNotFound(hooks.Delete(ctx, p.configuration(), metav1.DeleteOptions{}))
	})
	return p
}

func (p *program) configuration() string { return p.name + "-mutating-hook" }

// labels are those that Manifests gives the program's pods.
func (p *program) labels() map[string]string {
	return map[string]string{"eirinix.cloudfoundry.org/fingerprint": p.name}
}

// manager returns a Manager of the program, which does not run.
func (p *program) manager(registers bool) *eirinix.ExtensionManager {
	GinkgoHelper()
	m := eirinix.NewManager(eirinix.ManagerOptions{
		Namespace: p.objects, OperatorFingerprint: p.name, ServiceName: load.ServiceName, WebhookNamespace: p.name,
		Port: load.ServicePort, ListenAddress: p.endpoint, RestConfig: config, RegisterWebHook: &registers,
		Logger: zap.New(Log()).Named(p.name).Sugar(), DrainDelay: -time.Second,
	})
	Expect(m.AddExtension(eirinix.Mutation[*corev1.Pod]{
		ID: "limits", Settings: p.settings,
		Apply: func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
			for i := range pod.Spec.Containers {
				memory := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(p.limit)}
				// The API server sets requests that are missing to the limits, between webhooks.
				pod.Spec.Containers[i].Resources = corev1.ResourceRequirements{Limits: memory, Requests: memory}
			}
			return nil
		},
	})).To(Succeed())
	return m
}

// run starts a replica, and lists it as ready.
func (p *program) run(ctx context.Context) *eirinix.ExtensionManager {
	GinkgoHelper()
	if !p.registers { // the other half of the deployment
		Expect(p.manager(true).RegisterExtensions()).To(Succeed())
	}
	p.replica = load.Start(ctx, p.name, p.manager(p.registers))
	DeferCleanup(load.ExpectEnd, p.replica)
	DeferCleanup(p.replica.Stop)
	p.service.List(ctx, []string{p.endpoint})
	p.expectLimit(ctx)
	return p.replica.ExtensionManager
}

// stop ends the replica, and with it all endpoints.
func (p *program) stop(ctx context.Context) {
	GinkgoHelper()
	p.replica.Stop()
	load.ExpectEnd(ctx, p.replica)
	p.service.List(ctx, nil)
}

// create asks for a pod that the program is called for, and returns its memory limit.
func (p *program) create(ctx context.Context) (string, error) {
	pod, err := admin.CoreV1().Pods(p.objects).Create(ctx, newPod(nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return "", err
	}
	return pod.Spec.Containers[0].Resources.Limits.Memory().String(), nil
}

// failure is the error of create.
func (p *program) failure(ctx context.Context) error {
	_, err := p.create(ctx)
	return err
}

// restart asks for a pod of the program itself, as its Deployment would.
func (p *program) restart(ctx context.Context) error {
	_, err := admin.CoreV1().Pods(p.name).Create(ctx, newPod(p.labels()), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func newPod(labels map[string]string) *corev1.Pod {
	pod := NewPod("", nil)
	pod.GenerateName, pod.Labels = "drill-", labels
	return pod
}

func (p *program) expectLimit(ctx context.Context) {
	GinkgoHelper()
	Eventually(p.create).WithArguments(ctx).WithContext(ctx).Should(Equal(p.limit))
}

// expectBlocked waits until the program's own pods are refused, because a webhook is called that has no endpoint.
func (p *program) expectBlocked(ctx context.Context) {
	GinkgoHelper()
	Eventually(p.restart).WithArguments(ctx).WithContext(ctx).Should(MatchError(ContainSubstring("no endpoints available")))
}

// expectRestart waits until they are admitted.
func (p *program) expectRestart(ctx context.Context) {
	GinkgoHelper()
	Eventually(p.restart).WithArguments(ctx).WithContext(ctx).Should(Succeed())
}

// edit changes the webhooks of the program as another tool would.
func (p *program) edit(ctx context.Context, change func(*admissionregistrationv1.MutatingWebhook)) {
	GinkgoHelper()
	hooks := admin.AdmissionregistrationV1().MutatingWebhookConfigurations()
	c := Must(hooks.Get(ctx, p.configuration(), metav1.GetOptions{}))
	for i := range c.Webhooks {
		if w := &c.Webhooks[i]; w.Name != "eirinix-canary."+p.name+".eirinix.cloudfoundry.org" {
			change(w)
		}
	}
	Must(hooks.Update(ctx, c, metav1.UpdateOptions{FieldManager: "gitops"}))
}

// diagnose returns the finding with the code.
func diagnose(ctx context.Context, m *eirinix.ExtensionManager, code diagnosis.Code) diagnosis.Finding {
	GinkgoHelper()
	began := time.Now()
	report := m.Diagnose(ctx)
	found, ok := report.Find(code)
	Expect(ok).To(BeTrue(), "%s", report)
	AddReportEntry("diagnosis", fmt.Sprintf("%s after %s", found.Error(), time.Since(began).Round(time.Millisecond)))
	return found
}

// expectWell expects that the fault is gone.
func expectWell(ctx context.Context, m *eirinix.ExtensionManager, code diagnosis.Code) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		report := m.Diagnose(ctx)
		g.Expect(report.Err()).NotTo(HaveOccurred())
		_, still := report.Find(code)
		g.Expect(still).To(BeFalse(), "%s", report)
	}).WithContext(ctx).Should(Succeed())
}
