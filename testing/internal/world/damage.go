package world

// This file is the damage that others do to the objects of the program.

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

type belonging struct{ kind, namespace, name string }

// belongings are the objects of the program that others may damage.
var belongings = []belonging{
	{configurations[0], "", fingerprint + "-mutating-hook"},
	{configurations[1], "", fingerprint + "-validating-hook"},
	{"Secret", namespace, fingerprint + "-setupcertificate"},
	{"Lease", namespace, fingerprint + "-versions"},
}

func (w *World) remove(f Fault, rng *rand.Rand) {
	if own := w.stream("forgets", int(f.At)); len(w.releases) > 1 && !w.plan.Split && !w.plan.Unregister && !w.plan.Judges && own.IntN(4) == 0 {
		w.forgets(f, own)
		return
	}
	b := belongings[rng.IntN(len(belongings))]
	w.unseen(f, rng, func() { w.loses(b) })
}

// loses deletes an object. It reports whether a replica knows the content of the Secret.
func (w *World) loses(b belonging) (known bool) {
	known = w.harms(b)
	if b.kind == "Secret" {
		w.mu.Lock()
		knows := func(p *process) bool {
			return !p.leaving && !p.readySince.IsZero() && !p.release.issued && p.wire.hears()
		}
		if w.watch.knew = w.started; w.plan.Split || w.troubledSince(time.Now().Add(-settling), slow, spoiled, apart, strange) || slices.ContainsFunc(w.processes, func(p *process) bool { return !knows(p) }) {
			w.watch.knew = 0
		}
		w.mu.Unlock()
	}
	w.tell(fate, "deletes the %s", b.kind)
	w.api.Remove(resources[b.kind], b.namespace, b.name)
	w.observe()
	return known
}

// harms lets promises rest for the damage of an object. A replica that lives knows what was in the Secret, but for a serving
// half, which takes it as it is; and no call depends on the Lease.
func (w *World) harms(b belonging) (known bool) {
	w.mu.Lock()
	delete(w.watch.marked, b.kind)
	known = slices.ContainsFunc(w.processes, func(p *process) bool { return !p.leaving && !p.readySince.IsZero() && !p.release.issued })
	w.mu.Unlock()
	if b.kind == "Lease" || b.kind == "Secret" && known && !w.plan.Split {
		w.excuse(lapsed, settling)
		return known
	}
	w.excuse(spoiled, settling)
	if b.kind == "Secret" {
		w.mu.Lock()
		w.watch.evicted = nil // nothing knows better than an earlier Secret
		w.mu.Unlock()
	}
	return known
}

// without returns the entries of a configuration but one.
func without(object *unstructured.Unstructured, name string) []any {
	if object == nil {
		return nil
	}
	hooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
	return slices.DeleteFunc(hooks, func(h any) bool { return h.(map[string]any)["name"] == name })
}

// contest has a tool take an entry from a configuration, whenever that is repaired.
func (w *World) contest(f Fault, rng *rand.Rand) {
	if own := w.stream("untrusts", int(f.At)); own.IntN(4) == 0 && w.untrusts(own) {
		return
	}
	b := belongings[rng.IntN(2)]
	found := w.find(b.kind, b.namespace, b.name)
	if found == nil || !w.tools.TryLock() { // not two of them, which would fight
		return
	}
	defer w.tools.Unlock()
	if w.plan.Converts && f.Draw%2 == 0 {
		w.undefine(f)
		return
	}
	began, repaired, started := time.Now(), 0, w.begun()
	w.mu.Lock()
	fresh := time.Since(later(later(w.watch.contest, w.watch.undone), w.watch.damaged)) > forgiven+repairedWithin // what was told is told again when it is twice as bad
	w.mu.Unlock()
	hooks := webhooksOf(found)
	if len(hooks) == 0 {
		return
	}
	unwanted := hooks[len(hooks)-1].Name
	w.excuse(spoiled, 3*f.For+repairedWithin)
	w.tell(fate, "has a tool take the entry %s from the %s again and again, for %s", unwanted, b.kind, (3 * f.For).Round(time.Second))
	for time.Since(began) < 3*f.For {
		now := w.find(b.kind, b.namespace, b.name)
		if rest := without(now, unwanted); now != nil && len(rest) < len(webhooksOf(now)) {
			repaired++
			w.mu.Lock()
			w.watch.contest = time.Now()
			w.mu.Unlock()
			now = now.DeepCopy()
			isBy(now)
			if err := errors.Join(unstructured.SetNestedSlice(now.Object, rest, "webhooks"), w.api.Put(now)); err != nil {
				w.violate("an edit failed: %v", err)
			}
			w.observe()
			if repaired == toldRepairs {
				w.missesEntry(b, unwanted)
			}
		}
		if !w.wait(time.Second) {
			return
		}
	}
	w.tasks.Go(func() { w.forgives(b) })
	told := fresh && repaired > toldRepairs && started == w.begun() && !w.plan.Split
	if told {
		w.wait(eventsWithin)
	}
	event := w.event("RegistrationContested")
	w.mu.Lock()
	defer w.mu.Unlock()
	if repaired > mostRepairs*(1+w.started-started) && !w.plan.Modes { // a replica that starts, or has other steps, knows of no repair
		w.breaks("the %s was repaired %d times in %s, against a tool", b.kind, repaired, 3*f.For)
	}
	if !told || w.watch.ordered.After(began.Add(-settling)) || w.troubledSince(began, rough, slow, lapsed, apart, strange, unissued) {
		return
	}
	if w.blames(b, began, repaired); event.Before(began.Add(-mergedFor)) {
		w.breaks("the %s was repaired %d times, and no Event of the Secret tells it (last: %s)", b.kind, repaired, event)
	}
}

// unregister has each replica take the registration away, for which it lacks the right, and deletes a configuration later. It is
// repaired as before.
func (w *World) unregister(f Fault, _ *rand.Rand) {
	if own := w.stream("half", int(f.At)); own.IntN(4) == 0 && w.startsHalf() {
		return
	}
	if own := w.stream("stored", int(f.At)); w.plan.Converts && own.IntN(3) == 0 {
		w.unregisters(own)
		return
	}
	if own := w.stream("taken away", int(f.At)); !w.plan.Split && !w.learns() && !w.plan.Unregister && !w.plan.Issued && own.IntN(3) == 0 {
		w.unregistered(own)
		return
	}
	b := belongings[0]
	if w.plan.Split || w.find(b.kind, b.namespace, b.name) == nil { // else it would succeed
		return
	}
	w.rights.set("delete", resources[b.kind].Resource, true)
	w.mu.Lock()
	all := slices.Clone(w.processes)
	w.mu.Unlock()
	for _, p := range all {
		ctx, cancel := w.ctx()
		ctx, cancelTimeout := context.WithTimeout(ctx, time.Minute)
		err := p.manager.Unregister(ctx)
		cancelTimeout()
		cancel()
		w.tell(p, "is asked to unregister, without the right: %v", err)
		if err == nil && w.find(b.kind, b.namespace, b.name) != nil {
			w.violate("%s has unregistered, and there is still a %s", p, b.kind)
		}
	}
	w.rights.set("delete", resources[b.kind].Resource, false)
	if w.wait(f.For) {
		w.loses(b)
	}
}

// mostRepairs is how often a configuration is repaired that a tool reverts again and again, in half an hour: each repair comes
// later, until it takes ten minutes.
const mostRepairs, repairedWithin = 40, 10*time.Minute + settling

// unseen does some damage, half the time while no replica runs that could see it.
func (w *World) unseen(f Fault, rng *rand.Rand, do func()) {
	if rng.IntN(2) == 0 {
		do()
		return
	}
	w.scaleTo(0)
	if w.wait(w.plan.drain() + gracePeriod) {
		do()
		w.wait(f.For)
		w.excuse(spoiled, settling)
		w.scaleTo(w.plan.Replicas)
	}
}

var resources = map[string]schema.GroupResource{
	configurations[0]: {Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
	configurations[1]: {Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"},
	"Secret":          {Resource: "secrets"},
	"Lease":           {Group: "coordination.k8s.io", Resource: "leases"},
	definitionKind:    {Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
}

// edit damages an object of the program.
func (w *World) edit(f Fault, rng *rand.Rand) {
	if own := w.stream("confuses", int(f.At)); own.IntN(8) == 0 {
		w.confuses(own)
		return
	}
	if own := w.stream("holds", int(f.At)); own.IntN(6) == 0 && w.holdsSecret(f, own) {
		return
	}
	if own := w.stream("replaces", int(f.At)); own.IntN(8) == 0 && !w.plan.Split && !w.plan.Issued && w.replaces() {
		return
	}
	all := belongings
	if w.plan.Converts {
		all = append(slices.Clip(all), belonging{definitionKind, "", definitionName})
	}
	b := all[rng.IntN(len(all))]
	w.unseen(f, rng, func() { w.damages(b, rng) })
}

const (
	rollsBack  = "puts an earlier state into"
	overwrites = "puts its own CA in place of that of an entry of"
)

// rollsForward sees that replicas which live put the Secret right that was rolled back.
func (w *World) rollsForward(was *unstructured.Unstructured) {
	began := time.Now()
	if !w.wait(settling) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.find("Secret", namespace, fingerprint+"-setupcertificate")
	if now == nil || !slices.ContainsFunc(w.processes, func(p *process) bool { return !p.release.issued }) || w.watch.damaged.After(began) || w.troubledSince(began, rough, slow, spoiled, apart) {
		return
	}
	before, err := decode(was)
	if err != nil {
		return
	}
	if after, err := decode(now); err != nil || after.CurrentID < before.CurrentID {
		w.breaks("the Secret was rolled back, and %s later it is still (%v)", settling, err)
	}
}

// setsBack puts an earlier state into the Secret.
func (w *World) setsBack(to *unstructured.Unstructured) {
	b := belongings[2]
	found := w.find(b.kind, b.namespace, b.name)
	if found == nil || found.GetUID() != to.GetUID() {
		return
	}
	object := found.DeepCopy()
	object.Object["data"] = to.Object["data"]
	object.SetAnnotations(to.GetAnnotations())
	if w.harms(b) {
		w.tasks.Go(func() { w.rollsForward(found) })
	}
	w.tell(fate, "%s the %s", rollsBack, b.kind)
	if err := w.api.Put(object); err != nil {
		w.violate("an edit failed: %v", err)
	}
	w.observe()
}

func (w *World) damages(b belonging, rng *rand.Rand) {
	found := w.find(b.kind, b.namespace, b.name)
	if found == nil {
		return
	}
	object := found.DeepCopy()
	if state := w.state(); b.kind == "Secret" && state != nil && state.FormatVersion > certsecret.FormatVersion {
		return // none of the replicas could put it right
	}
	if object.Object["immutable"] == true || rng.IntN(5) == 0 && w.marks(b.kind, object) || slices.Contains(configurations, b.kind) && len(webhooksOf(object)) == 0 {
		return
	}
	deed, err := w.damage(object, rng)
	if err == nil {
		known := w.harms(b)
		if deed == rollsBack && known {
			w.tasks.Go(func() { w.rollsForward(found) })
		}
		if deed == overwrites && known {
			theirs := ca.OfName(bundlesOf(object), overwriter)
			w.tasks.Go(func() { w.putsRight(theirs) })
		}
		w.tell(fate, "%s the %s", deed, b.kind)
		err = w.api.Put(object)
		w.observe()
	}
	if err != nil {
		w.violate("an edit failed: %v", err)
	}
}

func (w *World) damage(object *unstructured.Unstructured, rng *rand.Rand) (deed string, err error) {
	switch object.GetKind() {
	case "Secret":
		w.mu.Lock()
		earlier := slices.Clone(w.secrets)
		w.mu.Unlock()
		switch n := rng.IntN(3); {
		case n == 0 && len(earlier) > 0:
			was := earlier[rng.IntN(len(earlier))]
			object.Object["data"] = was.Object["data"]
			object.SetAnnotations(was.GetAnnotations())
			return rollsBack, nil
		case n == 1:
			stranger, err := ca.New(intruder, 24*time.Hour, time.Now())
			if err != nil {
				return "", err
			}
			if rng.IntN(2) == 0 {
				if known, err := forges(object, stranger); known || err != nil {
					return "puts another CA, and a forged signature of ours for it, into", err
				}
			}
			object.Object["data"] = map[string]any{
				"ca.crt": encoded(stranger.CertificatePEM), "tls.crt": encoded(stranger.CertificatePEM), "tls.key": encoded(stranger.PrivateKeyPEM),
				"ca_certificate": encoded(stranger.CertificatePEM), "ca_private_key": encoded(stranger.PrivateKeyPEM),
			}
			return "puts another CA into", nil
		}
		if own := w.stream("one key", int(time.Since(w.began))); own.IntN(2) == 0 {
			key := []string{certsecret.CertificateKey, certsecret.CACertificateKey, certsecret.PrivateKeyKey}[own.IntN(3)]
			return "puts something else by the key " + key + " into", unstructured.SetNestedField(object.Object, encoded([]byte("something else")), "data", key)
		}
		unstructured.RemoveNestedField(object.Object, "data")
		return "empties", nil
	case "Lease":
		return damageRecords(object, rng)
	case definitionKind:
		if rng.IntN(2) == 0 {
			return "takes the conversion from", unstructured.SetNestedMap(object.Object, map[string]any{"strategy": "None"}, "spec", "conversion")
		}
		unstructured.RemoveNestedField(object.Object, "spec", "conversion", "webhook", "clientConfig", "caBundle")
		return "blanks the caBundle of", nil
	}
	hooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
	if err != nil || len(hooks) == 0 {
		return "", errors.Join(err, fmt.Errorf("there are %d webhooks", len(hooks)))
	}
	switch rng.IntN(4) {
	case 3:
		name, replaces := "bystander", rng.IntN(2) == 0
		if replaces {
			name = overwriter
		}
		stranger, err := ca.New(name, day, time.Now())
		if err != nil {
			return "", err
		}
		config, _ := hooks[0].(map[string]any)["clientConfig"].(map[string]any)
		bundle, _ := base64.StdEncoding.DecodeString(fmt.Sprint(config["caBundle"]))
		if replaces {
			config["caBundle"] = encoded(stranger.CertificatePEM)
			return overwrites, unstructured.SetNestedSlice(object.Object, hooks, "webhooks")
		}
		config["caBundle"] = encoded(ca.Bundle(bundle, stranger.CertificatePEM))
		w.unneeded(stranger.CertificatePEM)
		return "adds a CA to the caBundle of an entry of", unstructured.SetNestedSlice(object.Object, hooks, "webhooks")
	case 0:
		hooks[rng.IntN(len(hooks))].(map[string]any)["failurePolicy"] = "Ignore"
		return "weakens an entry of", unstructured.SetNestedSlice(object.Object, hooks, "webhooks")
	case 1:
		return "takes an entry from", unstructured.SetNestedSlice(object.Object, hooks[:len(hooks)-1], "webhooks")
	}
	for _, h := range hooks {
		config, _ := h.(map[string]any)["clientConfig"].(map[string]any)
		delete(config, "caBundle")
	}
	return "blanks the caBundles of", unstructured.SetNestedSlice(object.Object, hooks, "webhooks")
}

// damageRecords takes the records from the Lease, or has one of them be absurd.
func damageRecords(object *unstructured.Unstructured, rng *rand.Rand) (deed string, err error) {
	annotations := object.GetAnnotations()
	if keys := slices.Sorted(maps.Keys(annotations)); len(keys) > 0 && rng.IntN(2) == 0 {
		key := keys[rng.IntN(len(keys))]
		var record map[string]any
		if json.Unmarshal([]byte(annotations[key]), &record) == nil {
			deed, field := "has a version come as the last one that there can be, in", "came"
			if rng.IntN(2) == 0 {
				deed, field = "has a version answer what it was not asked, in", "answered"
			}
			record[field] = 1<<53 - 1
			text, err := json.Marshal(record)
			annotations[key] = string(text)
			object.SetAnnotations(annotations)
			return deed, err
		}
	}
	object.SetAnnotations(nil)
	return "takes all annotations from", nil
}

// intruder is the name of a CA that another client puts into the Secret.
const intruder = "intruder"

func encoded(text []byte) string { return base64.StdEncoding.EncodeToString(text) }
