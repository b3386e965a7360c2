package eirinix

// This file builds the manifests with which the program runs in a cluster.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/manifest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Manifests returns the objects with which this program runs in a cluster, for its current options and extensions:
//
//   - a ServiceAccount, and Roles and bindings with only the rights that the program needs,
//   - a Service, in Service mode,
//   - a NetworkPolicy, and for several replicas a PodDisruptionBudget,
//   - a Deployment,
//   - a ClusterRole for readers of the metrics, if the metrics require authorization.
//
// With RegisterWebHook false, the objects are those of a split deployment. The Deployment can then read but not write
// the certificate Secret, and has no rights on webhook configurations. A Job and a CronJob with their own
// ServiceAccount register.
//
// All namespaced objects are in the namespace of the certificate Secret: WebhookNamespace, else Namespace, one of which
// must be set. The namespace itself is not among the objects. Deployment.Image must be set too. The program must later
// run with the same options, and its command line is Deployment.Args.
//
// Two calls return equal objects that share no memory, so you can change them or add to them before WriteManifests
// writes them. Manifests touches neither the network nor files.
func (m *ExtensionManager) Manifests() ([]client.Object, error) { return m.manifests(os.Args) }

// manifests is Manifests for a process with this command line.
func (m *ExtensionManager) manifests(commandLine []string) ([]client.Object, error) {
	m.mu.Lock()
	o, definitions := m.options, slices.Clone(m.steps)
	watches, reconciles := len(m.watchers) > 0, len(m.reconcilers) > 0
	m.mu.Unlock()
	o.Certificates = m.certificateSource()

	errs := []error{m.Validate()}
	if len(definitions) == 0 && !watches && !reconciles {
		errs = append(errs, errors.New("eirinix: Manifests: nothing was added, so there is nothing to deploy; call AddExtension before"))
	}
	serves := len(definitions) > 0
	ports, err := o.podPorts(serves)
	d := manifest.Options(o.Deployment)
	errs = append(errs, d.Validate(ports.Metrics), err)
	namespace := cmp.Or(o.WebhookNamespace, o.Namespace)
	if namespace == "" {
		errs = append(errs, errors.New("eirinix: Manifests: ManagerOptions.WebhookNamespace is empty; set it to the namespace that the program is to run in"))
	}
	p := manifest.Program{
		Options:   d.WithDefaults(o.OperatorFingerprint, cmp.Or(o.MaxRequestBytes, defaultMaxRequestBytes), serves),
		Namespace: namespace, Fingerprint: o.OperatorFingerprint, GracePeriod: manifest.GracePeriod(o.drainDelay(), unregisterTimeout),
		ServicePort: o.port(), Ports: ports, Rights: o.rights(definitions, watches, namespace),
		Split: serves && !*o.RegisterWebHook, Reconciles: reconciles,
	}
	if serves {
		p.Service = o.ServiceName
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := checkOwnPods(o, definitions, namespace, p.PodLabels()); err != nil {
		return nil, err
	}
	if len(commandLine) > 1 && d.Args == nil {
		o.Logger.Warn("this process was given arguments, but its manifests give the pods none: set ManagerOptions.Deployment.Args " +
			"(FlagArgs makes them of the flags), or make it an empty slice if the program needs none there")
	}
	return manifest.Objects(p), nil
}

// WriteManifests writes objects as YAML for kubectl apply, separated by "---". It omits the status and other fields
// that only a cluster fills in. Every object must either set its kind or be of a built-in one.
func WriteManifests(w io.Writer, objects ...client.Object) error {
	if err := manifest.Write(w, clientgoscheme.Scheme, objects...); err != nil {
		return fmt.Errorf("eirinix: WriteManifests: %w", err)
	}
	return nil
}

// rights returns the rights that the steps and watchers need. namespace is the program's own.
func (o ManagerOptions) rights(definitions []definition, watches bool, namespace string) manifest.Rights {
	r := manifest.Rights{
		// In a split deployment the registering half makes the Secret, regardless of the options of the serving half.
		MakesSecret: *o.SetupCertificate || !*o.RegisterWebHook,
		Unregisters: o.UnregisterOnStop,
		Watches:     watches, WatchNamespace: o.Namespace,
		Reviews: o.reviewsMetrics(),
	}
	if len(definitions) > 0 {
		r.Versions = o.versionsName()
		if o.Certificates == nil {
			r.Secret = o.SetupCertificateName
		} else {
			r.Source = o.Certificates.rights(namespace)
		}
		if namespace, name, _, err := o.ClientCA.configMap(); err == nil {
			r.ClientCA = types.NamespacedName{Namespace: namespace, Name: name}
		}
	}
	mutating, validating := webhookconf.Mutating, webhookconf.Validating
	if slices.ContainsFunc(definitions, func(d definition) bool { return !d.validating }) {
		r.Configurations = append(r.Configurations, manifest.Configuration{Resource: mutating.Resource, Name: mutating.ConfigurationName(o.OperatorFingerprint)})
	}
	if slices.ContainsFunc(definitions, func(d definition) bool { return d.validating }) {
		r.Configurations = append(r.Configurations, manifest.Configuration{Resource: validating.Resource, Name: validating.ConfigurationName(o.OperatorFingerprint)})
	}
	return r
}
