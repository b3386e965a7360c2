// Package manifests makes the objects with which a program runs in a cluster. The program prints its own:
//
//	objects, err := manifests.Of(x, manifests.Options{Image: "registry.example.org/webhook:1.0"})
//	if err == nil {
//		err = manifests.Write(os.Stdout, objects...)
//	}
//
// Chart and Kustomization write them as packages instead.
package manifests

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/audit"
	"code.cloudfoundry.org/eirinix/internal/manifest"
	"code.cloudfoundry.org/eirinix/internal/policyreport"
	"code.cloudfoundry.org/eirinix/internal/seam"
)

// Of returns the objects with which a program runs in a cluster, for the current options and extensions of its Manager:
//
//   - a ServiceAccount, and Roles and bindings with only the rights that the program needs,
//   - a Service, in Service mode,
//   - a NetworkPolicy, and for several replicas a PodDisruptionBudget,
//   - a Deployment,
//   - with AuditSchedule, a CronJob with its own ServiceAccount,
//   - a ClusterRole for readers of the metrics, if the metrics require authorization.
//
// With RegisterWebHook false, the objects are those of a split deployment. The Deployment can then read but not write
// the certificate Secret, and has no rights on webhook configurations. A Job and a CronJob with their own
// ServiceAccount register.
//
// All namespaced objects are in the namespace of the certificate Secret: WebhookNamespace, else Namespace, one of which
// must be set. The namespace itself is not among the objects. Options.Image must be set too. The program must later run
// with the same options of the Manager, and its command line is Options.Args.
//
// Two calls return equal objects that share no memory, so you can change them or add to them before Write writes them.
// Of touches neither the network nor files. It returns all errors in the options at once.
func Of(m *eirinix.ExtensionManager, o Options) ([]client.Object, error) { return of(m, o, os.Args) }

// of is Of for a process with this command line.
func of(m *eirinix.ExtensionManager, given Options, commandLine []string) ([]client.Object, error) {
	program, err := seam.Of(m)
	if err != nil {
		return nil, err
	}
	d, unread := program.Deployment()
	errs := []error{m.Validate()}
	if !d.Serves && !d.Rights.Watches && !d.Reconciles {
		errs = append(errs, errors.New("eirinix: manifests.Of: nothing was added, so there is nothing to deploy; call AddExtension before"))
	}
	ports, err := portsOf(d)
	o := manifest.Options(given)
	errs = append(errs, o.Validate(ports.Metrics), err)
	if d.Namespace == "" {
		errs = append(errs, errors.New("eirinix: manifests.Of: ManagerOptions.WebhookNamespace is empty; set it to the namespace that the program is to run in"))
	}
	p := manifest.Program{
		Options:   o.WithDefaults(program.Fingerprint, d.MaxRequestBytes, d.Serves),
		Namespace: d.Namespace, Fingerprint: program.Fingerprint, GracePeriod: manifest.GracePeriod(d.DrainDelay, d.UnregisterTimeout),
		Service: d.Service, ServicePort: d.ServicePort, Ports: ports, Rights: d.Rights,
		Split: d.Serves && !d.Registers, Reconciles: d.Reconciles,
	}
	errs = append(errs, unread)
	if o.AuditSchedule != "" {
		if !d.Serves {
			errs = append(errs, errors.New("eirinix: manifests.Options.AuditSchedule is set, but there is no extension to ask; leave it out"))
		}
		p.Rights.Lists, err = auditLists(d)
		if errs = append(errs, err); p.WritesReports() {
			p.Rights.Reports = policyreport.Resources()
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if step, err := d.Blocks(p.PodLabels()); err != nil {
		return nil, err
	} else if step != "" {
		return nil, fmt.Errorf("eirinix: manifests.Of: step %q would be called for the program's own pods in namespace %q, which could not start while all replicas are down; "+
			"set ManagerOptions.WebhookNamespace to a namespace of their own and Namespace to that of the pods that it handles, or use Service mode (ServiceName), or leave them out with Settings.Objects", step, d.Namespace)
	}
	if len(commandLine) > 1 && o.Args == nil {
		m.GetLogger().Warn("this process was given arguments, but its manifests pass none to the pods: set manifests.Options.Args " +
			"(FlagArgs builds them from the flags), or set it to an empty slice if the program needs none in the cluster")
	}
	return manifest.Objects(p), nil
}

// auditLists returns the resources that an audit lists, by namespace and group. Kinds that the scheme does not hold are
// an error.
func auditLists(d seam.Deployment) (map[string]map[string][]string, error) {
	webhooks, err := d.Webhooks()
	if err != nil {
		return nil, fmt.Errorf("%w; for manifests.Options.AuditSchedule, add its kind to ManagerOptions.Scheme", err)
	}
	for _, crd := range d.Rights.CRDs {
		webhooks = append(webhooks, audit.Converted(crd))
	}
	return audit.Lists(webhooks, func(resource schema.GroupResource) bool {
		kind, err := d.Mapper.KindFor(resource.WithVersion(""))
		if err != nil {
			return false
		}
		mapping, err := d.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
		return err == nil && mapping.Scope.Name() == meta.RESTScopeNameNamespace
	}), nil
}

// portsOf returns the ports on which a pod of the program serves other clients.
func portsOf(d seam.Deployment) (manifest.Ports, error) {
	ports := manifest.Ports{Health: manifest.BindPort(d.HealthAddress), Metrics: manifest.BindPort(d.MetricsAddress)}
	if !d.Serves {
		return ports, nil
	}
	host, port, err := d.Listen()
	switch {
	case err != nil:
		return ports, nil //nolint:nilerr // Validate reports it
	case port == 0:
		return ports, fmt.Errorf("eirinix: manifests.Of: ManagerOptions.ListenAddress is %q, but a pod's port must be known before; set it to a fixed one, such as \":8443\"", d.ListenAddress)
	case !manifest.EveryAddress(host):
		return ports, fmt.Errorf("eirinix: manifests.Of: the program would listen only on %s, which other machines cannot reach in a pod; set ManagerOptions.ListenAddress to \":%d\"", net.JoinHostPort(host, strconv.Itoa(port)), port)
	}
	ports.Webhook = int32(port)
	return ports, nil
}
