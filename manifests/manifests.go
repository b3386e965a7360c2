// Package manifests makes the objects with which a program runs in a cluster, for its own options and extensions. It writes
// them as YAML, as a Helm chart or as a kustomize base.
package manifests

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/audit"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/mapper"
	"code.cloudfoundry.org/eirinix/internal/policyreport"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/seam"
	"code.cloudfoundry.org/eirinix/internal/serving"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
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
func Of(m *eirinix.ExtensionManager, options Options) ([]client.Object, error) {
	beside, err := seam.Of(m)
	if err != nil {
		return nil, err
	}
	d, unread := beside.Deployment(mapper.New)
	errs := []error{m.Validate()}
	if !d.Serves && !d.Rights.Watches && !d.Reconciles {
		errs = append(errs, errors.New("eirinix: manifests.Of: nothing was added, so there is nothing to deploy; call AddExtension before"))
	}
	p := program{Options: options.withDefaults(beside.Fingerprint, d.MaxRequestBytes, d.Serves), Deployment: d, fingerprint: beside.Fingerprint}
	p.ports, err = portsOf(m.GetManagerOptions(), d)
	errs = append(errs, options.validate(p.ports.metrics), err, unread)
	if d.Namespace == "" {
		errs = append(errs, errors.New("eirinix: manifests.Of: ManagerOptions.WebhookNamespace is empty; set it to the namespace that the program is to run in"))
	}
	if p.AuditSchedule != "" {
		if !d.Serves {
			errs = append(errs, errors.New("eirinix: manifests.Options.AuditSchedule is set, but there is no extension to ask; leave it out"))
		}
		p.auditLists, err = auditLists(d)
		if errs = append(errs, err); p.writesReports() {
			p.reports = policyreport.Resources()
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := p.checkOwnPods(); err != nil {
		return nil, err
	}
	if len(os.Args) > 1 && options.Args == nil {
		m.GetLogger().Warn("this process was given arguments, but its manifests pass none to the pods: set manifests.Options.Args " +
			"(FlagArgs builds them from the flags), or set it to an empty slice if the program needs none in the cluster")
	}
	return p.objects(), nil
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

// auditLists returns the resources that an audit lists, by namespace and group. Kinds that the scheme does not hold are
// an error.
func auditLists(d seam.Deployment) (map[string]map[string][]string, error) {
	steps, err := d.Steps(d.Mapper)
	if err != nil {
		return nil, fmt.Errorf("%w; for manifests.Options.AuditSchedule, add its kind to ManagerOptions.Scheme", err)
	}
	webhooks := list.Of(steps, func(s webhookconf.Step) admissionregistrationv1.MutatingWebhook { return alone(d, s) })
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
func portsOf(o eirinix.ManagerOptions, d seam.Deployment) (ports, error) {
	open := ports{health: bindPort(o.HealthProbeBindAddress), metrics: bindPort(o.MetricsBindAddress)}
	host, port, err := d.Listen()
	switch {
	case !d.Serves, err != nil:
		return open, nil //nolint:nilerr // Validate reports it
	case port == 0:
		return open, fmt.Errorf("eirinix: manifests.Of: ManagerOptions.ListenAddress is %q, but a pod's port must be known before; set it to a fixed one, such as \":8443\"", o.ListenAddress)
	case !serving.EveryAddress(host):
		return open, fmt.Errorf("eirinix: manifests.Of: the program would listen only on %s, which other machines cannot reach in a pod; set ManagerOptions.ListenAddress to \":%d\"", net.JoinHostPort(host, strconv.Itoa(port)), port)
	}
	open.webhook = int32(port)
	return open, nil
}

// bindPort returns the port of a listen address that other machines can reach. It returns 0 for an address that they
// cannot reach, or that is switched off.
func bindPort(address string) int32 {
	host, service, _ := net.SplitHostPort(address)
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil || !serving.EveryAddress(host) {
		return 0
	}
	return int32(port)
}

// checkOwnPods returns an error if a step would be called for the program's own pods. Those would be refused while no replica
// can be reached, so that the program could never start again once all replicas are down.
func (p *program) checkOwnPods() error {
	steps, err := p.Steps(nil)
	if err != nil {
		return err
	}
	for _, s := range steps {
		if p.blocksOwnPods(s) {
			return fmt.Errorf("eirinix: manifests.Of: step %q would be called for the program's own pods in namespace %q, which could not start while all replicas are down; "+
				"set ManagerOptions.WebhookNamespace to a namespace of their own and Namespace to that of the pods that it handles, or use Service mode (ServiceName), or leave them out with Settings.Objects", s.Name, p.Namespace)
		}
	}
	return nil
}

// blocksOwnPods reports whether a step denies the program's new pods while the program is down. It returns false for a
// step with conditions, because only the API server can evaluate them, and for one with AllowClusterCritical, because
// its user has accepted that.
func (p *program) blocksOwnPods(s webhookconf.Step) bool {
	created := &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: p.Namespace,
	}
	if s.AllowClusterCritical || len(s.Conditions) > 0 || s.FailurePolicy == admissionregistrationv1.Ignore || !resources.Match(s.Rules, created) {
		return false
	}
	w := alone(p.Deployment, s)
	return webhookconf.Selects(w.NamespaceSelector, labels.Set{corev1.LabelMetadataName: p.Namespace}) && webhookconf.Selects(w.ObjectSelector, p.podLabels())
}

// alone returns the webhook that a step would have alone.
func alone(d seam.Deployment, s webhookconf.Step) admissionregistrationv1.MutatingWebhook {
	return d.Webhooks.Webhook(webhookconf.Group([]webhookconf.Step{s})[0])
}
