package load

// This file makes Services, and the control plane that calls them.

import (
	"context"
	"fmt"
	"net"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
	"code.cloudfoundry.org/eirinix/testing/internal/netns"
)

// The Service of each program, in its namespace.
const (
	ServiceName = "replicas"
	ServicePort = 443
)

// The networks of pods and Services, with the addresses that connections come from. The control plane takes cluster IPs
// from the second.
const (
	podNetwork     = "10.88.0.1/16"
	serviceNetwork = "10.96.0.1/16"
	podPort        = 8443
)

// NewControlPlane starts one in a network namespace, where programs can listen on the addresses of pods, until the suite
// ends. TestMain of the package must call netns.Main.
func NewControlPlane(ctx context.Context, args ...string) *eirinixtest.ControlPlane {
	GinkgoHelper()
	netns.SetUp(podNetwork, serviceNetwork)
	plane := Must(eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{Progress: GinkgoWriter, APIServerArgs: args}))
	DeferCleanup(plane.Stop)
	return plane
}

// Service is a Service, and the EndpointSlice that a cluster would keep for it.
type Service struct {
	clients   kubernetes.Interface
	ClusterIP string
	slice     *discoveryv1.EndpointSlice
}

// NewService makes a Service for pods that have these labels.
func NewService(ctx context.Context, clients kubernetes.Interface, namespace string, selector map[string]string) *Service {
	GinkgoHelper()
	const portName = "webhook"
	service := Must(clients.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: ServiceName},
		Spec: corev1.ServiceSpec{
			Selector: selector,
			Ports:    []corev1.ServicePort{{Name: portName, Port: ServicePort, TargetPort: intstr.FromInt32(podPort)}},
		},
	}, metav1.CreateOptions{}))
	return &Service{clients: clients, ClusterIP: service.Spec.ClusterIP, slice: Must(clients.DiscoveryV1().EndpointSlices(namespace).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: ServiceName, Labels: map[string]string{discoveryv1.LabelServiceName: ServiceName}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(portName), Port: new(int32(podPort)), Protocol: new(corev1.ProtocolTCP)}},
	}, metav1.CreateOptions{}))}
}

// List writes the endpoints, as a cluster does when pods become ready or end: the ready ones, and then those that terminate.
func (s *Service) List(ctx context.Context, ready []string, terminating ...string) {
	GinkgoHelper()
	s.slice.Endpoints = nil
	for n, endpoint := range slices.Concat(ready, terminating) {
		isReady := n < len(ready)
		s.slice.Endpoints = append(s.slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{Must(net.ResolveTCPAddr("tcp", endpoint)).IP.String()},
			Conditions: discoveryv1.EndpointConditions{Ready: new(isReady), Serving: new(true), Terminating: new(!isReady)},
		})
	}
	s.slice = Must(s.clients.DiscoveryV1().EndpointSlices(s.slice.Namespace).Update(ctx, s.slice, metav1.UpdateOptions{}))
}

// pods is the number of endpoints that were handed out. Specs follow one another.
var pods int

// NewEndpoint returns the address and port of a pod that no program has had.
func NewEndpoint() string {
	pods++
	return fmt.Sprintf("10.88.%d.%d:%d", 1+pods/250, 1+pods%250, podPort)
}
