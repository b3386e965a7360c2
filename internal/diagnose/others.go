package diagnose

// This file finds webhooks of other programs that block the same objects.

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"code.cloudfoundry.org/eirinix/diagnosis"
)

// others finds webhooks of other programs that reject the same objects because their server is missing. Users tend to
// blame the webhook that they know.
func (d *diagnostic) others(ctx context.Context) {
	seen := map[string]string{}
	for _, k := range d.bothKinds() {
		all, err := within(ctx, d.timeout(), k.list)
		if err != nil {
			d.noteMissingRight(err, rightOn(k.resource)("list", ""))
			continue
		}
		for _, c := range all {
			if c.name == k.name {
				continue
			}
			for _, h := range c.hooks {
				d.shadow(ctx, h, seen)
			}
		}
	}
}

func (d *diagnostic) shadow(ctx context.Context, h hook, seen map[string]string) {
	service := h.ClientConfig.Service
	if h.ignores() || service == nil || !d.sameObjects(h) {
		return
	}
	if ns := d.Options.Namespace; ns != "" && !matches(h.NamespaceSelector, d.namespace(ctx, ns).labels) {
		return
	}
	address, _ := h.target()
	why, known := seen[address]
	if !known {
		why = d.dead(ctx, service)
		seen[address] = why
	}
	if why == "" {
		return
	}
	f := d.shadowed(h, fmt.Sprintf("its %s %s", address, why), "")
	if !matchesAll(h) {
		f.Severity = diagnosis.Warning // perhaps not for the same objects
	}
	d.add(f)
}

// sameObjects reports whether a webhook is called for some of the objects that ours are called for.
func (d *diagnostic) sameObjects(h hook) bool {
	for _, e := range d.Entries {
		for _, ours := range e.Rules {
			if e.Name != CanaryName && slices.ContainsFunc(h.Rules, func(theirs admissionregistrationv1.RuleWithOperations) bool { return overlap(ours, theirs) }) {
				return true
			}
		}
	}
	return false
}

func matchesAll(h hook) bool {
	return len(h.MatchConditions) == 0 && (h.ObjectSelector == nil || len(h.ObjectSelector.MatchLabels)+len(h.ObjectSelector.MatchExpressions) == 0)
}

// dead returns the reason why no pod can answer behind a Service. It is empty if a pod might.
func (d *diagnostic) dead(ctx context.Context, s *admissionregistrationv1.ServiceReference) string {
	b, err := within(ctx, d.timeout(), func(ctx context.Context) (backend, error) { return look(ctx, d.Clients, s.Namespace, s.Name) })
	if err != nil {
		d.noteMissingRight(err, diagnosis.Right{Resource: "services", Verb: "get", Namespace: s.Namespace, Name: s.Name})
		return ""
	}
	if b.slicesErr != nil {
		d.noteMissingRight(b.slicesErr, diagnosis.Right{Group: "discovery.k8s.io", Resource: "endpointslices", Verb: "list", Namespace: s.Namespace})
		return ""
	}
	port := int32(443)
	if s.Port != nil {
		port = *s.Port
	}
	_, has := b.port(port)
	ready, _ := b.endpoints(port)
	switch {
	case b.missing:
		return "does not exist"
	case b.external():
		return ""
	case !has:
		return "does not exist on that Service"
	case ready == 0:
		return "has no ready endpoint"
	}
	return ""
}

func (d *diagnostic) shadowed(h hook, why, evidence string) diagnosis.Finding {
	return diagnosis.Finding{
		Code: diagnosis.Shadowed, Severity: diagnosis.Problem, Object: h.String(), Evidence: evidence,
		Message: fmt.Sprintf("%s, which is not of this program, fails for objects that this program is called for: %s", h, why),
		Remedy:  fmt.Sprintf("repair it, or remove it with kubectl delete %s %s if its program is gone", strings.ToLower(h.kind), h.configuration),
	}
}

// shadowedCanary returns the finding for a canary that another webhook received before ours.
func (d *diagnostic) shadowedCanary(ctx context.Context, f failure, text string) diagnosis.Finding {
	h, found := d.findHook(ctx, f.webhook)
	if found && slices.ContainsFunc(d.kinds(), func(k kindOf) bool { return k.kind == h.kind && k.name == h.configuration }) {
		return d.brokenPath(ctx, classify(f.reason), f.reason) // one of ours that is called for everything
	}
	if !found {
		h = hook{name: f.webhook, kind: "webhook configuration", configuration: "(unknown)"}
	}
	d.inconclusive = fmt.Sprintf("the webhook %s is called before", f.webhook)
	if f.denied {
		return diagnosis.Finding{
			Code: diagnosis.Shadowed, Severity: diagnosis.Warning, Object: h.String(), Evidence: text,
			Message: fmt.Sprintf("%s refuses the canary before this program is called", h),
			Remedy:  fmt.Sprintf("let it admit ConfigMaps with the label %s in Namespace %s", CanaryLabel, d.Canary.Namespace),
		}
	}
	shadowed := d.shadowed(h, f.reason, "")
	if !found {
		shadowed.Remedy = "look for it among the mutating and validating webhook configurations, and repair or remove it"
	}
	return shadowed
}

// findHook returns the entry of that name, with its configuration.
func (d *diagnostic) findHook(ctx context.Context, name string) (hook, bool) {
	for _, k := range d.bothKinds() {
		all, err := within(ctx, d.timeout(), k.list)
		if err != nil {
			d.noteMissingRight(err, rightOn(k.resource)("list", ""))
			continue
		}
		for _, c := range all {
			if h, ok := find(c.hooks, name); ok {
				return h, true
			}
		}
	}
	return hook{}, false
}

// overlap reports whether a request can match both rules. It ignores versions, because an API server converts objects.
func overlap(a, b admissionregistrationv1.RuleWithOperations) bool {
	return anyPair(a.Operations, b.Operations, func(x, y admissionregistrationv1.OperationType) bool { return same(string(x), string(y)) }) &&
		anyPair(a.APIGroups, b.APIGroups, same) && anyPair(a.Resources, b.Resources, sameResource)
}

func anyPair[T any](as, bs []T, test func(a, b T) bool) bool {
	return slices.ContainsFunc(as, func(a T) bool {
		return slices.ContainsFunc(bs, func(b T) bool { return test(a, b) })
	})
}

func same(a, b string) bool { return a == b || a == "*" || b == "*" }

// sameResource compares resources with the wildcards of rules: * is every resource without its subresources, */* is
// everything.
func sameResource(a, b string) bool {
	resourceA, subA, _ := strings.Cut(a, "/")
	resourceB, subB, _ := strings.Cut(b, "/")
	wild := func(sub, other string) bool { return sub == other || sub == "*" || other == "*" }
	return same(resourceA, resourceB) && wild(subA, subB)
}
