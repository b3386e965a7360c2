package balancing_test

// This file holds the program under test: its replicas, its Service, and the EndpointSlice that lists the replicas.

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"go.uber.org/zap"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

const (
	serviceName = "replicas"
	portName    = "webhook"
	servicePort = 443
	podPort     = 8443

	// answeredBy is the label that a replica puts on a pod. Its value is the replica's name.
	answeredBy = "answered-by"
)

// The networks of pods and Services. The control plane takes cluster IPs from the second.
const (
	podNetwork     = "10.88.0.1/16" // with the address that connections come from
	serviceNetwork = "10.96.0.1/16"
)

// program runs in several replicas behind a Service.
type program struct {
	server    *apiServer
	namespace string        // of the Service and the Secret, and the fingerprint
	objects   string        // the namespace whose pods are labelled
	drain     time.Duration // the DrainDelay of replicas; 0 for the default
	slice     *discoveryv1.EndpointSlice
	replicas  []*replica // that are listed as ready
	all       []*replica // that were started
}

// replica is one Manager, at an address of its own.
type replica struct {
	*eirinix.ExtensionManager
	name    string
	address string
	done    chan struct{} // closed when Run has returned
	err     error         // that Run returned
}

func (r *replica) endpoint() string { return endpointAt(r.address) }

func endpointAt(address string) string { return net.JoinHostPort(address, fmt.Sprint(podPort)) }

// deploy starts a program that one API server calls.
func deploy(ctx context.Context, server *apiServer, replicas int, drain time.Duration) *program {
	GinkgoHelper()
	p := &program{server: server, drain: drain}
	p.namespace = NewNamespace(ctx, server, nil).Name
	p.objects = NewNamespace(ctx, server, nil).Name
	service := Must(server.CoreV1().Services(p.namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{
			Name: portName, Port: servicePort, TargetPort: intstr.FromInt32(podPort),
		}}},
	}, metav1.CreateOptions{}))
	p.slice = Must(server.DiscoveryV1().EndpointSlices(p.namespace).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: serviceName, Labels: map[string]string{discoveryv1.LabelServiceName: serviceName}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(portName), Port: new(int32(podPort)), Protocol: new(corev1.ProtocolTCP)}},
	}, metav1.CreateOptions{}))
	if !server.routes {
		serveClusterIP(ctx, server, p.namespace, service.Spec.ClusterIP)
	}
	DeferCleanup(func(ctx context.Context) { // each replica has been told to stop
		for _, r := range p.all {
			Eventually(r.done).WithContext(ctx).Should(BeClosed(), r.name)
		}
		hooks := server.AdmissionregistrationV1().MutatingWebhookConfigurations()
		Expect(client.IgnoreNotFound(hooks.Delete(ctx, p.namespace+"-mutating-hook", metav1.DeleteOptions{}))).To(Succeed())
	})
	for range replicas {
		p.join(ctx, p.start(ctx, nextAddress()))
	}
	Eventually(func() error {
		_, err := p.admitted(ctx)
		return err
	}).WithContext(ctx).Should(Succeed(), "the API server acts on the configuration")
	return p
}

// addresses is the number of addresses that were handed out. Specs follow one another.
var addresses int

// nextAddress returns an address that no program has had.
func nextAddress() string {
	GinkgoHelper()
	addresses++
	ip, _, err := net.ParseCIDR(podNetwork)
	Expect(err).NotTo(HaveOccurred())
	ip = ip.To4()
	return net.IPv4(ip[0], ip[1], byte(1+addresses/250), byte(1+addresses%250)).String()
}

// start runs one more replica at an address, and waits until it is ready.
func (p *program) start(ctx context.Context, address string) *replica {
	GinkgoHelper()
	r := &replica{name: fmt.Sprintf("replica-%d", len(p.all)+1), address: address, done: make(chan struct{})}
	p.all = append(p.all, r)
	r.ExtensionManager = eirinix.NewManager(eirinix.ManagerOptions{
		Namespace:           p.objects,
		OperatorFingerprint: p.namespace,
		ServiceName:         serviceName,
		WebhookNamespace:    p.namespace,
		Port:                servicePort,
		ListenAddress:       r.endpoint(),
		RestConfig:          p.server.Config(),
		Logger:              zap.New(Log()).Named(r.name).Sugar(),
		DrainDelay:          p.drain,
	})
	Expect(r.AddExtension(eirinix.Mutation[*corev1.Pod]{
		ID: "label", Settings: eirinix.Settings{Timeout: 10 * time.Second}, // the speed of the machine is not the question
		Apply: func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, answeredBy, r.name)
			return nil
		},
	})).To(Succeed())
	go func() {
		defer close(r.done)
		r.err = r.Run(context.WithoutCancel(ctx))
	}()
	DeferCleanup(r.Stop)
	Eventually(func() error {
		select {
		case <-r.Ready():
			return nil
		case <-r.done:
			return StopTrying(fmt.Sprintf("Run returned before Ready: %v", r.err))
		default:
			return fmt.Errorf("not ready")
		}
	}).WithContext(ctx).Should(Succeed())
	return r
}

// join lists a replica as ready.
func (p *program) join(ctx context.Context, r *replica) {
	GinkgoHelper()
	p.replicas = append(p.replicas, r)
	p.list(ctx, func(endpoints []discoveryv1.Endpoint) []discoveryv1.Endpoint {
		return append(endpoints, discoveryv1.Endpoint{
			Addresses:  []string{r.address},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		})
	})
}

// dismiss begins the end of a replica as a cluster does: the replica is listed as terminating, and its process is asked
// to stop. Neither waits for the effect of the other.
func (p *program) dismiss(ctx context.Context, r *replica) {
	GinkgoHelper()
	p.replicas = slices.DeleteFunc(p.replicas, func(other *replica) bool { return other == r })
	p.list(ctx, func(endpoints []discoveryv1.Endpoint) []discoveryv1.Endpoint {
		for n := range endpoints {
			if endpoints[n].Addresses[0] == r.address {
				endpoints[n].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
			}
		}
		return endpoints
	})
	r.Stop()
}

// bury waits for the end of a replica, and removes it from the list.
func (p *program) bury(ctx context.Context, r *replica) {
	GinkgoHelper()
	r.expectEnd(ctx)
	p.list(ctx, func(endpoints []discoveryv1.Endpoint) []discoveryv1.Endpoint {
		return slices.DeleteFunc(endpoints, func(e discoveryv1.Endpoint) bool { return e.Addresses[0] == r.address })
	})
}

// expectEnd waits until a replica that was told to stop has ended cleanly.
func (r *replica) expectEnd(ctx context.Context) {
	GinkgoHelper()
	Eventually(r.done).WithContext(ctx).Should(BeClosed(), r.name)
	Expect(r.err).NotTo(HaveOccurred(), r.name)
}

// list writes the endpoints.
func (p *program) list(ctx context.Context, change func([]discoveryv1.Endpoint) []discoveryv1.Endpoint) {
	GinkgoHelper()
	p.slice.Endpoints = change(p.slice.Endpoints)
	p.slice = Must(p.server.DiscoveryV1().EndpointSlices(p.namespace).Update(ctx, p.slice, metav1.UpdateOptions{}))
}

// admitted has one pod admitted, and returns the name of the replica that labelled it.
func (p *program) admitted(ctx context.Context) (string, error) {
	pod := NewPod("", nil)
	pod.GenerateName = "load-"
	pod, err := p.server.CoreV1().Pods(p.objects).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return "", err
	}
	name := pod.Labels[answeredBy]
	if name == "" {
		return "", fmt.Errorf("admitted without the label")
	}
	return name, nil
}
