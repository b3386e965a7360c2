package eirinix

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"code.cloudfoundry.org/eirinix/internal/manifest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// podPorts gives the ports that a pod of the program listens on for others.
func (o ManagerOptions) podPorts(serves bool) (manifest.Ports, error) {
	ports := manifest.Ports{Health: bindPort(o.HealthProbeBindAddress), Metrics: bindPort(o.MetricsBindAddress)}
	if !serves {
		return ports, nil
	}
	host, port, err := o.listen()
	switch {
	case err != nil:
		return ports, nil //nolint:nilerr // Validate tells
	case port == 0:
		return ports, fmt.Errorf("eirinix: Manifests: ManagerOptions.ListenAddress is %q, but a pod's port must be known before; set it to a fixed one, such as \":8443\"", o.ListenAddress)
	case !everyAddress(host):
		return ports, fmt.Errorf("eirinix: Manifests: the program would listen on %s alone, where nobody reaches a pod; set ManagerOptions.ListenAddress to \":%d\"", net.JoinHostPort(host, strconv.Itoa(port)), port)
	}
	ports.Webhook = int32(port)
	return ports, nil
}

// bindPort is the port of an address that others reach; 0 for one that they don't, or that is switched off.
func bindPort(address string) int32 {
	host, service, err := net.SplitHostPort(address)
	if err != nil || !everyAddress(host) {
		return 0
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return 0
	}
	return int32(port)
}

func everyAddress(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// checkOwnPods looks for a step that would be asked about the program's own pods, and refuse them when it cannot be
// reached: once down, it would stay down.
func checkOwnPods(o ManagerOptions, definitions []definition, namespace string, own map[string]string) error {
	r := newResolver(o, nil)
	for _, d := range definitions {
		step, err := r.resolve(d)
		if err != nil {
			return err
		}
		// What conditions say is known to the API server alone; with ClusterCritical the user has said that he knows.
		if step.ClusterCritical || len(step.Conditions) > 0 || step.FailurePolicy == admissionregistrationv1.Ignore || !admitsPods(step.Rules) {
			continue
		}
		entries, options := webhookconf.Group([]webhookconf.Step{step}), o.webhookOptions(o.port())
		for _, w := range options.Mutating(entries) {
			if selects(w.NamespaceSelector, map[string]string{corev1.LabelMetadataName: namespace}) && selects(w.ObjectSelector, own) {
				return ownPodsError(d.name, namespace)
			}
		}
		for _, w := range options.Validating(entries) {
			if selects(w.NamespaceSelector, map[string]string{corev1.LabelMetadataName: namespace}) && selects(w.ObjectSelector, own) {
				return ownPodsError(d.name, namespace)
			}
		}
	}
	return nil
}

func ownPodsError(step, namespace string) error {
	return fmt.Errorf("eirinix: Manifests: extension %q would be asked about the program's own pods in namespace %q, which could not start again once all are down; "+
		"set ManagerOptions.WebhookNamespace to a namespace of their own and Namespace to that of the pods it is for, or use Service mode (ServiceName), or leave them out with Settings.Objects", step, namespace)
}

// admitsPods tells whether the rules yield pods on their way into the cluster.
func admitsPods(rules []admissionregistrationv1.RuleWithOperations) bool {
	has := func(list []string, wanted ...string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return slices.Contains(wanted, s) })
	}
	return slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		creates := slices.Contains(r.Operations, admissionregistrationv1.Create) || slices.Contains(r.Operations, admissionregistrationv1.OperationAll)
		// "pods/*" yields pods too.
		return creates && has(r.APIGroups, "", "*") && has(r.APIVersions, "v1", "*") && has(r.Resources, "pods", "*", "*/*", "pods/*")
	})
}

func selects(s *metav1.LabelSelector, set map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(set))
}
