package diagnose

// This file finds webhooks of other programs that refuse the same objects, or use up the time of a request.

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// checkOthers finds webhooks of other programs that reject the same objects because their server is missing. Users tend
// to blame the webhook that they know.
func (d *diagnostic) checkOthers(ctx context.Context) {
	seen := map[webhookconf.Target]string{}
	all := slices.DeleteFunc(slices.Clone(d.allHooks(ctx)), func(h hook) bool { return d.isOrphan[h.String()] })
	if !d.waits { // otherwise the webhooks are another version's
		d.checkOwnPods(ctx, all)
	}
	d.checkTimeouts(all)
	for _, h := range all {
		same := d.sameObjects(h) && d.sameNamespaces(h)
		if d.isOurs(h) || h.ignores() || h.ClientConfig.Service == nil || !same && !d.forOwnPods(h) {
			continue
		}
		address, _ := h.target()
		why, known := seen[address]
		if !known {
			why = d.dead(ctx, address)
			seen[address] = why
		}
		if why == "" {
			continue
		}
		why = fmt.Sprintf("its %s %s", address, why)
		f := d.shadowed(h, "objects that this program is called for", why)
		if !same {
			f = d.shadowed(h, "pods that this program runs in, so that no replica can start", why)
		}
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
				names = append(names, fmt.Sprintf("%s (%d s)", h, h.timeout()))
				sum += h.timeout()
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

// timeout returns how long the API server waits for the webhook, in seconds.
func (h hook) timeout() int32 {
	return ptr.Deref(h.TimeoutSeconds, 10) // the API's default
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
	return len(h.MatchConditions) == 0 && (s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0)
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
	if d.isOrphan[h.String()] {
		return d.orphans([]hook{h}, false) // which has been reported already, without this evidence
	}
	shadowed := d.shadowed(h, "objects that this program is called for", f.reason)
	if !found {
		shadowed.Remedy = "find it among the mutating and validating webhook configurations, and repair it"
	}
	return shadowed
}
