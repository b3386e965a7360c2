package world

// This file is a step about a kind that the cluster serves only later. It waits alone, and is registered at once when the definition of
// the kind comes.

import (
	"context"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
)

const (
	comer = "comes" // the step

	// comesWithin is how long it takes at most from the event of the definition until the step is registered. The kind is served by then.
	comesWithin = 6 * time.Second
)

// comes reports whether the program has such a step.
func (p Plan) comes() bool {
	return p.Seed%4 == 0 && !p.Judges && !p.Split && !p.audits() && p.settled("right", "registration")
}

// addComer adds the step.
func addComer(m *eirinix.ExtensionManager) error {
	return m.AddExtension(eirinix.Validation[*schedulingv1.PriorityClass]{
		ID: comer, Settings: eirinix.Settings{Isolated: true, FailurePolicy: admissionregistrationv1.Ignore},
		Create: func(context.Context, *eirinix.Call, *schedulingv1.PriorityClass) error { return nil },
	})
}

// holdsComer reports whether the step is registered. The caller holds mu.
func (w *World) holdsComer() bool {
	return slices.ContainsFunc(webhooksOf(w.history[configurations[1]].last()), func(h hook) bool { return strings.HasPrefix(h.Name, comer+".") })
}

// serveLater has the kind served after a while, and its definition made in the same moment.
func (w *World) serveLater() {
	if !w.plan.comes() {
		return
	}
	rng := w.stream("comes", 0)
	if !w.wait(settling+time.Duration(rng.Int64N(int64(40*time.Minute)))) || !w.calm(settling) {
		return
	}
	now, err := gather()
	w.mu.Lock()
	if n := now.of("registration_waiting", "reason=kind", "secret="+namespace+"/"+theSecret); err == nil && n != 1 && w.lives() {
		w.breaks("a step waits for its kind, and eirinix_registration_waiting is %d", n)
	}
	if w.holdsComer() {
		w.breaks("the step %s is registered, and its kind is not served", comer)
	}
	starts, stirred, one := w.started, w.watch.stirred, w.lives()
	w.mu.Unlock()
	began := time.Now()
	w.tell(fate, "has the kind of the step %s served, and its definition made", comer)
	w.rights.came()
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "priorityclasses." + schedulingv1.GroupName}}
	d.Spec.Group, d.Spec.Scope = schedulingv1.GroupName, apiextensionsv1.ClusterScoped
	d.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "priorityclasses", Kind: "PriorityClass"}
	if err := w.api.Put(d); err != nil {
		w.violate("a definition cannot be made: %v", err)
	}
	if !w.wait(comesWithin + 2*w.plan.Lag) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if one && !w.holdsComer() && w.started == starts && w.watch.stirred.Equal(stirred) && !w.troubledSince(began.Add(-settling), rough, slow, spoiled, lapsed, apart, unissued, strange) {
		w.breaks("the kind of the step %s is served since %s, as the event of its definition has told, and it is not registered", comer, time.Since(began).Round(time.Second))
	}
}

// lives reports whether replicas of one version are at work, and no others. The caller holds mu.
func (w *World) lives() bool {
	for _, p := range w.processes {
		if p.release.name != w.processes[0].release.name || p.leaving || p.readySince.IsZero() || time.Since(p.readySince) < time.Minute || !p.wire.hears() {
			return false
		}
	}
	return len(w.processes) > 0
}

// came has the kind served.
func (r *rights) came() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.coming = false
}
