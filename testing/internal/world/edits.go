package world

// This file is changes and deletions of pods, several at once. All of the objects differ, and steps wait while they hold them.

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// mostEdits is the number of requests that an API server sends at one moment.
const mostEdits = 6

// edit is a request, and how it must be admitted.
type edit struct {
	ask
	exempt string // why no webhook may be called, if none may
	denied bool   // a Rule refuses it
	unseen bool   // the program leaves it out by itself
}

// edits has an API server admit several requests at the same moment.
func (w *World) edits(rng *rand.Rand, n int) {
	s := w.servers[rng.IntN(len(w.servers))]
	if failing, frozen := s.state(); failing != 0 || frozen != nil {
		return
	}
	all := []edit{}
	for i := range 2 + rng.IntN(mostEdits-1) {
		all = append(all, w.drawEdit(rng, fmt.Sprintf("edited%d-%d", n, i)))
	}
	all = append(all, w.drawAlone(rng, fmt.Sprintf("alone%d", n)))
	for _, e := range all {
		w.tasks.Go(func() {
			ctx, cancel := w.ctx()
			defer cancel()
			began := w.begins()
			v := s.admit(ctx, e.ask)
			if ctx.Err() == nil {
				w.judgeEdit(s, e, began, v)
			}
		})
	}
}

// drawEdit draws a request about a pod of this name.
func (w *World) drawEdit(rng *rand.Rand, name string) edit {
	in := "shop"
	e := edit{ask: ask{operation: admissionv1.Update, resource: podResource, kind: podKind, dry: rng.IntN(6) == 0}}
	if rng.IntN(4) == 0 {
		e.user = manyExtras
	}
	if rng.IntN(10) == 0 {
		in, e.exempt = "kube-system", "it is in a namespace of the cluster's own"
	}
	if own := w.stream("elsewhere "+name, 0); w.plan.only() && e.exempt == "" && own.IntN(6) == 0 {
		in, e.exempt = bank, "it is in another namespace than that of the program's options"
	}
	nonced := func() *unstructured.Unstructured {
		pod := podIn(in, name)
		pod.SetAnnotations(map[string]string{nonceKey: fmt.Sprintf("%016x é, 漢 and 😀", rng.Uint64())})
		all := map[string]string{dropped: "yes", "app": "shop"}
		if rng.IntN(2) == 0 {
			all[slowLabel] = time.Duration(rng.Int64N(int64(time.Second))).String()
		}
		if rng.IntN(4) == 0 {
			pod.Object["spec"].(map[string]any)["hostname"] = strings.Repeat("x", rng.IntN(60))
		}
		pod.SetLabels(all)
		return pod
	}
	label := func(pod *unstructured.Unstructured, key string) {
		all := pod.GetLabels()
		all[key] = "yes"
		pod.SetLabels(all)
	}
	e.old, e.object = nonced(), nonced()
	switch rng.IntN(8) {
	case 0:
		e.operation, e.old = admissionv1.Create, nil
		return e
	case 1, 2:
		if e.operation, e.object = admissionv1.Delete, nil; rng.IntN(4) == 0 {
			label(e.old, undeclared)
		}
		if rng.IntN(4) == 0 {
			dies(e.old)
			e.exempt = "the object is deleted already"
		}
		return e
	case 3: // a dying object loses a finalizer
		dies(e.old)
		e.object = e.old.DeepCopy()
		e.object.SetFinalizers(nil)
		e.exempt = "nothing is left to judge"
		return e
	case 4: // a dying object is edited
		dies(e.old)
		dies(e.object)
	case 5:
		e.object = e.old.DeepCopy()
		e.object.SetResourceVersion("2")
		e.unseen = true
		return e
	case 6: // a variable that the Rule refuses moves, and is another one half the time
		first, moved := variable(brokenRule), variable(brokenRule)
		if e.denied = rng.IntN(2) == 0; e.denied {
			moved["value"] = "another"
		}
		container(e.old)["env"], container(e.object)["env"] = []any{first, variable("last")}, []any{variable("last"), variable("new"), moved}
		return e
	}
	if rng.IntN(3) == 0 {
		label(e.object, brokenRule)
		e.denied = true
		if rng.IntN(2) == 0 { // as before
			label(e.old, brokenRule)
			e.old.Object["spec"] = e.object.DeepCopy().Object["spec"]
			if e.denied = rng.IntN(2) == 0; e.denied { // and the change touches the spec
				e.old.Object["spec"].(map[string]any)["hostname"] = "another"
			}
		}
	}
	return e
}

// dies marks an object as one that is being deleted, and is kept.
func dies(o *unstructured.Unstructured) {
	at := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).Format(time.RFC3339)
	o.SetFinalizers([]string{"example.com/keeps"})
	_ = unstructured.SetNestedField(o.Object, at, "metadata", "deletionTimestamp") // it is an object
}

// judgeEdit looks at how a request was admitted.
func (w *World) judgeEdit(s *apiServer, e edit, began time.Time, v verdict) {
	w.mu.Lock()
	if e.exempt != "" && len(v.called) > 0 {
		w.breaks("%s: %s is called for the %s of a pod, although %s", s.name, v.entries(), e.operation, e.exempt)
	}
	if e.unseen && v.spoke(lenient) > 0 {
		w.breaks("%s: step %s sees a change that changes nothing", s.name, lenient)
	}
	if e.exempt != "" || e.unseen {
		w.mu.Unlock()
		return
	}
	ran := v.spoke(lenient) > 0
	if e.operation != admissionv1.Create && e.denied != (v.denied != "") && (ran || v.denied != "") {
		w.breaks("%s: a change of a pod that the Rule of step %s is to refuse (%t) is %s", s.name, keeper, e.denied, v)
	}
	w.mu.Unlock()
	switch {
	case e.operation == admissionv1.Create:
		w.judge(s, e.ask, "", began, v)
	case v.denied != "":
		v.denied = "" // it is to be
		fallthrough
	default:
		w.judge(s, e.ask, lenient, began, v)
	}
}

// sees looks at whether the steps that judge changes have seen one. The caller holds mu.
func (w *World) sees(s *apiServer, began time.Time, v verdict) {
	w.looksWell(s, began, v)
	for _, one := range v.said {
		if one.failed != nil && strings.Contains(one.failed.Error(), fmt.Sprintf("step %q", lenient)) && !w.troubledSince(began, unread) {
			w.breaks("%s: a change of a pod fails in a step that does not: %v", s.name, one.failed)
		}
	}
	if v.spoke(lenient) == 0 && w.mustRun(lenient, began) && w.reachable(began) && !w.troubledSince(began, rough, slow, apart, evicted) {
		w.breaks("%s: step %s of every live version does not see a change of a pod (called: %s)", s.name, lenient, v.entries())
	}
}
