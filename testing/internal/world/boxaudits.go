package world

// This file reckons the findings of steps about boxes in an audit of the boxes that exist.

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/audit"
)

// crates is the number of boxes that exist before the program.
const crates = 3

// existingBoxes returns pods that are boxes. Some of them have orders to steps.
func (w *World) existingBoxes(rng *rand.Rand) (all []*unstructured.Unstructured) {
	for n := range crates {
		name := "crate" + string(rune('a'+n))
		o := w.box("Pod", name, rng)
		if o.SetUID(types.UID("uid-" + name)); n == 1 {
			o.SetNamespace(bank)
		}
		labels := o.GetLabels()
		for _, s := range w.boxes {
			if delete(labels, does+s.name); rng.IntN(4) == 0 {
				labels[does+s.name] = []string{deny, invalid, lacks, badRequest, elsewhereForbidden, fail, panics}[rng.IntN(6+max(0, 1-n))] // later panics of a step are only counted
			}
		}
		o.SetLabels(labels)
		all = append(all, o)
	}
	return all
}

// boxStepOf returns a step about boxes.
func (w *World) boxStepOf(name string) (boxStep, bool) {
	i := slices.IndexFunc(w.boxes, func(s boxStep) bool { return s.name == name })
	if i < 0 {
		return boxStep{}, false
	}
	return w.boxes[i], true
}

// examined is the result of a step about boxes for one of them, and whether an update of its labels alone is denied, too.
type examined struct {
	result audit.Result
	frozen bool
}

// ofBox returns the results of all steps about boxes for an object. Each step that changes objects, and is in Deny, changes it for
// those behind it.
func (w *World) ofBox(object *unstructured.Unstructured) map[string]examined {
	created := object.DeepCopy()
	delete(created.Object, "status")
	for _, name := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
		unstructured.RemoveNestedField(created.Object, "metadata", name)
	}
	updated := object.DeepCopy()
	results := map[string]examined{}
	inOrder := slices.Clone(w.boxes)
	slices.SortStableFunc(inOrder, func(a, b boxStep) int {
		rank := map[bool]int{true: 1}
		return rank[a.judges] - rank[b.judges]
	})
	for _, s := range inOrder {
		results[s.name] = s.examines(object, created, updated)
	}
	return results
}

// examines asks the step about an object, and changes the one that would be created or updated as the step does.
func (s boxStep) examines(stored, created, updated *unstructured.Unstructured) examined {
	for _, operation := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update} {
		a := ask{operation: operation, kind: metav1.GroupVersionKind{Version: "v1", Kind: stored.GetKind()}, object: created}
		if operation == admissionv1.Update {
			a.object, a.old = updated, stored
		}
		if !s.wants(a, a.object, false) || s.leavesOut(a) {
			continue
		}
		was := a.object.DeepCopy()
		to := s.isTo(was, deny, invalid, lacks, badRequest, elsewhereForbidden, fail, panics)
		switch _, denies := refusals[to]; {
		case denies:
			frozen := slices.Contains(s.Operations, admissionregistrationv1.Update) && selectsObject(s.Objects, stored)
			same := ask{operation: admissionv1.Update, old: stored, object: stored}
			return examined{audit.Denied, frozen && s.isTo(stored, to) != "" && !s.excuses(same, to)}
		case to != "":
			return examined{result: audit.Failed}
		case s.judges || s.form == silentForm:
			return examined{result: nothing}
		}
		is := s.changed(was)
		if reflect.DeepEqual(was.Object, is.Object) {
			return examined{result: nothing}
		}
		if s.Mode == "" || s.Mode == eirinix.ModeDeny {
			created.Object, updated.Object = s.changed(created).Object, s.changed(updated).Object
		}
		return examined{result: audit.Drift}
	}
	return examined{result: unasked}
}

// isBoxStep reports whether a step is about boxes.
func isBoxStep(name string) bool { return strings.HasPrefix(name, boxed) }
