package diagnose

// This file finds other webhooks in the way of this program: orphans that call it, those that refuse the same objects or
// use up the time of a request, and those that keep its own pods from starting.

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// checkOrphans reports the webhooks of other configurations that call this program's address. They fail for everything,
// because no path or certificate fits, or run its steps a second time.
func (d *diagnostic) checkOrphans(ctx context.Context) {
	all := d.allHooks(ctx)
	for i, h := range all {
		all[i].orphan = d.orphaned(ctx, h)
	}
	for _, c := range slices.Compact(list.Of(all, func(h hook) configuration { return h.configuration })) {
		hooks := slices.DeleteFunc(slices.Clone(all), func(h hook) bool { return h.configuration != c })
		orphans := slices.DeleteFunc(slices.Clone(hooks), func(h hook) bool { return !h.orphan })
		if len(orphans) > 0 {
			d.add(d.orphans(orphans, len(orphans) == len(hooks)))
		}
	}
}

// orphans returns the finding for the orphans of one configuration. whole means that it holds nothing else.
func (d *diagnostic) orphans(all []hook, whole bool) diagnosis.Finding {
	names, h := list.Of(all, func(o hook) string { return o.Name }), all[0]
	f := problem(diagnosis.Orphaned, h.configuration.String(),
		fmt.Sprintf("%s calls this program at %s for %s, but is not its configuration (%s): these calls fail, or run its steps again, "+
			"as after a change of ManagerOptions.OperatorFingerprint", h.configuration, d.Options.Target, listed(names), h.kind.ConfigurationName(d.Options.Fingerprint)),
		"once no replica with that fingerprint runs, "+h.deletes())
	if !whole {
		f.Remedy = fmt.Sprintf("once no program registers them, remove %s from %s, which holds other webhooks too", listed(names), h.configuration)
	}
	return f
}

// orphaned reports whether a webhook calls this program and is not its own. Below the prefixes of this program no other
// handler can answer. Elsewhere the server may have other handlers, of a controller-runtime manager that shares it, so
// it is asked.
func (d *diagnostic) orphaned(ctx context.Context, h hook) bool {
	at, path := webhookconf.TargetOf(h.ClientConfig)
	if at.String() != d.Options.Target.String() || d.isOurs(h) {
		return false
	}
	below := func(validating bool) bool {
		return strings.HasPrefix(path, d.Canary.Prefix+webhookconf.PathOf(validating, ""))
	}
	return d.Canary.Namespace != "" && (below(false) || below(true)) || d.Listen != "" && d.lacks(ctx, path)
}

// lacks reports whether the server of this process has nothing on the path.
func (d *diagnostic) lacks(ctx context.Context, path string) bool {
	own, _ := d.own()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+own+path, http.NoBody)
	if err != nil {
		return false
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} // no data is sent
	response, err := (&http.Client{Transport: transport, Timeout: d.Timeout}).Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusNotFound
}

// checkOthers finds webhooks of other programs that reject the same objects because their server is missing. Users tend
// to blame the webhook that they know.
func (d *diagnostic) checkOthers(ctx context.Context) {
	seen := map[webhookconf.Target]string{}
	all := slices.DeleteFunc(slices.Clone(d.allHooks(ctx)), func(h hook) bool { return h.orphan })
	if !d.waits { // otherwise the webhooks are another version's
		d.checkOwnPods(ctx, all)
	}
	d.checkTimeouts(all)
	for _, h := range all {
		same := d.sameObjects(h) && d.sameNamespaces(h)
		if d.isOurs(h) || h.ignores() || h.ClientConfig.Service == nil || !same && !d.forOwnPods(h) {
			continue
		}
		address, _ := webhookconf.TargetOf(h.ClientConfig)
		why, known := seen[address]
		if !known {
			why = d.dead(ctx, address)
			seen[address] = why
		}
		if why == "" {
			continue
		}
		objects := "objects that this program is called for"
		if !same {
			objects = "pods that this program runs in, so that no replica can start"
		}
		f := d.shadowed(h, objects, fmt.Sprintf("its %s %s", address, why))
		if !same || !matchesAll(h) {
			f.Severity = diagnosis.Warning // perhaps not for the same objects
		}
		d.add(f)
	}
}

func (d *diagnostic) isOurs(h hook) bool { return slices.Contains(d.bothKinds(), h.configuration) }

// sameObjects reports whether a webhook is called for some of the objects that ours are called for.
func (d *diagnostic) sameObjects(h hook) bool {
	return slices.ContainsFunc(d.Entries, func(e webhookconf.Entry) bool {
		return e.Name != CanaryName && resources.Overlap(e.Rules, h.Rules)
	})
}

// sameNamespaces reports whether a webhook is called in the one namespace that this program is called in. Without such a
// namespace, it may be.
func (d *diagnostic) sameNamespaces(h hook) bool {
	return d.Options.Namespace == "" || webhookconf.Selects(h.NamespaceSelector, d.labels)
}

// checkTimeouts finds mutating webhooks that ignore failures but together can take longer than the API server has for a
// request. It calls them one after another. If their servers hang, the request fails, although each should be ignored.
func (d *diagnostic) checkTimeouts(all []hook) {
	ignored := slices.DeleteFunc(slices.Clone(all), func(h hook) bool {
		return h.kind != webhookconf.Mutating || !h.ignores() || !d.sameNamespaces(h)
	})
	seen := map[string]bool{}
	for _, e := range d.Entries {
		var names []string
		var sum int32
		for _, h := range ignored {
			if e.Name != CanaryName && resources.Overlap(e.Rules, h.Rules) {
				seconds := ptr.Deref(h.TimeoutSeconds, 10) // the API's default
				names = append(names, fmt.Sprintf("%s (%d s)", h, seconds))
				sum += seconds
			}
		}
		list := strings.Join(names, ", ")
		if sum <= webhookconf.RequestSeconds || seen[list] {
			continue
		}
		seen[list] = true
		d.add(warning(diagnosis.TimeoutsAddUp, "step "+e.Steps[0].Name,
			fmt.Sprintf("the API server calls %s one after another, and these may take %d s, but it has %d s for a request: "+
				"if their servers hang, requests fail, although each has failurePolicy Ignore", list, sum, webhookconf.RequestSeconds),
			fmt.Sprintf("repair those that hang; lower timeoutSeconds, to %d each, only where that is long enough for their answers", max(1, webhookconf.RequestSeconds/len(names)))))
	}
}

// listed joins names in their order. It leaves out those beyond maxNamed.
func listed(names []string) string {
	names = slices.Sorted(slices.Values(names))
	if more := len(names) - maxNamed; more > 0 {
		names = append(names[:maxNamed], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// maxNamed bounds the webhooks that one finding names.
const maxNamed = 10

func matchesAll(h hook) bool {
	s := h.ObjectSelector
	return len(webhookconf.WithoutDying(h.MatchConditions)) == 0 && (s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0)
}

// dead returns the reason why no pod can answer behind a Service. It is empty if a pod might.
func (d *diagnostic) dead(ctx context.Context, at webhookconf.Target) string {
	b := d.lookup(ctx, at)
	switch {
	case b.missing:
		return "does not exist"
	case !b.known || b.external():
		return ""
	case !b.hasPort:
		return "does not exist on that Service"
	case b.ready == 0:
		return "has no ready endpoint"
	}
	return ""
}

func (d *diagnostic) shadowed(h hook, objects, why string) diagnosis.Finding {
	return problem(diagnosis.Shadowed, h.String(),
		fmt.Sprintf("%s, which belongs to another program, fails for %s: %s", h, objects, why),
		"repair it; only if its program is gone for good, remove it from "+h.configuration.String())
}

// shadowedCanary returns the finding for a canary that another webhook received before ours.
func (d *diagnostic) shadowedCanary(ctx context.Context, f failure, text string) diagnosis.Finding {
	h, found := findHook(d.allHooks(ctx), f.webhook)
	if found && d.isOurs(h) {
		return d.brokenPath(ctx, classify(f.reason), f.reason) // one of ours that is called for everything
	}
	if !found {
		h = hook{configuration: configuration{webhookconf.Kind{Name: "webhook configuration"}, "(unknown)"}}
		h.Name = f.webhook
	}
	d.inconclusive = fmt.Sprintf("the API server calls the webhook %s before", f.webhook)
	if f.denied {
		return warning(diagnosis.Shadowed, h.String(),
			fmt.Sprintf("%s refuses the canary before this program is called", h),
			fmt.Sprintf("have it admit ConfigMaps with the label %s in Namespace %s in a dry run, and only then",
				CanaryLabel, d.Canary.Namespace),
			text)
	}
	if h.orphan {
		return d.orphans([]hook{h}, false) // which has been reported already, without this evidence
	}
	shadowed := d.shadowed(h, "objects that this program is called for", f.reason)
	if !found {
		shadowed.Remedy = "find it among the mutating and validating webhook configurations, and repair it"
	}
	return shadowed
}

// newPods is the rule for the creation of pods.
var newPods = []admissionregistrationv1.RuleWithOperations{{
	Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
	Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
}}

// forOwnPods reports whether a webhook may be called for the creation of pods in the program's namespace. The program
// runs there only in Service mode.
func (d *diagnostic) forOwnPods(h hook) bool {
	return d.Canary.Namespace != "" && d.serviceMode() && resources.Overlap(h.Rules, newPods) &&
		webhookconf.Selects(h.NamespaceSelector, labels.Set{corev1.LabelMetadataName: d.Canary.Namespace})
}

// checkOwnPods finds webhooks of this program that refuse its own pods while no replica answers. Then no replica can
// start. Registration excludes these pods, unless Settings ask for them. Otherwise another client has changed the
// webhook, or the pods lack their label.
func (d *diagnostic) checkOwnPods(ctx context.Context, all []hook) {
	var unmarked labels.Set // of the program's pods, as far as the Service selects by them
	for _, h := range all {
		if !d.isOurs(h) || h.ignores() || len(webhookconf.WithoutDying(h.MatchConditions)) > 0 || !d.forOwnPods(h) {
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
			d.add(d.blocksItself(h, diagnosis.Problem, "the registration excludes them, so "+d.register()))
		}
	}
}

// wants reports whether the program registers the entry for its own pods.
func (d *diagnostic) wants(e webhookconf.Entry, pods labels.Set) bool {
	h := hook{MutatingWebhook: d.Options.Webhook(e)}
	return d.forOwnPods(h) && webhookconf.Selects(h.ObjectSelector, pods)
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
	remedy := fmt.Sprintf("leave Namespace %s out in Settings.Namespaces of step %s", d.Canary.Namespace, strings.Join(e.StepNames(), ", "))
	if e.AllowClusterCritical {
		remedy += ", or except this program's pods with Settings.Conditions"
	}
	return d.blocksItself(h, diagnosis.Warning, remedy)
}

// perhapsUnmarked returns the finding for a webhook that spares pods with the program's label, where the Service does not
// select by that label.
func (d *diagnostic) perhapsUnmarked(h hook) diagnosis.Finding {
	label, service := webhookconf.FingerprintLabel+"="+d.Options.Fingerprint, d.Options.Target.Program()
	f := d.blocksItself(h, diagnosis.Warning, fmt.Sprintf("give the pods the label %s, and the selector of %s once all of them have it, as manifests.Of does", label, service))
	f.Message = fmt.Sprintf("%s spares this program's pods only if they have the label %s, by which %s does not select: without it, "+
		"no replica can start once all are down", h, label, service)
	return f
}

// Unmarked reports whether a pod of the program lacks the program's label. A pod that cannot be read does not.
func Unmarked(ctx context.Context, clients cluster.Clients, fingerprint, namespace, name string) bool {
	pod, err := clients.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	return err == nil && pod.Labels[webhookconf.FingerprintLabel] != fingerprint
}
