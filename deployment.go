package eirinix

// This file derives what a program needs where it is deployed: its rights, and that it is not called for its own pods.

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/manifest"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/seam"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// deployment is seam.Program.Deployment.
func (m *ExtensionManager) deployment() (seam.Deployment, error) {
	s := m.given()
	s.options.Certificates = m.certificateSource()
	o, serves := s.options, s.serves()
	namespace := cmp.Or(o.WebhookNamespace, o.Namespace)
	d := seam.Deployment{
		Namespace: namespace, ServicePort: o.port(), Listen: o.listen, ListenAddress: o.ListenAddress,
		HealthAddress: o.HealthProbeBindAddress, MetricsAddress: o.MetricsBindAddress,
		Serves: serves, Registers: *o.RegisterWebHook, Reconciles: len(s.reconcilers) > 0,
		MaxRequestBytes: cmp.Or(o.MaxRequestBytes, defaultMaxRequestBytes), DrainDelay: o.drainDelay(), UnregisterTimeout: unregisterTimeout,
		Rights: s.rights(namespace), Mapper: s.offlineMapper(newResolver(o, resources.Cluster{}).scheme, nil),
		Blocks: func(labels map[string]string) (string, error) { return s.blocks(namespace, labels) },
	}
	if namespace == o.ownNamespace {
		d.Namespace = ""
	}
	if serves {
		d.Service = o.ServiceName
	}
	d.Webhooks = func() ([]admissionregistrationv1.MutatingWebhook, error) { return s.alone(d.Mapper) }
	var err error
	d.Rights.Reads, err = o.readRights(s.steps, d.Mapper)
	return d, err
}

// alone returns the webhook that each step would have alone.
func (s setup) alone(mapper meta.RESTMapper) (webhooks []admissionregistrationv1.MutatingWebhook, _ error) {
	plain, r := newResolver(s.options, resources.Cluster{}), newResolver(s.options, resources.Cluster{Mapper: mapper})
	for _, d := range s.steps {
		step, err := r.resolve(d)
		if _, absent := errors.AsType[*resources.NotServedError](err); absent && len(d.settings.Rules) > 0 {
			step, err = plain.resolve(d) // its Rules name the resources
		}
		if err != nil {
			return nil, prefixed(err)
		}
		webhooks = append(webhooks, s.options.webhookOptions(s.options.port()).Alone(step))
	}
	return webhooks, nil
}

// blocks returns the name of a step that is called for pods with these labels in a namespace, and denies them while the
// program is down. It returns "" if there is none.
func (s setup) blocks(namespace string, labels map[string]string) (string, error) {
	r := newResolver(s.options, resources.Cluster{})
	for _, d := range s.steps {
		step, err := r.resolve(d)
		if err != nil {
			return "", err
		}
		if webhookconf.BlocksNewPods(step, s.options.webhookOptions(s.options.port()), namespace, labels) {
			return d.name, nil
		}
	}
	return "", nil
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
		r.Versions, r.Modes = o.versionsName(), o.Modes
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
	return "this program is called for its own pod, which can therefore not start while all replicas are down; set the label in the pod template, as manifests.Of does"
}
