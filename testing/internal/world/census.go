package world

// This file is a step about objects of all kinds. It sees no object that a cluster needs to start and to recover, and none without a
// namespace.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
)

const census = "counts" // says which objects it sees, with failurePolicy Ignore

// addCensus gives the Manager the step about all kinds.
func addCensus(m *eirinix.ExtensionManager) error {
	all := []string{"*"}
	says := func(_ context.Context, c *eirinix.Call, o *unstructured.Unstructured) error {
		c.Annotate(census, o.GetKind()+" "+o.GetName())
		return nil
	}
	return m.AddExtension(eirinix.Validation[*unstructured.Unstructured]{
		ID: census, Settings: eirinix.Settings{
			FailurePolicy: admissionregistrationv1.Ignore, DependsOnUser: true, // which leaves it out of audits
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: all, APIVersions: all, Resources: all},
			}},
		},
		Create: says, Update: func(ctx context.Context, c *eirinix.Call, _, o *unstructured.Unstructured) error {
			return says(ctx, c, o)
		},
	})
}

// countsOne has an API server admit an object of some kind, and looks at whether the step has seen it.
func (w *World) countsOne(rng *rand.Rand, n int) {
	s := w.servers[rng.IntN(len(w.servers))]
	if failing, frozen := s.state(); failing != 0 || frozen != nil {
		return
	}
	one := []struct {
		group, version, resource, kind, namespace, name, subresource string
		counts                                                       bool
	}{
		{"", "v1", "services", "Service", "shop", "", "", true},
		{"", "v1", "services", "Service", "default", "kubernetes", "", false},
		{"", "v1", "configmaps", "ConfigMap", "shop", "", "", true},
		{"", "v1", "configmaps", "ConfigMap", "kube-system", "", "", false},
		{"", "v1", "configmaps", "ConfigMap", namespace, "", "", w.plan.URL && !w.plan.only()},
		{"", "v1", "nodes", "Node", "", "", "", false},
		{"coordination.k8s.io", "v1", "leases", "Lease", "shop", "", "", false},
		{"authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", "shop", "", "", false},
		{"batch", "v1", "jobs", "Job", "shop", "", "", true},
		{"batch", "v1", "jobs", "Job", "shop", "", statusOf, false},
		{group, first, "shops", "Shop", "shop", "", "", true},
	}[rng.IntN(11)]
	if one.name == "" {
		one.name = fmt.Sprint("counted", n)
	}
	made := func() *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"n": rng.Int64()}}}
		o.SetAPIVersion(strings.TrimPrefix(one.group+"/"+one.version, "/"))
		o.SetKind(one.kind)
		o.SetName(one.name)
		o.SetNamespace(one.namespace)
		return o
	}
	a := ask{
		operation: admissionv1.Create, subresource: one.subresource, object: made(),
		resource: metav1.GroupVersionResource{Group: one.group, Version: one.version, Resource: one.resource}, kind: metav1.GroupVersionKind{Group: one.group, Version: one.version, Kind: one.kind},
	}
	if one.subresource != "" || rng.IntN(2) == 0 {
		a.operation, a.old = admissionv1.Update, made()
	}
	began, v, over := w.offers(s, a)
	if over {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := false
	for _, said := range v.said {
		if said.response == nil {
			continue
		}
		for _, saw := range said.annotated(census) {
			if seen = true; saw != one.kind+" "+one.name {
				w.breaks("%s: step %s sees %s, and was sent a %s %s", s.name, census, saw, one.kind, one.name)
			}
		}
	}
	must := w.mustRun(lenient, began) && w.reachable(began) && !w.troubledSince(began, rough, slow, apart, evicted)
	if v.denied != "" || v.failed != nil && must {
		w.breaks("%s: a %s, which no step with Fail is about, is %s", s.name, one.kind, v)
	}
	if seen && !one.counts || !seen && one.counts && must {
		w.breaks("%s: step %s sees a %s %s/%s %s (%t), which it was to see (%t; called: %s)", s.name, census, one.kind, one.namespace, one.name, one.subresource, seen, one.counts, v.entries())
	}
}
