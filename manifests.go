package eirinix

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/manifest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

const (
	// longestCall is what the API server waits for any webhook at most.
	longestCall = 30 * time.Second

	// stopMargin is for what else a stop has to do: unregisterTimeout, and the way out.
	stopMargin = unregisterTimeout + 5*time.Second
)

// Manifests gives the objects with which this program runs in a cluster, with the options and the extensions it has
// now: ServiceAccount, Roles and bindings that hold the rights it needs and no others, Service (in Service mode),
// NetworkPolicy, PodDisruptionBudget and Deployment. With RegisterWebHook false they are those of a split deployment:
// the Deployment may read the certificate Secret and nothing else, and a Job and a CronJob, with an account of their
// own, register.
//
// Everything lies in the namespace of the certificate Secret: WebhookNamespace, else Namespace, one of which must be
// set; the namespace itself is not among the objects. Deployment.Image must be set too. The options must be those
// with which the program then runs, and its command line is Deployment.Args.
//
// Two calls give equal objects, which share nothing: change them, or add to them, before WriteManifests writes them.
// It touches neither network nor files.
func (m *ExtensionManager) Manifests() ([]client.Object, error) {
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
	errs = append(errs, o.Deployment.validate()...)
	d := o.Deployment.withDefaults(o, serves)
	namespace := cmp.Or(o.WebhookNamespace, o.Namespace)
	if namespace == "" {
		errs = append(errs, errors.New("eirinix: Manifests: ManagerOptions.WebhookNamespace is empty; set it to the namespace that the program is to run in"))
	}
	ports, err := o.podPorts(serves)
	p := manifest.Program{
		Name: d.Name, Namespace: namespace, Fingerprint: o.OperatorFingerprint, ServiceAccount: d.ServiceAccountName, Labels: d.Labels,
		Image: d.Image, Command: d.Command, Args: d.Args, RegisterArgs: d.RegisterArgs, Env: d.Env,
		Resources: d.Resources, Replicas: d.Replicas, GracePeriod: o.gracePeriod(),
		ServicePort: o.port(), Ports: ports, Rights: o.rights(definitions, watches, namespace),
		Split: serves && !*o.RegisterWebHook, Reconciles: reconciles,
	}
	if serves {
		p.Service = o.ServiceName
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	if err := checkOwnPods(o, definitions, namespace, p.PodLabels()); err != nil {
		return nil, err
	}
	return manifest.Objects(p), nil
}

// WriteManifests writes objects as YAML for kubectl apply, separated by "---", without status and whatever else only
// a cluster fills in. It takes any object that names its kind, or is of a built-in one.
func WriteManifests(w io.Writer, objects ...client.Object) error {
	if err := manifest.Write(w, clientgoscheme.Scheme, objects...); err != nil {
		return fmt.Errorf("eirinix: WriteManifests: %w", err)
	}
	return nil
}

// rights is what the steps and watchers need of the cluster. namespace is the program's own.
func (o ManagerOptions) rights(definitions []definition, watches bool, namespace string) manifest.Rights {
	r := manifest.Rights{
		// In a split deployment it is the registering half that makes the Secret, whatever the serving half does.
		MakesSecret: *o.SetupCertificate || !*o.RegisterWebHook,
		Unregisters: o.UnregisterOnStop,
		Watches:     watches, WatchNamespace: o.Namespace,
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

// gracePeriod is how many seconds a stop may take: the drain, the longest call in flight, and the way out.
func (o ManagerOptions) gracePeriod() int64 {
	stop := o.drainDelay() + longestCall + stopMargin
	return int64((stop + time.Second - 1) / time.Second)
}
