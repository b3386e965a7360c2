package diagnose

// This file finds webhooks of other programs that block the same objects.

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// checkOthers finds webhooks of other programs that reject the same objects because their server is missing. Users tend
// to blame the webhook that they know.
func (d *diagnostic) checkOthers(ctx context.Context) {
	seen := map[string]string{}
	for _, h := range d.allHooks(ctx) {
		service := h.ClientConfig.Service
		if d.isOurs(h) || h.ignores() || service == nil || !d.sameObjects(h) {
			continue
		}
		if d.Options.Namespace != "" && !matches(h.NamespaceSelector, d.labels) {
			continue
		}
		address, _ := h.target()
		why, known := seen[address]
		if !known {
			why = d.dead(ctx, service)
			seen[address] = why
		}
		if why == "" {
			continue
		}
		f := d.shadowed(h, fmt.Sprintf("its %s %s", address, why))
		if !matchesAll(h) {
			f.Severity = diagnosis.Warning // perhaps not for the same objects
		}
		d.add(f)
	}
}

func (d *diagnostic) isOurs(h hook) bool {
	return slices.ContainsFunc(d.bothKinds(), func(k kind) bool {
		return k.name == h.kind && k.configuration == h.configuration
	})
}

// sameObjects reports whether a webhook is called for some of the objects that ours are called for.
func (d *diagnostic) sameObjects(h hook) bool {
	return slices.ContainsFunc(d.Entries, func(e webhookconf.Entry) bool {
		return e.Name != CanaryName && anyPair(e.Rules, h.Rules, overlap)
	})
}

func matchesAll(h hook) bool {
	s := h.ObjectSelector
	return len(h.MatchConditions) == 0 && (s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0)
}

// dead returns the reason why no pod can answer behind a Service. It is empty if a pod might.
func (d *diagnostic) dead(ctx context.Context, s *admissionregistrationv1.ServiceReference) string {
	b, known := d.lookup(ctx, s.Namespace, s.Name)
	_, has := b.port(portOf(s))
	ready, _ := b.endpoints(portOf(s))
	switch {
	case b.missing:
		return "does not exist"
	case !known || b.external():
		return ""
	case !has:
		return "does not exist on that Service"
	case ready == 0:
		return "has no ready endpoint"
	}
	return ""
}

func (d *diagnostic) shadowed(h hook, why string) diagnosis.Finding {
	return diagnosis.Finding{
		Code: diagnosis.Shadowed, Severity: diagnosis.Problem, Object: h.String(),
		Message: fmt.Sprintf("%s, which belongs to another program, fails for objects that this program is called "+
			"for: %s", h, why),
		Remedy: fmt.Sprintf("repair it, or remove it with kubectl delete %s %s if its program is gone",
			strings.ToLower(h.kind), h.configuration),
	}
}

// shadowedCanary returns the finding for a canary that another webhook received before ours.
func (d *diagnostic) shadowedCanary(ctx context.Context, f failure, text string) diagnosis.Finding {
	h, found := findHook(d.allHooks(ctx), f.webhook)
	if found && d.isOurs(h) {
		return d.brokenPath(ctx, classify(f.reason), f.reason) // one of ours that is called for everything
	}
	if !found {
		h = hook{kind: "webhook configuration", configuration: "(unknown)"}
		h.Name = f.webhook
	}
	d.inconclusive = fmt.Sprintf("the API server calls the webhook %s before", f.webhook)
	if f.denied {
		return diagnosis.Finding{
			Code: diagnosis.Shadowed, Severity: diagnosis.Warning, Object: h.String(), Evidence: text,
			Message: fmt.Sprintf("%s refuses the canary before this program is called", h),
			Remedy: fmt.Sprintf("have it admit ConfigMaps with the label %s in Namespace %s",
				CanaryLabel, d.Canary.Namespace),
		}
	}
	shadowed := d.shadowed(h, f.reason)
	if !found {
		shadowed.Remedy = "find it among the mutating and validating webhook configurations, and repair or remove it"
	}
	return shadowed
}

// overlap reports whether a request can match both rules. It ignores versions, because an API server converts objects.
func overlap(a, b admissionregistrationv1.RuleWithOperations) bool {
	return anyPair(a.Operations, b.Operations, same) && anyPair(a.APIGroups, b.APIGroups, same) &&
		anyPair(a.Resources, b.Resources, sameResource)
}

func anyPair[T any](as, bs []T, test func(a, b T) bool) bool {
	return slices.ContainsFunc(as, func(a T) bool {
		return slices.ContainsFunc(bs, func(b T) bool { return test(a, b) })
	})
}

func same[T ~string](a, b T) bool { return a == b || a == "*" || b == "*" }

// sameResource compares resources with the wildcards of rules: * is every resource without its subresources, */* is
// everything.
func sameResource(a, b string) bool {
	resourceA, subA, _ := strings.Cut(a, "/")
	resourceB, subB, _ := strings.Cut(b, "/")
	return same(resourceA, resourceB) && same(subA, subB)
}
