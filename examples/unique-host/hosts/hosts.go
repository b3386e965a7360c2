// Package hosts holds steps that look at more than the object of the request: other Ingresses, and a ConfigMap.
package hosts

// This file refuses an Ingress whose host another Ingress of the cluster has.

import (
	"context"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
)

// Unique returns the step. Requests at the same time do not see each other; with Reserved, at most one is admitted.
func Unique() eirinix.Validation[*networkingv1.Ingress] {
	return checking(eirinix.Settings{Reads: []eirinix.Read{ingresses()}}, unique)
}

// checking returns a step that checks the hosts that an Ingress gets. Those that it has already are left alone, so that
// an Ingress from before the webhook can still be edited.
func checking(s eirinix.Settings, check func(context.Context, *eirinix.Call, *networkingv1.Ingress, []string) error) eirinix.Validation[*networkingv1.Ingress] {
	return eirinix.Validation[*networkingv1.Ingress]{
		ID: "unique-host", Settings: s,
		Create: func(ctx context.Context, c *eirinix.Call, ingress *networkingv1.Ingress) error {
			return check(ctx, c, ingress, hostsOf(ingress))
		},
		Update: func(ctx context.Context, c *eirinix.Call, old, ingress *networkingv1.Ingress) error {
			had := hostsOf(old)
			return check(ctx, c, ingress, slices.DeleteFunc(hostsOf(ingress), func(host string) bool { return slices.Contains(had, host) }))
		},
	}
}

// ingresses declares all Ingresses of the cluster, of which only the hosts stay in memory.
func ingresses() eirinix.Read {
	return eirinix.Read{
		Object: &networkingv1.Ingress{},
		Transform: func(o client.Object) {
			i := o.(*networkingv1.Ingress)
			*i = networkingv1.Ingress{Spec: networkingv1.IngressSpec{Rules: i.Spec.Rules}}
			for n := range i.Spec.Rules {
				i.Spec.Rules[n].HTTP = nil
			}
		},
		Index: map[string]client.IndexerFunc{"host": hostsOf},
	}
}

func hostsOf(o client.Object) (hosts []string) {
	for _, rule := range o.(*networkingv1.Ingress).Spec.Rules {
		if rule.Host != "" {
			hosts = append(hosts, rule.Host)
		}
	}
	return hosts
}

func unique(ctx context.Context, c *eirinix.Call, ingress *networkingv1.Ingress, hosts []string) error {
	for _, host := range hosts {
		var having networkingv1.IngressList
		if err := c.Reader().List(ctx, &having, client.MatchingFields{"host": host}); err != nil {
			return err
		}
		for _, other := range having.Items {
			if other.Namespace != ingress.Namespace || other.Name != ingress.Name {
				return eirinix.Deny("host %s belongs to Ingress %s/%s", host, other.Namespace, other.Name)
			}
		}
	}
	return nil
}
