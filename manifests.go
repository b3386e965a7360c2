package eirinix

// This file builds the manifests with which the program runs in a cluster. It checks that the program can run with
// them: its ports, and that it is not called for its own pods.

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/audit"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/manifest"
	"code.cloudfoundry.org/eirinix/internal/policyreport"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Manifests returns the objects with which this program runs in a cluster, for its current options and extensions:
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
// must be set. The namespace itself is not among the objects. Deployment.Image must be set too. The program must later
// run with the same options, and its command line is Deployment.Args.
//
// Two calls return equal objects that share no memory, so you can change them or add to them before WriteManifests
// writes them. Manifests touches neither the network nor files.
func (m *ExtensionManager) Manifests() ([]client.Object, error) { return m.manifests(os.Args) }

// manifests is Manifests for a process with this command line.
func (m *ExtensionManager) manifests(commandLine []string) ([]client.Object, error) {
	s := m.given()
	s.options.Certificates = m.certificateSource()

	errs := []error{m.Validate()}
	o, serves := s.options, s.serves()
	if !serves && len(s.watchers)+len(s.reconcilers) == 0 {
		errs = append(errs, errors.New("eirinix: Manifests: nothing was added, so there is nothing to deploy; call AddExtension before"))
	}
	ports, err := o.podPorts(serves)
	d := manifest.Options(o.Deployment)
	errs = append(errs, d.Validate(ports.Metrics), err)
	namespace := cmp.Or(o.WebhookNamespace, o.Namespace)
	if namespace == o.ownNamespace { // empty, or that of this process
		errs = append(errs, errors.New("eirinix: Manifests: ManagerOptions.WebhookNamespace is empty; set it to the namespace that the program is to run in"))
	}
	p := manifest.Program{
		Options:   d.WithDefaults(o.OperatorFingerprint, cmp.Or(o.MaxRequestBytes, defaultMaxRequestBytes), serves),
		Namespace: namespace, Fingerprint: o.OperatorFingerprint, GracePeriod: manifest.GracePeriod(o.drainDelay(), unregisterTimeout),
		ServicePort: o.port(), Ports: ports, Rights: s.rights(namespace),
		Split: serves && !*o.RegisterWebHook, Reconciles: len(s.reconcilers) > 0,
	}
	if serves {
		p.Service = o.ServiceName
	}
	scheme := newResolver(o, resources.Cluster{}).scheme
	p.Rights.Reads, err = o.readRights(s.steps, s.offlineMapper(scheme, nil))
	errs = append(errs, err)
	if d.AuditSchedule != "" {
		if !serves {
			errs = append(errs, errors.New("eirinix: ManagerOptions.Deployment.AuditSchedule is set, but there is no extension to ask; leave it out"))
		}
		p.Rights.Lists, err = s.auditLists()
		if errs = append(errs, err); p.WritesReports() {
			p.Rights.Reports = policyreport.Resources()
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := s.checkOwnPods(namespace, p.PodLabels()); err != nil {
		return nil, err
	}
	if len(commandLine) > 1 && d.Args == nil {
		o.Logger.Warn("this process was given arguments, but its manifests pass none to the pods: set ManagerOptions.Deployment.Args " +
			"(FlagArgs builds them from the flags), or set it to an empty slice if the program needs none in the cluster")
	}
	return manifest.Objects(p), nil
}

// WriteManifests writes objects as YAML for kubectl apply, separated by "---". It omits the status and other fields
// that only a cluster fills in. Every object must either set its kind or be of a built-in one.
func WriteManifests(w io.Writer, objects ...client.Object) error {
	return named("WriteManifests", manifest.Write(w, objects...))
}

// WriteKustomization writes objects into a folder as a kustomize base: a file for each object, and kustomization.yaml. An
// overlay can change the image, the replicas and more. For another namespace, it must also replace the namespace in rights
// and arguments: docs/gitops.md shows how.
//
// The folder is made if it is missing. A second call with the same objects changes nothing. Files of an earlier call that
// are not needed any more are removed, and other files are left alone. If one of those is in the way, WriteKustomization
// writes nothing and returns an error that names it.
func WriteKustomization(dir string, objects ...client.Object) error {
	return named("WriteKustomization", manifest.WriteKustomization(dir, objects...))
}

// WriteChart writes objects into a folder as a Helm chart, in the way of WriteKustomization. There must be one Deployment,
// that of Manifests. With its own values, the chart renders to the objects. docs/gitops.md lists the values, among them a
// HorizontalPodAutoscaler that is off. The name of a Job ends in a hash of the values, because a Job cannot be changed.
//
// What several replicas have in addition, such as a PodDisruptionBudget, is in the chart only if the objects are for
// several replicas.
func WriteChart(dir string, objects ...client.Object) error {
	return named("WriteChart", manifest.WriteChart(dir, objects...))
}

// rights returns the rights that the steps, conversions and watchers need. namespace is the program's own.
func (s setup) rights(namespace string) manifest.Rights {
	o := s.options
	r := manifest.Rights{
		// In a split deployment the registering half makes the Secret, regardless of the options of the serving half.
		MakesSecret: *o.SetupCertificate || !*o.RegisterWebHook,
		Unregisters: o.UnregisterOnStop,
		Watches:     len(s.watchers) > 0, WatchNamespace: o.Namespace,
		Reviews: o.reviewsMetrics(),
		CRDs:    crdsOf(s.conversions),
	}
	if s.serves() {
		r.Versions, r.Modes = o.versionsName(), o.ModesConfigMap
		if s.keepsLosses() {
			r.Keys = o.conversionsName()
		}
		if o.Certificates == nil {
			r.Secret = o.SetupCertificateName
		} else {
			r.Source = o.Certificates.rights(namespace)
		}
		if namespace, name, _, err := o.ClientCA.configMap(); err == nil {
			r.ClientCA = types.NamespacedName{Namespace: namespace, Name: name}
		}
	}
	for _, kind := range []webhookconf.Kind{webhookconf.Mutating, webhookconf.Validating} {
		if slices.ContainsFunc(s.steps, func(d definition) bool { return d.mutates() == (kind == webhookconf.Mutating) }) {
			r.Configurations = append(r.Configurations, manifest.Configuration{Resource: kind.Resource, Name: kind.ConfigurationName(o.OperatorFingerprint)})
		}
	}
	return r
}

// offlineMapper returns a RESTMapper of the kinds of the scheme, of those that are given, and of the conversions. It
// needs no cluster.
func (s setup) offlineMapper(scheme *runtime.Scheme, given []resources.Resource) meta.RESTMapper {
	for _, c := range s.conversions {
		given = append(given, c.resources(given, scheme)...)
	}
	return resources.NewMapper(scheme, given)
}

// auditLists returns the resources that an audit lists, by namespace and group. Kinds that the scheme does
// not hold are an error.
func (s setup) auditLists() (map[string]map[string][]string, error) {
	plain := newResolver(s.options, resources.Cluster{})
	r := newResolver(s.options, resources.Cluster{Mapper: s.offlineMapper(plain.scheme, nil)})
	var webhooks []admissionregistrationv1.MutatingWebhook
	for _, d := range s.steps {
		step, err := r.resolve(d)
		if _, absent := errors.AsType[*resources.NotServedError](err); absent && len(d.settings.Rules) > 0 {
			step, err = plain.resolve(d) // its Rules name the resources
		}
		if err != nil {
			return nil, fmt.Errorf("%w; for DeploymentOptions.AuditSchedule, add its kind to ManagerOptions.Scheme", prefixed(err))
		}
		webhooks = append(webhooks, s.options.webhookOptions(s.options.port()).Alone(step))
	}
	for _, c := range s.conversions {
		webhooks = append(webhooks, audit.Converted(c.crd))
	}
	return audit.Lists(webhooks, func(resource schema.GroupResource) bool {
		kind, err := r.cluster.Mapper.KindFor(resource.WithVersion(""))
		if err != nil {
			return false
		}
		mapping, err := r.cluster.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
		return err == nil && mapping.Scope.Name() == meta.RESTScopeNameNamespace
	}), nil
}

// FlagArgs returns the flags that were set as arguments of the form -name=value, sorted by name, for
// DeploymentOptions.Args. The result is never nil. Arguments that are not flags are not part of it.
//
// It omits the flags in except. List there flags that apply only to the local machine, such as the path of a
// kubeconfig. List secrets too, because the manifests expose the arguments. A name in except that matches no flag is
// ignored, so that several flag sets can share one list.
//
// The value of a flag is the result of its Value's String method, so its Set method must accept that. The values of
// package flag do, except those of flag.Func and flag.BoolFunc, which do not keep their value.
func FlagArgs(flags *flag.FlagSet, except ...string) []string {
	args := []string{}
	flags.Visit(func(f *flag.Flag) {
		if !slices.Contains(except, f.Name) {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	return args
}

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
		return ports, fmt.Errorf("eirinix: Manifests: the program would listen only on %s, which other machines cannot reach in a pod; set ManagerOptions.ListenAddress to \":%d\"", net.JoinHostPort(host, strconv.Itoa(port)), port)
	}
	ports.Webhook = int32(port)
	return ports, nil
}

// checkOwnPods returns an error if a step would be called for the program's own pods. Those would be refused while no
// replica can be reached, so that the program could never start again once all replicas are down.
func (s setup) checkOwnPods(namespace string, own map[string]string) error {
	r := newResolver(s.options, resources.Cluster{})
	for _, d := range s.steps {
		step, err := r.resolve(d)
		if err != nil {
			return err
		}
		if webhookconf.BlocksNewPods(step, s.options.webhookOptions(s.options.port()), namespace, own) {
			return fmt.Errorf("eirinix: Manifests: step %q would be called for the program's own pods in namespace %q, which could not start while all replicas are down; "+
				"set ManagerOptions.WebhookNamespace to a namespace of their own and Namespace to that of the pods that it handles, or use Service mode (ServiceName), or leave them out with Settings.Objects", d.name, namespace)
		}
	}
	return nil
}

// warnOfOwnPod logs a warning if the program's own pod is sent to the program itself. That is the case if its namespace
// is not excluded as a whole and the pod lacks the label. A webhook that is down would then be called for the pod that
// is to restart it. Outside of a pod, or without the right to read it, there is no warning.
func (m *ExtensionManager) warnOfOwnPod(ctx context.Context, log logr.Logger) {
	own := podNamespace()
	name, unnamed := os.Hostname()
	_, clients, err := m.own()
	if own == "" || errors.Join(unnamed, err) != nil {
		return
	}
	o := m.GetManagerOptions()
	if problem := unmarked(ctx, clients, o, own, name); problem != "" {
		log.Info(problem, "label", webhookconf.FingerprintLabel+"="+o.OperatorFingerprint, "pod", name)
	}
}

// unmarked returns the problem with the pod, or "" if there is none or the pod cannot be read.
func unmarked(ctx context.Context, clients cluster.Clients, o ManagerOptions, namespace, name string) string {
	if o.serviceMode() && o.WebhookNamespace == namespace && o.Namespace != namespace || o.Namespace != "" && o.Namespace != namespace {
		return "" // its namespace is excluded or not selected
	}
	pod, err := clients.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || pod.Labels[webhookconf.FingerprintLabel] == o.OperatorFingerprint {
		return ""
	}
	return "this program is called for its own pod, which can therefore not start while all replicas are down; set the label in the pod template, as Manifests does"
}
