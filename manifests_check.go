package eirinix

// This file checks that the program can run with its manifests: its ports, and that it is not called for its own pods.

import (
	"fmt"
	"net"
	"strconv"

	"code.cloudfoundry.org/eirinix/internal/manifest"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// podPorts returns the ports on which a pod of the program serves other clients.
func (o ManagerOptions) podPorts(serves bool) (manifest.Ports, error) {
	ports := manifest.Ports{Health: manifest.BindPort(o.HealthProbeBindAddress), Metrics: manifest.BindPort(o.MetricsBindAddress)}
	if !serves {
		return ports, nil
	}
	host, port, err := o.listen()
	switch {
	case err != nil:
		return ports, nil //nolint:nilerr // Validate reports it
	case port == 0:
		return ports, fmt.Errorf("eirinix: Manifests: ManagerOptions.ListenAddress is %q, but a pod's port must be known before; set it to a fixed one, such as \":8443\"", o.ListenAddress)
	case !manifest.EveryAddress(host):
		return ports, fmt.Errorf("eirinix: Manifests: the program would listen on %s alone, where nobody reaches a pod; set ManagerOptions.ListenAddress to \":%d\"", net.JoinHostPort(host, strconv.Itoa(port)), port)
	}
	ports.Webhook = int32(port)
	return ports, nil
}

// checkOwnPods returns an error if a step would be called for the program's own pods. Those would be refused while no
// replica can be reached, so that the program could never start again once all replicas are down.
func checkOwnPods(o ManagerOptions, definitions []definition, namespace string, own map[string]string) error {
	r := newResolver(o, resources.Cluster{})
	for _, d := range definitions {
		step, err := r.resolve(d)
		if err != nil {
			return err
		}
		if webhookconf.AsksAboutNewPods(step, o.webhookOptions(o.port()), namespace, own) {
			return fmt.Errorf("eirinix: Manifests: extension %q would be asked about the program's own pods in namespace %q, which could not start again once all are down; "+
				"set ManagerOptions.WebhookNamespace to a namespace of their own and Namespace to that of the pods it is for, or use Service mode (ServiceName), or leave them out with Settings.Objects", d.name, namespace)
		}
	}
	return nil
}
