package world

// This file is the keys of conversions: which replica must give back what was kept under a key, and how keys are lost.

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/convert"
)

// keysName is the Secret of the keys.
const keysName = fingerprint + "-conversions"

// keyring holds the keys that the world knows, by the names that annotations have for them.
type keyring struct {
	published map[string][]span
	signed    map[string]map[string]bool // the keys with which each process has signed
}

// span is a time; until is zero for one that lasts.
type span struct{ from, until time.Time }

// publish notes the keys that the Secret holds now.
func (w *World) publish() {
	if !w.plan.Converts {
		return
	}
	now, data := map[string]bool{}, map[string]any{}
	if secret := w.find("Secret", namespace, keysName); secret != nil {
		data, _ = secret.Object["data"].(map[string]any)
	}
	for _, value := range data {
		text, _ := value.(string)
		if key, err := base64.StdEncoding.DecodeString(text); err == nil {
			hash := sha256.Sum256(key)
			now[hex.EncodeToString(hash[:4])] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k := &w.watch.keys
	if k.published == nil {
		k.published, k.signed = map[string][]span{}, map[string]map[string]bool{}
	}
	for key, spans := range k.published {
		if last := &spans[len(spans)-1]; last.until.IsZero() && !now[key] {
			last.until = time.Now()
		}
	}
	for key := range now {
		if spans := k.published[key]; len(spans) == 0 || !spans[len(spans)-1].until.IsZero() {
			k.published[key] = append(spans, span{from: time.Now()})
		}
	}
}

// keysIn returns the keys that have signed annotations of an object.
func keysIn(object map[string]any) map[string]bool {
	names := map[string]bool{}
	for name, value := range (&unstructured.Unstructured{Object: object}).GetAnnotations() {
		if key, _, ok := strings.Cut(value, "."); ok && strings.HasPrefix(name, convert.Prefix) && name != convert.Incomplete {
			names[key] = true
		}
	}
	return names
}

// signsWith looks at the keys of an answer. A replica signs with none that was not published before. The caller holds mu.
func (w *World) signsWith(p *process, before, after map[string]bool) {
	for key := range after {
		if len(w.watch.keys.published[key]) == 0 {
			w.breaks("%s has signed what a shop keeps with the key %s, which no Secret has held", p, key)
		}
		if p != nil && !before[key] {
			if w.watch.keys.signed[p.name] == nil {
				w.watch.keys.signed[p.name] = map[string]bool{}
			}
			w.watch.keys.signed[p.name][key] = true
		}
	}
}

// gives reports whether a replica must give back what was kept under these keys: it has signed with them, or found them in the
// Secret at its start, or has had the time to find them there now. The caller holds mu.
func (w *World) gives(p *process, keys map[string]bool) bool {
	for key := range keys {
		spans := w.watch.keys.published[key]
		held := w.watch.keys.signed[p.name][key]
		for _, s := range spans {
			held = held || s.from.Before(p.began) && !p.readySince.IsZero() && (s.until.IsZero() || s.until.After(p.readySince))
		}
		if n := len(spans); n > 0 && spans[n-1].until.IsZero() && spans[n-1].from.Add(settling).Before(time.Now()) {
			held = held || w.settledSince(time.Now().Add(-settling))
		}
		if !held {
			return false
		}
	}
	return true
}

// leaves reports whether something that an object keeps under a key that the replica may not know is in the converted object as it
// was. The caller holds mu.
func (w *World) leaves(p *process, object, converted map[string]any) bool {
	after := (&unstructured.Unstructured{Object: converted}).GetAnnotations()
	for name, value := range (&unstructured.Unstructured{Object: object}).GetAnnotations() {
		key, _, _ := strings.Cut(value, ".")
		if strings.HasPrefix(name, convert.Prefix) && after[name] == value && !w.gives(p, map[string]bool{key: true}) {
			return true
		}
	}
	return false
}

// foreign has a replica convert a shop of another cluster, whose key it does not know, so that it looks for keys: a Secret that is
// missing has all keys again that the replica knows.
func (w *World) foreign(l *lister, rng *rand.Rand) {
	shop := newShop(first, "foreign", 5, rng)
	object := shop.in(first)
	annotations := object["metadata"].(map[string]any)["annotations"].(map[string]any)
	annotations[convert.Prefix+"00000000000000000000000000000000"] = fmt.Sprintf("%08x.AAAAAAAAAAAAAAAAAAAAAA.{}", rng.Uint32())
	began := time.Now()
	_, t, err := l.s.convert(l.ctx, l.by, object, second)
	w.publish()
	w.mu.Lock()
	defer w.mu.Unlock()
	by := w.processAt(t.at)
	starts := slices.ContainsFunc(w.processes, func(p *process) bool { return p.readySince.IsZero() || p.readySince.After(began) })
	if err != nil || by == nil || starts || !w.settledSince(began.Add(-settling)) { // one that starts makes the Secret, too
		return
	}
	for key, spans := range w.watch.keys.published {
		if spans[0].from.Before(by.began) && w.gives(by, map[string]bool{key: true}) && !spans[len(spans)-1].until.IsZero() {
			w.breaks("%s knows the key %s of conversions, and has not put it into the Secret that it has found missing", by, key)
		}
	}
}

// loseKey deletes the Secret with the key of conversions, or puts another key in its place, and puts the key back when replicas
// have started without it. Those that live know the key all the time.
func (w *World) loseKey(f Fault, rng *rand.Rand) {
	ctx, cancel := w.ctx()
	defer cancel()
	s := w.servers[rng.IntN(len(w.servers))]
	shop := newShop(first, "kept", 37, rng)
	into := func(object map[string]any, from, to string) (map[string]any, bool) {
		if l := w.lister(ctx, s); l != nil {
			return l.hop(shop, object, from, to)
		}
		return nil, false
	}
	secret := w.find("Secret", namespace, keysName)
	kept, ok := into(shop.in(first), first, second)
	if secret == nil || !ok || !w.keyless(true) {
		return
	}
	defer w.keyless(false)
	if rng.IntN(2) == 0 {
		w.tell(fate, "deletes the Secret with the key of conversions")
		w.api.Remove(resources["Secret"], namespace, keysName)
		w.publish()
		if l := w.lister(ctx, s); l != nil && rng.IntN(2) == 0 {
			w.foreign(l, rng)
		}
	} else {
		w.tell(fate, "puts another key of conversions in place of the one that there is")
		other := secret.DeepCopy()
		other.Object["data"] = map[string]any{"1": base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "another key of conversions: %032d", rng.Uint64()))}
		if err := w.api.Put(other); err != nil {
			w.violate("a Secret cannot be replaced: %v", err)
		}
	}
	w.publish()
	w.mu.Lock()
	w.watch.stored = w.watch.stored[:len(w.watch.stored)/2] // others are stored under a new key
	w.mu.Unlock()
	more := rng.IntN(3) > 0 && !w.plan.Unregister // else no replica lives that knows the key
	if more {
		w.scaleTo(w.plan.Replicas + 1)
	} else {
		w.restart(f, rng)
	}
	var carried map[string]any // by a replica without the key
	until := time.Now().Add(settling + f.For)
	for range 10 {
		if !w.wait(time.Until(until) / 4) {
			return
		}
		w.servers[rng.IntN(len(w.servers))].reset() // else it keeps to one replica
		if object, ok := into(kept, second, first); !ok && object != nil {
			carried = object
		}
		w.list(rng)
	}
	if more {
		w.scaleTo(w.plan.Replicas)
	}
	data := map[string]any{}
	for key, value := range secret.Object["data"].(map[string]any) {
		data["0"+key] = value
	}
	if now := w.find("Secret", namespace, keysName); now != nil { // which signs
		maps.Copy(data, now.Object["data"].(map[string]any))
	}
	secret = secret.DeepCopy()
	secret.Object["data"] = data
	w.tell(fate, "puts the key of conversions back")
	if err := w.api.Put(secret); err != nil {
		w.violate("a Secret cannot be put back: %v", err)
	}
	w.publish()
	if !w.wait(settling + time.Second) {
		return
	}
	if carried != nil {
		if object, ok := into(carried, first, second); ok {
			kept = object
		}
	}
	for range 4 {
		into(kept, second, first)
	}
}

// keyless begins, or ends, a time in which the key of conversions is lost. It returns false if that has begun already.
func (w *World) keyless(on bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.watch.keyless
	w.watch.keyless = on
	return on != was
}
