package world

// This file is a diagnosis of a program at rest.

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/diagnosis"
)

// diagnoses has a replica, or a tool on a laptop, diagnose the path to the program. Nothing is wrong, and the canary comes through.
func (w *World) diagnoses() {
	rng := w.stream("diagnosis", 0)
	w.mu.Lock()
	w.watch.diagnosed = time.Now()
	w.mu.Unlock()
	runs := false // a tool lists nothing that steps look at
	finds := func(ctx context.Context, m *eirinix.ExtensionManager) error {
		report := m.Diagnose(ctx)
		w.modesTold(report)
		w.storedTold(report)
		if slices.ContainsFunc(w.boxes, func(s boxStep) bool { return s.FixedMode }) {
			if _, refused := report.Find(diagnosis.ModeRefused); !refused {
				w.violate("at rest, a diagnosis does not find that the mode of a step with FixedMode is to be changed: %s", report)
			}
			return nil
		}
		if w.plan.Reads && w.unruled() { // a backup of before the policy has been restored
			if _, missed := report.Find(diagnosis.ReadsNotListed); !missed && runs {
				w.violate("there is no policy, and a diagnosis does not find that: %s", report)
			}
			return nil
		}
		if _, well := report.Find(diagnosis.Healthy); !well && report.Err() == nil {
			w.violate("at rest, a diagnosis finds no problem, and does not say that all is well: %s", report)
		}
		for _, f := range report.Findings {
			if f.Severity == diagnosis.Warning {
				w.violate("at rest, a diagnosis warns: %s", report)
			}
		}
		return report.Err()
	}
	if p := w.any(rng); p != nil && rng.IntN(2) == 0 {
		ctx, cancel := w.ctx()
		defer cancel()
		w.tell(p, "diagnoses itself")
		runs = true
		if err := finds(ctx, p.manager); err != nil {
			w.violate("at rest, %s finds a problem: %v", p, err)
		}
		return
	}
	w.tool("diagnoses "+w.wanted.name, w.wanted, rng, finds)
}

// modesTold compares the modes of steps in a diagnosis with the ConfigMap.
func (w *World) modesTold(report eirinix.Report) {
	if !w.plan.Modes {
		return
	}
	found := w.find("ConfigMap", namespace, modesName)
	if found == nil {
		return
	}
	entries, _, _ := unstructured.NestedStringMap(found.Object, "data")
	var told, refused string
	for _, f := range report.Findings {
		switch f.Code {
		case diagnosis.ModeSet:
			told = f.Message
		case diagnosis.ModeRefused:
			refused = "; " + f.Evidence
		}
	}
	for one := range strings.SplitSeq(told, "the mode of ") {
		if name, _, is := strings.Cut(one, ": "); is && entries[name] == "" {
			w.violate("at rest, a diagnosis tells of a mode that the ConfigMap does not hold (%v): %s", entries, report)
		}
	}
	for name, text := range entries {
		if !strings.Contains(told, "the mode of "+name+": ") && !strings.Contains(refused, "; "+name+": ") {
			w.violate("at rest, the ConfigMap holds the mode %q of step %s, and a diagnosis does not tell of it: %s", text, name, report)
		}
	}
}

// storedTold compares the versions in which objects of the definition may be stored with a diagnosis.
func (w *World) storedTold(report eirinix.Report) {
	found := w.find(definitionKind, "", definitionName)
	if found == nil || !w.plan.Converts {
		return
	}
	stored, _, _ := unstructured.NestedStringSlice(found.Object, "status", "storedVersions")
	_, told := report.Find(diagnosis.StillStored)
	if older := len(stored) > 1; told != older {
		w.violate("at rest, objects are stored in the versions %v, and a diagnosis tells of older ones (%t): %s", stored, told, report)
	}
}

// refusesMode has a replica diagnose itself while the mode of a step is misspelt since then.
func (w *World) refusesMode(step string, since time.Time) {
	w.mu.Lock()
	p := w.settledOne(since.Add(-settling))
	w.mu.Unlock()
	if time.Since(since) < settling/4 || p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	report := p.manager.Diagnose(ctx)
	var now map[string]string
	if found := w.find("ConfigMap", namespace, modesName); found != nil {
		now, _, _ = unstructured.NestedStringMap(found.Object, "data")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if now[step] != noMode || p.leaving || w.troubledSince(since.Add(-settling), rough, slow, lapsed, apart, unread, spoiled) {
		return
	}
	if f, found := report.Find(diagnosis.ModeRefused); !found || f.Remedy == "" || !strings.Contains("; "+f.Evidence, "; "+step+": ") {
		w.breaks("the mode of step %s is misspelt since %s, and a diagnosis of %s does not say so: %s", step, time.Since(since), p, report)
	}
}

// waitsElsewhere has a person diagnose a program with a step about a kind that the cluster does not serve.
func (w *World) waitsElsewhere() {
	const shelves = "shelves"
	w.tool("diagnoses "+w.wanted.name+" with a step about another kind", w.wanted, w.stream("shelves", 0), func(ctx context.Context, m *eirinix.ExtensionManager) error {
		rule := admissionregistrationv1.Rule{APIGroups: []string{"shelves.example.com"}, APIVersions: []string{"v1"}, Resources: []string{shelves}}
		err := m.AddExtension(eirinix.Mutation[*unstructured.Unstructured]{
			ID: shelves, Apply: nothingTo[*unstructured.Unstructured],
			Settings: eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create}, Rule: rule}}},
		})
		report := m.Diagnose(ctx)
		is := func(f eirinix.Finding) bool { return f.Code == diagnosis.NotRegistered && f.Object == "step "+shelves }
		if err != nil || !slices.ContainsFunc(report.Findings, is) {
			w.violate("a program is diagnosed with a step about a kind that the cluster does not serve (%v), and nothing says so: %s", err, report)
		}
		return nil
	})
}

// diagnosesElsewhere has a person on a laptop diagnose the program with an option that does not fit the cluster.
func (w *World) diagnosesElsewhere() {
	const nowhere = "nowhere"
	rng := w.stream("elsewhere", 0)
	n := rng.IntN(4)
	if n == 3 {
		w.waitsElsewhere()
		return
	}
	what := []string{"Namespace", "Service", "Host"}[n]
	w.tool(fmt.Sprintf("diagnoses %s with another %s", w.wanted.name, what), w.wanted, rng, func(ctx context.Context, m *eirinix.ExtensionManager) error {
		o := m.GetManagerOptions()
		switch {
		case n == 0:
			o.Namespace = nowhere
		case w.plan.URL:
			o.Host = nowhere
		default:
			o.ServiceName = nowhere
		}
		m.SetManagerOptions(o)
		report := m.Diagnose(ctx)
		is := func(f eirinix.Finding) bool {
			return (n > 0 || f.Object == "Namespace "+nowhere) && f.Severity != diagnosis.Note && strings.Contains(f.Message+f.Object+f.Evidence, nowhere) && f.Remedy != ""
		}
		if !slices.ContainsFunc(report.Findings, is) {
			w.violate("a program is diagnosed whose %s is %s, which does not exist, and nothing says so: %s", what, nowhere, report)
		}
		return nil
	})
}
