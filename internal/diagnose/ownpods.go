package diagnose

// This file finds webhooks that keep this program's own pods from starting.

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// newPods is the rule for the creation of pods.
var newPods = []admissionregistrationv1.RuleWithOperations{{
	Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
	Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
}}

// ownNamespace returns the labels that the program's namespace is known to have.
func (d *diagnostic) ownNamespace() labels.Set {
	return labels.Set{corev1.LabelMetadataName: d.Canary.Namespace}
}

// forOwnPods reports whether a webhook may be called for the creation of pods in the program's namespace. The program
// runs there only in Service mode.
func (d *diagnostic) forOwnPods(h hook) bool {
	return d.Canary.Namespace != "" && d.serviceMode() && resources.Overlap(h.Rules, newPods) && webhookconf.Selects(h.NamespaceSelector, d.ownNamespace())
}

// checkOwnPods finds webhooks of this program that refuse its own pods while no replica answers. Then no replica can
// start. Registration excludes these pods, unless Settings ask for them. Otherwise another client has changed the
// webhook, or the pods lack their label.
func (d *diagnostic) checkOwnPods(ctx context.Context, all []hook) {
	var unmarked labels.Set // of the program's pods, as far as the Service selects by them
	for _, h := range all {
		if !d.isOurs(h) || h.ignores() || len(h.MatchConditions) > 0 || !d.forOwnPods(h) {
			continue
		}
		if unmarked == nil {
			unmarked = labels.Merge(nil, d.lookup(ctx, d.Options.Target).service.Spec.Selector)
		}
		marked := labels.Merge(unmarked, labels.Set{webhookconf.FingerprintLabel: d.Options.Fingerprint})
		i := slices.IndexFunc(d.Entries, func(e webhookconf.Entry) bool { return d.Options.WebhookName(e.Name) == h.Name && h.kind.Holds(e) })
		switch {
		case !webhookconf.Selects(h.ObjectSelector, marked):
			if len(unmarked) > 0 && webhookconf.Selects(h.ObjectSelector, unmarked) {
				d.add(d.perhapsUnmarked(h))
			}
		case i >= 0 && d.wants(d.Entries[i], marked):
			d.add(d.blocksOnPurpose(h, d.Entries[i]))
		default:
			d.add(d.blocksItself(h, diagnosis.Problem,
				"the registration excludes them, so "+d.register()))
		}
	}
}

// wants reports whether the program registers the entry for its own pods.
func (d *diagnostic) wants(e webhookconf.Entry, pods labels.Set) bool {
	w := d.Options.Webhook(e)
	return webhookconf.Selects(w.NamespaceSelector, d.ownNamespace()) && webhookconf.Selects(w.ObjectSelector, pods)
}

func (d *diagnostic) blocksItself(h hook, severity diagnosis.Severity, remedy string) diagnosis.Finding {
	return diagnosis.Finding{
		Code: diagnosis.BlocksItself, Severity: severity, Object: h.String(),
		Message: fmt.Sprintf("%s refuses pods in Namespace %s while this program does not answer, and the program runs in such pods: "+
			"once all replicas are down, none can start", h, d.Canary.Namespace),
		Remedy: fmt.Sprintf("%s; only while no replica can start: %s, which the program registers again", remedy, h.deletes()),
	}
}

// blocksOnPurpose returns the finding for an entry whose settings ask for the program's own pods.
func (d *diagnostic) blocksOnPurpose(h hook, e webhookconf.Entry) diagnosis.Finding {
	extensions := "step " + strings.Join(e.StepNames(), ", ")
	remedy := fmt.Sprintf("leave Namespace %s out in Settings.Namespaces of %s", d.Canary.Namespace, extensions)
	if e.AllowClusterCritical {
		remedy += ", or except this program's pods with Settings.Conditions"
	}
	return d.blocksItself(h, diagnosis.Warning, remedy)
}

// perhapsUnmarked returns the finding for a webhook that spares pods with the program's label, where the Service does not
// select by that label.
func (d *diagnostic) perhapsUnmarked(h hook) diagnosis.Finding {
	label := webhookconf.FingerprintLabel + "=" + d.Options.Fingerprint
	f := d.blocksItself(h, diagnosis.Warning, fmt.Sprintf("give the pods the label %s, and the selector of %s once all of them have it, as manifests.Of does", label, d.service()))
	f.Message = fmt.Sprintf("%s spares this program's pods only if they have the label %s, by which %s does not select: without it, "+
		"no replica can start once all are down", h, label, d.service())
	return f
}

// Unmarked reports whether a pod of the program lacks the program's label. A pod that cannot be read does not.
func Unmarked(ctx context.Context, clients cluster.Clients, fingerprint, namespace, name string) bool {
	pod, err := clients.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	return err == nil && pod.Labels[webhookconf.FingerprintLabel] != fingerprint
}
