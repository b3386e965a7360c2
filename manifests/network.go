package manifests

// This file builds the Service and the NetworkPolicy, and names the ports that a program listens on.

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// service returns the Service that the API server calls in Service mode. The API server dials a pod behind it on the
// target port.
func (c component) service() *corev1.Service {
	p := c.program
	return &corev1.Service{
		ObjectMeta: c.meta(p.Service, p.Namespace),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeClusterIP,
			Selector: c.selector().MatchLabels,
			Ports: []corev1.ServicePort{{
				Name: "https", AppProtocol: new("https"), Protocol: corev1.ProtocolTCP,
				Port: p.ServicePort, TargetPort: intstr.FromInt32(p.ports.webhook),
			}},
		},
	}
}

const (
	openPorts = "Only the ports that the program serves are open, to every client: API servers and kubelets are not pods, so no selector " +
		"matches them, and their addresses differ between providers. Egress is not limited; the program needs the API server and DNS."
	noPorts = "The program serves nothing, so no ingress is allowed. Egress is not limited; the program needs the API server and DNS."
)

// networkPolicy returns a NetworkPolicy that closes all ports except those that the program serves.
func (c component) networkPolicy() *networkingv1.NetworkPolicy {
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: describe(c.meta(c.name, c.program.Namespace), noPorts),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *c.selector(),
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
	var ports []networkingv1.NetworkPolicyPort
	for _, port := range c.program.ports.named() {
		ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromInt32(port.ContainerPort))})
	}
	if len(ports) > 0 {
		policy.Annotations[description] = openPorts
		policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: ports}}
	}
	return policy
}

// named returns the open ports in the form of container ports.
func (p ports) named() []corev1.ContainerPort {
	var ports []corev1.ContainerPort
	for _, port := range []corev1.ContainerPort{
		{Name: "webhook", ContainerPort: p.webhook},
		{Name: "health", ContainerPort: p.health},
		{Name: metricsPort, ContainerPort: p.metrics},
	} {
		if port.ContainerPort != 0 {
			port.Protocol = corev1.ProtocolTCP
			ports = append(ports, port)
		}
	}
	return ports
}
