package drills_test

// This file holds the program of the drills, with its Service and the endpoints that a cluster would list.

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/diagnosis"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

const (
	serviceName = "hooks"
	portName    = "webhook"
	podPort     = 8443

	// withinSeconds is the time in which a diagnosis names cause and remedy.
	withinSeconds = 10
)

// program is a program that sets the memory limit of pods, behind a Service.
type program struct {
	name, objects string // its namespace and fingerprint, and the namespace of the pods that it is called for
	address       string
	settings      eirinix.Settings
	limit         string
	registers     bool

	slice *discoveryv1.EndpointSlice
	stop  func()
}

// addresses is the number of addresses that were handed out. Specs follow one another.
var addresses int

// newProgram makes the Service of a program. The API server calls a program in the order of its name.
func newProgram(ctx context.Context, prefix string) *program {
	GinkgoHelper()
	addresses++
	p := &program{limit: "128Mi", registers: true, address: fmt.Sprintf("10.88.0.%d", 10+addresses)}
	namespace := Must(admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}, metav1.CreateOptions{}))
	p.name, p.objects = namespace.Name, NewNamespace(ctx, admin, nil).Name
	Must(admin.CoreV1().Services(p.name).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName},
		Spec: corev1.ServiceSpec{
			Selector: p.labels(),
			Ports:    []corev1.ServicePort{{Name: portName, Port: 443, TargetPort: intstr.FromInt32(podPort)}},
		},
	}, metav1.CreateOptions{}))
	p.slice = Must(admin.DiscoveryV1().EndpointSlices(p.name).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: serviceName, Labels: map[string]string{discoveryv1.LabelServiceName: serviceName}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(portName), Port: new(int32(podPort)), Protocol: new(corev1.ProtocolTCP)}},
	}, metav1.CreateOptions{}))
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
		Namespace: p.objects, OperatorFingerprint: p.name, ServiceName: serviceName, WebhookNamespace: p.name,
		Port: 443, ListenAddress: fmt.Sprintf("%s:%d", p.address, podPort), RestConfig: config, RegisterWebHook: &registers,
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
	m, done := p.manager(p.registers), make(chan error, 1)
	if !p.registers { // the other half of the deployment
		Expect(p.manager(true).RegisterExtensions()).To(Succeed())
	}
	go func() { done <- m.Run(context.WithoutCancel(ctx)) }()
	stopped := false
	p.stop = func() {
		GinkgoHelper()
		if !stopped {
			stopped = true
			m.Stop()
			Eventually(done).Should(Receive(BeNil()))
		}
	}
	DeferCleanup(func() { p.stop() })
	Eventually(m.Ready()).WithContext(ctx).Should(BeClosed())
	p.list(ctx, p.address)
	p.expectLimit(ctx, p.limit)
	return m
}

// list writes the endpoints of the Service, as a cluster does when pods become ready or end.
func (p *program) list(ctx context.Context, addresses ...string) {
	GinkgoHelper()
	p.slice.Endpoints = nil
	for _, a := range addresses {
		p.slice.Endpoints = append(p.slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	p.slice = Must(admin.DiscoveryV1().EndpointSlices(p.name).Update(ctx, p.slice, metav1.UpdateOptions{}))
}

// create asks for a pod that the program is called for, and returns its memory limit.
func (p *program) create(ctx context.Context) (string, error) {
	pod, err := admin.CoreV1().Pods(p.objects).Create(ctx, newPod(nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return "", err
	}
	return pod.Spec.Containers[0].Resources.Limits.Memory().String(), nil
}

// restart asks for a pod of the program itself, as its Deployment would.
func (p *program) restart(ctx context.Context, labels map[string]string) error {
	_, err := admin.CoreV1().Pods(p.name).Create(ctx, newPod(labels), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func newPod(labels map[string]string) *corev1.Pod {
	pod := NewPod("", nil)
	pod.GenerateName, pod.Labels = "drill-", labels
	return pod
}

func (p *program) expectLimit(ctx context.Context, limit string) {
	GinkgoHelper()
	Eventually(func() (string, error) { return p.create(ctx) }).WithContext(ctx).Should(Equal(limit))
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

// diagnose returns the finding with the code. A diagnosis that has not ended after ten seconds fails the spec.
func diagnose(ctx context.Context, m *eirinix.ExtensionManager, code diagnosis.Code) diagnosis.Finding {
	GinkgoHelper()
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, withinSeconds*time.Second)
	defer cancel()
	report := m.Diagnose(limited)
	Expect(limited.Err()).NotTo(HaveOccurred(), "after %d s it says only: %s", withinSeconds, report)
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
