package manifests

// This file grants access to the program's metrics.

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	metricsPort = "metrics"  // the name of the pods' port for metrics
	metricsPath = "/metrics" // the path at which controller-runtime serves metrics
)

// readers returns the rights of clients that read metrics: a ClusterRole and, for a PodMonitor, an account that has the
// role.
func (c component) readers() []client.Object {
	p := c.program
	if !p.Rights.Reviews {
		return nil
	}
	role := c.role + ":metrics"
	objects := []client.Object{&rbacv1.ClusterRole{
		ObjectMeta: describe(c.meta(role, ""),
			"Bind it to the account that reads the program's metrics. The right applies to every server that checks it, such as API servers, not to this program alone."),
		Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{metricsPath}, Verbs: []string{"get"}}},
	}}
	if !p.PodMonitor {
		return objects
	}
	name := c.readerName()
	return append(objects,
		&corev1.ServiceAccount{
			ObjectMeta:                   describe(c.meta(name, p.Namespace), "Prometheus reads metrics with the token of this account."),
			AutomountServiceAccountToken: new(false),
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: c.meta(role, ""),
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: p.Namespace}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		},
		&corev1.Secret{
			ObjectMeta: annotate(c.meta(name, p.Namespace), corev1.ServiceAccountNameKey, name),
			Type:       corev1.SecretTypeServiceAccountToken,
		})
}

// readerName returns the name of a PodMonitor's account and of the Secret with its token.
func (c component) readerName() string { return shorten(c.name, "-metrics", maxAccountName) }

// podMonitor returns the PodMonitor with which the Prometheus of a Prometheus operator scrapes the pods. A PodMonitor
// cannot refer to a file with Prometheus' own token. Prometheus reads the token from a Secret in the PodMonitor's
// namespace instead.
//
// No CA is set, because a program has none before its first certificate. Without a CA the token is sent to an
// unverified server, but it only allows reading metrics.
func (c component) podMonitor() *unstructured.Unstructured {
	p := c.program
	endpoint := map[string]any{"port": metricsPort, "path": metricsPath, "scheme": "http"}
	if p.Rights.Reviews {
		endpoint["scheme"] = "https"
		endpoint["tlsConfig"] = map[string]any{"insecureSkipVerify": true}
		endpoint["authorization"] = map[string]any{
			"type":        "Bearer",
			"credentials": map[string]any{"name": c.readerName(), "key": corev1.ServiceAccountTokenKey},
		}
	}
	monitor := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"podMetricsEndpoints": []any{endpoint}}}}
	_ = unstructured.SetNestedStringMap(monitor.Object, c.selector().MatchLabels, "spec", "selector", "matchLabels") // into a map
	monitor.SetAPIVersion("monitoring.coreos.com/v1")
	monitor.SetKind("PodMonitor")
	meta := c.meta(c.name, p.Namespace)
	monitor.SetName(meta.Name)
	monitor.SetNamespace(meta.Namespace)
	monitor.SetLabels(meta.Labels)
	monitor.SetAnnotations(meta.Annotations)
	return monitor
}
