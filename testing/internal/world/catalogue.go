package world

// This file is a catalogue of objects that a step reads in several ways, which agree with each other in one call.

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
)

const (
	floorLabel = "floor"
	floors     = 3
	tenants    = 6 // objects
	disagree   = "disagree"
)

// catalogue holds the objects that a step reads: service accounts by their floors, in all namespaces.
func catalogue() eirinix.Read {
	return eirinix.Read{
		Object: &corev1.ServiceAccount{},
		Index:  map[string]client.IndexerFunc{floorLabel: func(o client.Object) []string { return []string{o.GetLabels()[floorLabel]} }},
	}
}

// lowFloors holds some of the same objects, as trees: the API server selects them.
func lowFloors() eirinix.Read {
	return eirinix.Read{
		Object: serviceAccount(), Namespaces: []string{"shop"},
		Labels: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: floorLabel, Operator: metav1.LabelSelectorOpIn, Values: []string{"0", "1"}}}},
		Transform: func(o client.Object) {
			tree := o.(*unstructured.Unstructured)
			tree.Object["floor"] = tree.GetLabels()[floorLabel] + " of " + tree.GetName()
			tree.SetLabels(nil) // they stay
		},
		Index: map[string]client.IndexerFunc{"floor": func(o client.Object) []string {
			text, _, _ := unstructured.NestedString(o.(*unstructured.Unstructured).Object, "floor")
			return []string{text[:1], "any"}
		}},
	}
}

// homes are the namespaces of tenants.
var homes = []string{"shop", elsewhere}

// serviceAccount is an empty object.
func serviceAccount() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("v1")
	o.SetKind("ServiceAccount")
	return o
}

// misfiled returns the fault of the objects on low floors, or "".
func misfiled(ctx context.Context, r client.Reader) (string, error) {
	list := func(by ...client.ListOption) ([]unstructured.Unstructured, error) {
		found := &unstructured.UnstructuredList{}
		found.SetAPIVersion("v1")
		found.SetKind("ServiceAccountList")
		err := r.List(ctx, found, by...)
		return found.Items, err
	}
	all, err := list()
	if err != nil {
		return "", err
	}
	under, err := list(client.MatchingFields{"floor": "any"}, client.InNamespace("shop"))
	if err != nil {
		return "", err
	}
	low := 0
	for floor := range 2 {
		on := fmt.Sprint(floor)
		found, err := list(client.MatchingFields{"floor": on})
		if err != nil {
			return "", err
		}
		low += len(found)
		for _, o := range found {
			one := serviceAccount()
			if err := r.Get(ctx, client.ObjectKeyFromObject(&o), one); err != nil {
				return "", err
			}
			if o.GetLabels()[floorLabel] != on || o.Object["floor"] != on+" of "+o.GetName() || !reflect.DeepEqual(one.Object, o.Object) {
				return fmt.Sprintf("under floor %s is %v, which is %v by itself", on, o.Object, one.Object), nil
			}
		}
	}
	if len(all) != low || len(under) != low {
		return fmt.Sprintf("%d objects are on low floors, %d are under their index, and %d on each of them", len(all), len(under), low), nil
	}
	return "", nil
}

// tenant is an object of the catalogue.
func tenant(n, floor int) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: homes[n%len(homes)], Name: fmt.Sprint("tenant", n), Labels: map[string]string{floorLabel: fmt.Sprint(floor)}}}
}

// movesTenants moves tenants from floor to floor, and some of them out for a while.
func (w *World) movesTenants() {
	rng := w.stream("tenants", 0)
	for w.wait(time.Duration(rng.Int64N(int64(4 * time.Minute)))) {
		if n := rng.IntN(tenants); rng.IntN(4) == 0 {
			w.api.Remove(corev1.Resource("serviceaccounts"), homes[n%len(homes)], tenant(n, 0).Name)
		} else if err := w.api.Put(tenant(n, rng.IntN(floors))); err != nil {
			w.violate("a tenant cannot be moved: %v", err)
		}
	}
}

// disagreement returns how the ways differ in which a step can read the catalogue, or "".
func disagreement(ctx context.Context, r client.Reader) (string, error) {
	list := func(by ...client.ListOption) (names []string, all []corev1.ServiceAccount, err error) {
		var found corev1.ServiceAccountList
		err = r.List(ctx, &found, by...)
		for _, o := range found.Items {
			names = append(names, o.Name)
		}
		return names, found.Items, err
	}
	_, all, err := list()
	if err != nil {
		return "", err
	}
	if !slices.IsSortedFunc(all, func(a, b corev1.ServiceAccount) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), -1) // none comes twice
	}) {
		return fmt.Sprintf("they are listed as %v", all), nil
	}
	for n := range floors * (len(homes) + 1) { // in each namespace, and in all
		var want []string
		on, in := fmt.Sprint(n%floors), append([]string{""}, homes...)[n/floors]
		for _, o := range all {
			if o.Labels[floorLabel] == on && (in == "" || o.Namespace == in) {
				want = append(want, o.Name)
			}
		}
		indexed, _, err := list(client.MatchingFields{floorLabel: on}, client.InNamespace(in))
		if err != nil {
			return "", err
		}
		two, _, err := list(client.InNamespace(in), client.MatchingLabels{floorLabel: on}, client.Limit(2))
		if err != nil {
			return "", err
		}
		if !slices.Equal(indexed, want) || !slices.Equal(two, want[:min(2, len(want))]) {
			return fmt.Sprintf("on floor %s of %q are %v, by the index %v, and the first two by the label %v", on, in, want, indexed, two), nil
		}
	}
	for _, o := range all {
		var one corev1.ServiceAccount
		if err := r.Get(ctx, client.ObjectKeyFromObject(&o), &one); err != nil || one.Labels[floorLabel] != o.Labels[floorLabel] {
			return fmt.Sprintf("%s is on floor %s, and by itself on %s (%v)", o.Name, o.Labels[floorLabel], one.Labels[floorLabel], err), nil
		}
	}
	return misfiled(ctx, r)
}
