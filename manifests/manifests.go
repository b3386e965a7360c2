// Package manifests makes the objects with which a program runs in a cluster, for its own options and extensions. It writes
// them as YAML, as a Helm chart or as a kustomize base.
package manifests

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/audit"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/manifest"
	"code.cloudfoundry.org/eirinix/internal/policyreport"
	"code.cloudfoundry.org/eirinix/internal/seam"
	"code.cloudfoundry.org/eirinix/internal/serving"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Options holds the inputs of Of that nothing else implies. Only Image is required. To set anything that has no field
// here, change the objects that Of returns.
type Options struct {
	// Image is the container image of the program. The program runs with a read-only root file system and not as root.
	// The image's user must therefore be a number other than 0, as in "USER 65532".
	Image string

	// Command replaces the image's entrypoint. Empty keeps it.
	Command []string

	// Args are the arguments with which the program calls Start. FlagArgs builds them from the flags of this process.
	// If this process has arguments and Args is nil, Of logs a warning. If the program needs no arguments in the
	// cluster, set an empty slice.
	Args []string

	// RegisterArgs are the arguments with which the program calls RegisterExtensions, for the Job of a split deployment
	// (RegisterWebHook false). Empty means "register" followed by Args.
	RegisterArgs []string

	// Env is the environment of the serving and the registering pods. GOMEMLIMIT is derived from the memory limit
	// unless Env sets it.
	Env []corev1.EnvVar

	// Name is the name of the Deployment and of the objects that belong to it. Default OperatorFingerprint.
	Name string

	// ServiceAccountName is the name of the ServiceAccount, which is among the objects. Default Name.
	ServiceAccountName string

	// Replicas is the number of serving pods. 0 means 2, or 1 for a program without extensions, because the watchers
	// and reconcilers of every replica see all events.
	Replicas int32

	// Labels are set on every object and pod, in addition to the labels that select the pods.
	Labels map[string]string

	// Annotations are set on every object and pod, in addition to the library's own. They can, for example, keep a
	// service mesh's proxy out of the pods.
	Annotations map[string]string

	// PriorityClassName is the pods' PriorityClass. Empty means the cluster's default. system-cluster-critical suits a
	// webhook with failurePolicy Fail.
	PriorityClassName string

	// NodeSelector holds the labels that a node must have in addition to kubernetes.io/os=linux.
	NodeSelector map[string]string

	// Tolerations are the tolerations of the pods.
	Tolerations []corev1.Toleration

	// ImagePullSecrets are the Secrets, in the program's namespace, with which the image is pulled.
	ImagePullSecrets []corev1.LocalObjectReference

	// Resources are the resources of the container. Empty means requests of 50m CPU and 64Mi memory, and a memory
	// limit. The limit is 256Mi plus room for eight requests of MaxRequestBytes, so 512Mi by default. A CPU limit would
	// delay calls.
	Resources corev1.ResourceRequirements

	// PodMonitor adds a PodMonitor (monitoring.coreos.com/v1), with which a Prometheus of the Prometheus operator finds
	// the pods' metrics. If the metrics require a token, it also adds a ServiceAccount that can only read metrics, and
	// a Secret with its token. It requires MetricsBindAddress.
	PodMonitor bool

	// AuditSchedule adds a CronJob that audits the objects that exist, at these times (as in CronJobSpec: "0 6 * * *" or
	// @daily). It has a ServiceAccount of its own, which may list the resources that the rules of the steps select.
	// Empty means none.
	AuditSchedule string

	// AuditArgs are the arguments with which the program audits. Empty means Args followed by "audit" and
	// "-policy-reports". The rights to write reports are granted only with the latter.
	AuditArgs []string
}

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
func Of(m *eirinix.ExtensionManager, options Options) ([]client.Object, error) {
	program, err := seam.Of(m)
	if err != nil {
		return nil, err
	}
	d, unread := program.Deployment()
	errs := []error{m.Validate()}
	if !d.Serves && !d.Rights.Watches && !d.Reconciles {
		errs = append(errs, errors.New("eirinix: manifests.Of: nothing was added, so there is nothing to deploy; call AddExtension before"))
	}
	ports, err := portsOf(m.GetManagerOptions(), d)
	o := manifest.Options(options)
	errs = append(errs, o.Validate(ports.Metrics), err, unread)
	if d.Namespace == "" {
		errs = append(errs, errors.New("eirinix: manifests.Of: ManagerOptions.WebhookNamespace is empty; set it to the namespace that the program is to run in"))
	}
	p := manifest.Program{
		Options:   o.WithDefaults(program.Fingerprint, d.MaxRequestBytes, d.Serves),
		Namespace: d.Namespace, Fingerprint: program.Fingerprint, GracePeriod: manifest.GracePeriod(d.DrainDelay, d.UnregisterTimeout),
		Service: d.Service, ServicePort: d.ServicePort, Ports: ports, Rights: d.Rights,
		Split: d.Serves && !d.Registers, Reconciles: d.Reconciles,
	}
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
	if err := checkOwnPods(d, p.PodLabels()); err != nil {
		return nil, err
	}
	if len(os.Args) > 1 && o.Args == nil {
		m.GetLogger().Warn("this process was given arguments, but its manifests pass none to the pods: set manifests.Options.Args " +
			"(FlagArgs builds them from the flags), or set it to an empty slice if the program needs none in the cluster")
	}
	return manifest.Objects(p), nil
}

// Write writes objects as YAML for kubectl apply, separated by "---". It omits the status and other fields that only a
// cluster fills in. Every object must either set its kind or be of a built-in one.
func Write(w io.Writer, objects ...client.Object) error {
	return named("Write", manifest.Write(w, objects...))
}

// Kustomization writes objects into a folder as a kustomize base: a file for each object, and kustomization.yaml. An
// overlay can change the image, the replicas and more. For another namespace, it must also replace the namespace in rights
// and arguments: docs/gitops.md shows how.
//
// The folder is made if it is missing. A second call with the same objects changes nothing. Files of an earlier call that
// are not needed any more are removed, and other files are left alone. If one of those is in the way, Kustomization writes
// nothing and returns an error that names it.
func Kustomization(dir string, objects ...client.Object) error {
	return named("Kustomization", manifest.WriteFolder(dir, manifest.ForKustomize, manifest.Kustomization, objects))
}

// Chart writes objects into a folder as a Helm chart, in the way of Kustomization. There must be one Deployment, that of
// Of. With its own values, the chart renders to the objects. docs/gitops.md lists the values, among them a
// HorizontalPodAutoscaler that is off. The name of a Job ends in a hash of the values, because a Job cannot be changed.
//
// What several replicas have in addition, such as a PodDisruptionBudget, is in the chart only if the objects are for
// several replicas.
func Chart(dir string, objects ...client.Object) error {
	return named("Chart", manifest.WriteFolder(dir, manifest.ForHelm, manifest.Chart, objects))
}

// FlagArgs returns the flags that were set as arguments of the form -name=value, sorted by name, for Options.Args. The
// result is never nil. Arguments that are not flags are not part of it.
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

// named adds the names of the package and of a function to its error, if there is one.
func named(function string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("eirinix: manifests.%s: %w", function, err)
}

// auditLists returns the resources that an audit lists, by namespace and group. Kinds that the scheme does not hold are
// an error.
func auditLists(d seam.Deployment) (map[string]map[string][]string, error) {
	steps, err := d.Steps(d.Mapper)
	if err != nil {
		return nil, fmt.Errorf("%w; for manifests.Options.AuditSchedule, add its kind to ManagerOptions.Scheme", err)
	}
	webhooks := list.Of(steps, d.Webhooks.Alone)
	for _, crd := range d.Rights.CRDs {
		webhooks = append(webhooks, audit.Converted(crd))
	}
	return audit.Lists(webhooks, func(resource schema.GroupResource) bool {
		kind, err := d.Mapper.KindFor(resource.WithVersion(""))
		namespaced, unknown := apiutil.IsGVKNamespaced(kind, d.Mapper)
		return err == nil && unknown == nil && namespaced
	}), nil
}

// portsOf returns the ports on which a pod of the program serves other clients.
func portsOf(o eirinix.ManagerOptions, d seam.Deployment) (manifest.Ports, error) {
	ports := manifest.Ports{Health: serving.BindPort(o.HealthProbeBindAddress), Metrics: serving.BindPort(o.MetricsBindAddress)}
	host, port, err := d.Listen()
	switch {
	case !d.Serves, err != nil:
		return ports, nil //nolint:nilerr // Validate reports it
	case port == 0:
		return ports, fmt.Errorf("eirinix: manifests.Of: ManagerOptions.ListenAddress is %q, but a pod's port must be known before; set it to a fixed one, such as \":8443\"", o.ListenAddress)
	case !serving.EveryAddress(host):
		return ports, fmt.Errorf("eirinix: manifests.Of: the program would listen only on %s, which other machines cannot reach in a pod; set ManagerOptions.ListenAddress to \":%d\"", net.JoinHostPort(host, strconv.Itoa(port)), port)
	}
	ports.Webhook = int32(port)
	return ports, nil
}

// checkOwnPods returns an error if a step would be called for the program's own pods, which have these labels. Those would
// be refused while no replica can be reached, so that the program could never start again once all replicas are down.
func checkOwnPods(d seam.Deployment, own map[string]string) error {
	steps, err := d.Steps(nil)
	if err != nil {
		return err
	}
	for _, s := range steps {
		if webhookconf.BlocksNewPods(s, d.Webhooks, d.Namespace, own) {
			return fmt.Errorf("eirinix: manifests.Of: step %q would be called for the program's own pods in namespace %q, which could not start while all replicas are down; "+
				"set ManagerOptions.WebhookNamespace to a namespace of their own and Namespace to that of the pods that it handles, or use Service mode (ServiceName), or leave them out with Settings.Objects", s.Name, d.Namespace)
		}
	}
	return nil
}
