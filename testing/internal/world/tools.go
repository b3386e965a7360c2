package world

// This file is a tool that keeps reverting a configuration, and how the program tells of it: in the log with the name of the tool,
// in an Event, in a metric and in a diagnosis.

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/diagnosis"
)

// toldRepairs is the number of repairs, each of which another client has reverted, that are told: the program tells of more than five.
const toldRepairs = 9

// theTool is the field manager of the tool that reverts, and anotherTool that of one which has written before.
const theTool, anotherTool = "a-tool", "an-installer"

// isBy writes into an object that the tool has changed it.
func isBy(object *unstructured.Unstructured) {
	at := func(ago time.Duration) *metav1.Time { return &metav1.Time{Time: time.Now().Add(-ago)} }
	entry := func(manager string, ago time.Duration) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: object.GetAPIVersion(), Time: at(ago)}
	}
	object.SetManagedFields([]metav1.ManagedFieldsEntry{entry(anotherTool, time.Hour), entry(theTool, 0)})
}

// blames looks at the line about a tool that has reverted a configuration many times. The caller holds mu.
func (w *World) blames(b belonging, began time.Time, repaired int) {
	said, named := "", false
	for _, l := range w.story {
		if !l.at.Before(began) && strings.Contains(l.text, "another client keeps reverting") {
			said, named = l.text, named || strings.Contains(l.text, fmt.Sprintf("%q", theTool)) // one that has not repaired it yet knows no name
		}
	}
	switch {
	case said == "":
		w.breaks("the %s was repaired %d times in %s, and no log tells it", b.kind, repaired, time.Since(began).Round(time.Second))
	case !named:
		w.breaks("the tool %s has reverted the %s, and the log does not name it: %s", theTool, b.kind, said)
	}
}

// event returns when an Event of the Secret with a reason was written last; zero for never.
func (w *World) event(reason string) (last time.Time) {
	for _, o := range w.api.Objects() {
		if regarding, _, _ := unstructured.NestedString(o.Object, "regarding", "name"); o.GetKind() != "Event" || regarding != theSecret {
			continue
		}
		if is, _, _ := unstructured.NestedString(o.Object, "reason"); is != reason {
			continue
		}
		for _, at := range [][]string{{"eventTime"}, {"series", "lastObservedTime"}} {
			text, _, _ := unstructured.NestedString(o.Object, at...)
			if seen, err := time.Parse(time.RFC3339Nano, text); err == nil && seen.After(last) {
				last = seen
			}
		}
	}
	return last
}

// missesEntry has a replica of the version that is registered diagnose itself, while a configuration lacks an entry: that is a problem.
func (w *World) missesEntry(b belonging, entry string) {
	w.mu.Lock()
	standing := w.standing()
	var p *process
	for _, one := range w.processes {
		if !one.leaving && !one.readySince.IsZero() && time.Since(one.readySince) > time.Minute && one.release.declares() == standing && one.wire.hears() {
			p = one
		}
	}
	w.mu.Unlock()
	before := w.find(b.kind, b.namespace, b.name)
	if p == nil || before == nil || w.plan.Split || w.plan.Modes || strings.HasPrefix(entry, "eirinix-canary.") { // which is no step
		return
	}
	began := time.Now()
	report := p.diagnosed()
	after := w.find(b.kind, b.namespace, b.name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if after == nil || after.GetResourceVersion() != before.GetResourceVersion() || p.leaving || w.troubledSince(began, rough, slow, lapsed, apart, strange) {
		return
	}
	_, found := report.Find(diagnosis.NotRegistered)
	if _, well := report.Find(diagnosis.Healthy); well || !found || report.Err() == nil {
		w.breaks("the %s lacks the entry %s, and a diagnosis of %s says: %s", b.kind, entry, p, report)
	}
}

// findsNone has a person on a laptop diagnose the program while no replica runs: calls fail, and the diagnosis says so.
func (w *World) findsNone() {
	w.mu.Lock()
	none, of, stirred := len(w.processes) == 0 && w.replicas == 0, w.wanted, w.watch.stirred
	w.mu.Unlock()
	if !none || w.find(configurations[1], "", belongings[1].name) == nil {
		return
	}
	began := time.Now()
	w.tool("diagnoses "+of.name+", of which no replica runs", of, w.stream("none", int(began.Unix())), func(ctx context.Context, m *eirinix.ExtensionManager) error {
		report := m.Diagnose(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		still := len(w.processes) == 0 && w.replicas == 0 && w.watch.stirred.Equal(stirred) && !w.troubledSince(began, slow, spoiled, lapsed, apart, strange)
		if _, well := report.Find(diagnosis.Healthy); still && (well || report.Err() == nil) {
			w.breaks("no replica runs, and a diagnosis finds no problem: %s", report)
		}
		if _, held := report.Find(diagnosis.HoldsObjects); still && w.plan.Converts && !held && !w.excused(unread, began) {
			w.breaks("no replica runs, and a diagnosis does not find that shops can neither be read nor changed: %s", report)
		}
		return nil
	})
}
