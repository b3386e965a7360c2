package world

// This file is replica sets, which their controllers make, and the steps that are about them.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
)

const (
	marker  = "marks"  // changes replica sets with a label, with failurePolicy Ignore
	stamper = "stamps" // the same, behind it in its call, but to none that has an owner
	watcher = "states" // says that it sees the status of a replica set, with failurePolicy Ignore

	tier             = "tier"
	makerOfSets      = "system:serviceaccount:kube-system:deployment-controller"
	statusOf         = "status"
	setsOf, kindOfIt = "replicasets", "ReplicaSet"
)

// addSets gives the Manager the steps about replica sets.
func addSets(m *eirinix.ExtensionManager) error {
	settings := eirinix.Settings{
		FailurePolicy: admissionregistrationv1.Ignore, Objects: &metav1.LabelSelector{MatchLabels: map[string]string{tier: "shop"}},
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
	}
	var errs []error
	for _, step := range []string{marker, stamper} {
		if step == stamper {
			settings.Owned = eirinix.OwnedSkip
		}
		errs = append(errs, m.AddExtension(eirinix.Mutation[*appsv1.ReplicaSet]{
			ID: step, Settings: settings, Apply: func(_ context.Context, _ *eirinix.Call, set *appsv1.ReplicaSet) error {
				if set.Annotations == nil {
					set.Annotations = map[string]string{}
				}
				set.Annotations[step] = "yes"
				return nil
			},
		}))
	}
	errs = append(errs, m.AddExtension(eirinix.Subresource[*appsv1.ReplicaSet]{
		ID: watcher, Resource: appsv1.SchemeGroupVersion.WithResource(setsOf), Subresource: statusOf, Settings: eirinix.Settings{FailurePolicy: admissionregistrationv1.Ignore},
		Check: func(_ context.Context, c *eirinix.Call, _, set *appsv1.ReplicaSet) error {
			c.Annotate(watcher, set.Name)
			return nil
		},
	}))
	return errors.Join(errs...)
}

// setOf is a replica set of a Deployment, or of none.
func setOf(name string, labelled, owned bool) *unstructured.Unstructured {
	pods := map[string]any{"app": "shop"}
	set := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": kindOfIt, "metadata": map[string]any{"name": name, "namespace": "shop"},
		"spec": map[string]any{"replicas": int64(1), "selector": map[string]any{"matchLabels": pods}, "template": map[string]any{
			"metadata": map[string]any{"labels": pods}, "spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "example.com/main"}}},
		}},
	}}
	if labelled {
		set.SetLabels(map[string]string{tier: "shop"})
	}
	if owned {
		set.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "first", UID: "2"}, {APIVersion: "apps/v1", Kind: "Deployment", Name: "shop", UID: "1", Controller: new(true)}})
	}
	return set
}

// replicate has an API server admit something about a replica set, and looks at which steps have seen it.
func (w *World) replicate(rng *rand.Rand, n int) {
	s := w.servers[rng.IntN(len(w.servers))]
	if failing, frozen := s.state(); failing != 0 || frozen != nil {
		return
	}
	name := fmt.Sprint("set", n)
	a := ask{operation: admissionv1.Create, resource: metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: setsOf}, kind: metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: kindOfIt}}
	what, by := "", marker+" "+stamper
	switch rng.IntN(8) {
	case 7:
		what, a.object = "a new one with an owner that does not control it", setOf(name, true, true)
		owners := a.object.GetOwnerReferences()
		owners[1].Controller = []*bool{nil, new(false)}[rng.IntN(2)]
		a.object.SetOwnerReferences(owners)
		a.user = []string{"", makerOfSets}[rng.IntN(2)]
	case 0:
		what, a.object = "a new one", setOf(name, true, false)
	case 1:
		what, by, a.object = "a new one with the owner that its user wrote", marker, setOf(name, true, true)
	case 2:
		what, by, a.object, a.user = "a new one that a controller makes", "", setOf(name, true, true), makerOfSets
	case 3:
		what, a.operation, a.old, a.object = "a change that takes the label away", admissionv1.Update, setOf(name, true, false), setOf(name, false, false)
	case 4:
		what, by, a.operation, a.old, a.object = "a change of its replicas alone", "", admissionv1.Update, setOf(name, true, true), setOf(name, true, true)
		a.object.Object["spec"].(map[string]any)["replicas"] = int64(2)
	case 5:
		what, by, a.operation, a.old, a.object = "a change that gives it an owner", marker, admissionv1.Update, setOf(name, true, false), setOf(name, true, true)
	default:
		what, a.operation, a.old, a.object, a.subresource = "its status", admissionv1.Update, setOf(name, true, false), setOf(name, true, false), statusOf
		a.object.Object[statusOf] = map[string]any{"replicas": int64(1)}
		if rng.IntN(2) == 0 {
			what = "its status, while it is being deleted"
			dies(a.old)
			dies(a.object)
		}
	}
	began, v, over := w.offers(s, a)
	if over {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if v.failed != nil || v.denied != "" {
		w.breaks("%s: a replica set (%s), which no step with Fail selects, is %s", s.name, what, v)
		return
	}
	must := w.mustRun(lenient, began) && w.reachable(began) && !w.troubledSince(began, rough, slow, apart, evicted)
	if a.subresource != "" {
		seen := false
		for _, one := range v.said {
			seen = seen || one.response != nil && len(one.annotated(watcher)) > 0
		}
		if must && !seen {
			w.breaks("%s: step %s of every live version does not see a replica set (%s; called: %s)", s.name, watcher, what, v.entries())
		}
		return
	}
	var all []string
	for _, step := range []string{marker, stamper} {
		if v.object.GetAnnotations()[step] != "" {
			all = append(all, step)
		}
	}
	if changed := strings.Join(all, " "); changed != by && (changed != "" || must) {
		w.breaks("%s: the steps that change a replica set (%s; called: %s) are %q, and were to be %q", s.name, what, v.entries(), changed, by)
	}
}
