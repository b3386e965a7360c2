package diagnose_test

// The Service that the API server calls, its port, and the pods behind it.

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

func clusterIP(port, targetPort int32) corev1.ServiceSpec {
	return corev1.ServiceSpec{
		Selector: map[string]string{"app": "hooks"},
		Ports:    []corev1.ServicePort{{Name: "https", Port: port, TargetPort: intstr.FromInt32(targetPort)}},
	}
}

// endpoints puts one endpoint behind the Service. Its address is one for documentation, which is never called.
func endpoints(ctx context.Context, namespace, service string, port int32, ready bool) {
	GinkgoHelper()
	must(admin().DiscoveryV1().EndpointSlices(namespace).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{GenerateName: service + "-", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("https"), Port: new(port), Protocol: new(corev1.ProtocolTCP)}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: new(ready)}}},
	}, metav1.CreateOptions{}))
}

var _ = Describe("A diagnosis of the Service", Label("api-server"), func() {
	It("warns of pods of the program that may lack its label", func(ctx SpecContext) {
		d := newDeployment(ctx) // which is called for the pods of its own namespace
		d.behind(ctx, clusterIP(443, 8443))
		d.register(ctx)
		Expect(codes(d.run(ctx))).NotTo(ContainElement(diagnosis.BlocksItself), "those with the label")
		services := admin().CoreV1().Services(d.Canary.Namespace)
		s := must(services.Get(ctx, "hooks", metav1.GetOptions{}))
		delete(s.Spec.Selector, webhookconf.FingerprintLabel)
		must(services.Update(ctx, s, metav1.UpdateOptions{}))
		r := d.run(ctx)
		found, ok := r.Find(diagnosis.BlocksItself)
		Expect(ok).To(BeTrue())
		Expect(found.Severity).To(Equal(diagnosis.Warning))
		Expect(found.Remedy).To(ContainSubstring("the label " + webhookconf.FingerprintLabel + "=" + d.Canary.Namespace))
	}, SpecTimeout(patience))

	// withoutCanary keeps the API server from dialing addresses that this machine has no use for.
	withoutCanary := func(d *deployment) *deployment {
		d.Canary, d.Entries = diagnose.Canary{}, d.Entries[:1]
		return d
	}

	It("reports that there is none", func(ctx SpecContext) {
		d := newDeployment(ctx)
		d.inServiceMode()
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.ServiceMissing,
			"Service "+d.Canary.Namespace+"/hooks, which the API server calls, does not exist", `service "hooks" not found`))
		Expect(codes(d.run(ctx))).NotTo(ContainElement(diagnosis.Shadowed), "our own webhook is no other program's")
		Expect(withoutCanary(d).run(ctx)).To(haveOneProblem(diagnosis.ServiceMissing), "seen from here as well")
	}, SpecTimeout(patience))

	It("reports that it is of the wrong kind", func(ctx SpecContext) {
		d := newDeployment(ctx)
		spec := clusterIP(443, 8443)
		spec.ClusterIP = corev1.ClusterIPNone
		d.behind(ctx, spec)
		d.Options.Target.Port = 443
		endpoints(ctx, d.Canary.Namespace, "hooks", 8443, true)
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.ServiceUnusable, `cannot route to service with ClusterIP "None"`))
	}, SpecTimeout(patience))

	It("reports that it has no such port", func(ctx SpecContext) {
		d := newDeployment(ctx)
		d.behind(ctx, clusterIP(8443, 8443))
		d.Options.Target.Port = 443
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.PortMismatch, "does not have the registered port 443", "one that it has (8443)", "no service port 443 found"))
		Expect(withoutCanary(d).run(ctx)).To(haveOneProblem(diagnosis.PortMismatch))
	}, SpecTimeout(patience))

	Describe("that API servers resolve themselves", Ordered, func() {
		var resolving *eirinixtest.APIServer
		BeforeAll(func(ctx SpecContext) {
			resolving = must(controlPlane.AddAPIServer(ctx, "--enable-aggregator-routing=true"))
			DeferCleanup(resolving.Stop)
		}, NodeTimeout(3*patience)) // it starts

		It("reports that no pod stands behind it", func(ctx SpecContext) {
			d := newDeployment(ctx)
			d.behind(ctx, clusterIP(443, 8443))
			d.Options.Target.Port, d.Clients = 443, clientsFor(resolving.Config())
			d.register(ctx)
			Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NoReadyEndpoints,
				"its selector app=hooks,", "no endpoints available for service"))
		}, SpecTimeout(3*patience))

		It("reports that its pods are not ready", func(ctx SpecContext) {
			d := newDeployment(ctx)
			d.behind(ctx, clusterIP(443, 8443))
			d.Options.Target.Port, d.Clients = 443, clientsFor(resolving.Config())
			endpoints(ctx, d.Canary.Namespace, "hooks", 8443, false)
			d.register(ctx)
			Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NoReadyEndpoints, "(not ready: 1)", "kubectl describe pods"))
			Expect(withoutCanary(d).run(ctx)).To(haveOneProblem(diagnosis.NoReadyEndpoints))
		}, SpecTimeout(3*patience))

		It("reports that it is of a kind that they cannot resolve", func(ctx SpecContext) {
			d := newDeployment(ctx)
			d.behind(ctx, toLoopback())
			d.Clients = clientsFor(resolving.Config())
			d.register(ctx)
			Expect(d.run(ctx)).To(haveOneProblem(diagnosis.ServiceUnusable, "unsupported service type"))
		}, SpecTimeout(3*patience))
	})
})

// An API server that runs on loopback alone never calls an endpoint, so these specs judge a symptom that is given to them.
var _ = DescribeTable("A Service that sends calls to a port of its pods",
	func(targetPort intstr.IntOrString, endpointPort int32, listen string, symptom diagnosis.Code, mismatch bool, open int32) {
		service := &corev1.Service{Spec: clusterIP(443, 0)}
		service.Spec.Ports[0].TargetPort = targetPort
		var slices []discoveryv1.EndpointSlice
		if endpointPort != 0 {
			slices = []discoveryv1.EndpointSlice{{
				Ports:     []discoveryv1.EndpointPort{{Name: new("metrics"), Port: new(int32(1))}, {Name: new("https"), Port: &endpointPort}},
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
			}}
		}
		target := webhookconf.Target{Service: "hooks", Namespace: "cf", Port: 443}
		findings, openPort := diagnose.JudgePorts(diagnose.Config{Options: webhookconf.Options{Target: target}, Listen: listen},
			service, slices, diagnosis.Finding{Code: symptom, Severity: diagnosis.Problem, Object: target.String()})
		Expect(openPort).To(Equal(open))
		if !mismatch {
			Expect(findings).To(BeEmpty())
			return
		}
		Expect(diagnosis.Report{Findings: findings}).To(haveOneProblem(diagnosis.PortMismatch,
			"set the targetPort of Service cf/hooks to 8443", "arrive at port "+itoa(open)))
	},
	Entry("the one that is listened on", intstr.FromInt32(8443), int32(0), "0.0.0.0:8443", diagnosis.ConnectionRefused, false, int32(8443)),
	Entry("another one", intstr.FromInt32(9443), int32(0), "0.0.0.0:8443", diagnosis.ConnectionRefused, true, int32(9443)),
	Entry("another one, which timed out", intstr.FromInt32(9443), int32(0), "0.0.0.0:8443", diagnosis.TimedOut, true, int32(9443)),
	Entry("another one by name", intstr.FromString("https"), int32(9443), "0.0.0.0:8443", diagnosis.ConnectionRefused, true, int32(9443)),
	Entry("one by name that no endpoint has", intstr.FromString("https"), int32(0), "0.0.0.0:8443", diagnosis.ConnectionRefused, false, int32(8443)),
	Entry("the port of the endpoints before that of the Service", intstr.FromInt32(9443), int32(8443), "0.0.0.0:8443", diagnosis.ConnectionRefused, false, int32(8443)),
	Entry("another one that is no reason", intstr.FromInt32(9443), int32(0), "0.0.0.0:8443", diagnosis.Shadowed, false, int32(9443)),
	Entry("where nothing is served here", intstr.FromInt32(9443), int32(0), "", diagnosis.ConnectionRefused, false, int32(9443)),
)
