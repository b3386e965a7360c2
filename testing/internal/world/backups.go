package world

// This file is backups, and what is in force after one was restored.

import (
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

// restore takes a backup, and restores it after a while, in which something else happens.
func (w *World) restore(f Fault, rng *rand.Rand) {
	if own := w.stream("empty", int(f.At)); w.plan.Split && !w.plan.Issued && own.IntN(2) == 0 {
		w.reinstalls(own)
		return
	}
	backup := w.api.Backup()
	w.mu.Lock()
	unusable := w.plan.Issued && w.excused(unissued, time.Now())
	w.mu.Unlock()
	w.tell(fate, "takes a backup")
	all := []func(*World, Fault, *rand.Rand){(*World).rotate, (*World).rollout, (*World).remove, (*World).changePolicy}
	if then := rng.IntN(len(all) + 1); then < len(all) && (w.plan.Reads || then < len(all)-1) {
		w.wait(time.Second)
		all[then](w, f, rng)
	}
	w.wait(min(f.For*4, w.plan.Lasts-quiet-settling-f.At))
	w.excuse(spoiled, settling)
	w.tell(fate, "restores the backup")
	w.mu.Lock()
	w.watch.evicted = nil // what the backup holds is in force again
	w.watch.foreign, w.watch.marked = nil, nil
	w.mu.Unlock()
	w.api.Restore(backup)
	if secret := w.find("Secret", namespace, theSecret); secret != nil {
		if state := w.state(); secret.Object["immutable"] == true || state != nil && state.FormatVersion > certsecret.FormatVersion {
			w.tell(fate, "deletes the Secret of the backup, which no replica may write")
			w.api.Remove(schema.GroupResource{Resource: "secrets"}, namespace, theSecret)
		}
	}
	switch {
	case unusable:
		w.issue(w.plan.serverName(), issuedFor, 0)
	case w.plan.Issued:
		w.tasks.Go(w.reissues)
	}
	if w.plan.Converts && w.find(definitionKind, "", definitionName) == nil {
		w.define()
	}
	w.observe()
	if w.plan.Modes {
		w.remode()
	}
	if w.plan.Callers { // the certificates of API servers are in no backup
		w.mu.Lock()
		trusted := w.authorities.trusted
		w.mu.Unlock()
		w.trustCallers(trusted)
	}
	if !w.plan.Reads {
		return
	}
	generation := w.ruledBy()
	if generation == 0 {
		w.excuse(unread, w.plan.Lasts)
	}
	w.mu.Lock()
	w.policies = append(w.policies, policyVersion{generation, time.Now()})
	w.mu.Unlock()
}

// reinstalls restores a backup of before the program was installed. A tool registers it before replicas hear from API servers again:
// with a CA of its own, which they take.
func (w *World) reinstalls(rng *rand.Rand) {
	w.mu.Lock()
	live := slices.DeleteFunc(slices.Clone(w.processes), func(p *process) bool { return p.leaving || !p.wire.hears() })
	r := w.wanted
	w.watch.evicted, w.watch.foreign, w.watch.marked = nil, nil, nil
	w.mu.Unlock()
	for _, p := range live {
		p.wire.hush(true)
	}
	for _, e := range []excuse{spoiled, slow, apart} {
		w.excuse(e, 2*settling)
	}
	w.tell(fate, "restores a backup of before the installation")
	for _, b := range belongings[:3] {
		w.api.Remove(resources[b.kind], b.namespace, b.name)
	}
	w.observe()
	w.orders(r, rng)
	for _, p := range live {
		p.wire.hush(false)
	}
	w.wait(2 * settling)
}

// remode takes the modes from the ConfigMap, and the labels, that a restore has brought back.
func (w *World) remode() {
	var data map[string]string
	if restored := w.find("ConfigMap", namespace, modesName); restored != nil {
		data, _, _ = unstructured.NestedStringMap(restored.Object, "data")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all := append(slices.Clip(plain), reader)
	for _, step := range plain {
		all = append(all, step+"-sets")
	}
	for _, step := range all {
		if data[step] == noMode { // until the ConfigMap is written again
			w.watch.spells = w.began.Add(w.plan.Lasts)
			if data[step] = w.modes[step].text; data[step] == "" {
				continue
			} // the last good entry stays in force, and labels may have changed
		}
		mode := w.modeIn(data[step])
		if m := w.modes[step]; m.mode != "" || data[step] != "" {
			if m.mode != mode {
				m.mode, m.since = mode, time.Now()
			}
			m.text = data[step]
			w.modes[step] = m
		}
	}
}
