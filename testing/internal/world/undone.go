package world

// This file is a tool that puts caBundles back as they were, again and again, while the program has another CA to publish. The one
// that is served stays trusted meanwhile, so no call fails.

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/ca"
)

const (
	// undoneFor is how long such a tool is at work, and trustedAgain how late its deed may be repaired: up to 15 s, and a moment
	// for the way of a write.
	undoneFor, trustedAgain = 3 * time.Minute, 20 * time.Second

	// mostUndone is how often caBundles are written then at most: each repair comes later, up to 15 s, and a rotation of the CA
	// needs writes of its own.
	mostUndone = 60
)

// bundles returns the caBundle of each entry.
func bundles(object *unstructured.Unstructured) map[string][]byte {
	all := map[string][]byte{}
	for _, h := range webhooksOf(object) {
		all[h.Name] = h.ClientConfig.CABundle
	}
	return all
}

// surplus returns a configuration as it was, with a CA more in each caBundle than now; nil for none.
func (w *World) surplus(kind string, is *unstructured.Unstructured) *unstructured.Unstructured {
	now := bundles(is)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range slices.Backward(w.history[kind]) {
		was := bundles(v.object)
		evicted := func(name string) bool {
			return slices.ContainsFunc(w.watch.evicted, func(gone []byte) bool { return ca.Contains(was[name], gone) })
		}
		more := func(name string) bool {
			return ca.Contains(was[name], now[name]) && !ca.Contains(now[name], was[name]) && !evicted(name)
		}
		if names := slices.Collect(maps.Keys(now)); len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return !more(name) }) {
			return v.object
		}
	}
	return nil
}

// untrusts has the program make another CA, or its issuer, and a tool put the caBundles of a configuration back as they were. It
// returns false if nothing can be published.
func (w *World) untrusts(rng *rand.Rand) bool {
	b := belongings[rng.IntN(2)]
	found, of := w.find(b.kind, b.namespace, b.name), w.live(rng)
	if found == nil || w.plan.Split || w.plan.Unregister || of.signed || !w.calm(settling) || !w.tools.TryLock() { // not two of them, which would fight
		return false
	}
	defer w.tools.Unlock()
	if found = w.find(b.kind, b.namespace, b.name); found == nil {
		return true
	}
	if time.Since(w.began) > w.plan.Lasts-quiet-settling-undoneFor {
		return true
	}
	earlier := w.surplus(b.kind, found)
	switch {
	case earlier != nil && w.stream("surplus", int(time.Since(w.began))).IntN(2) == 0:
		found = earlier
	case of.issued:
		if !w.authorities.busy.TryLock() {
			return false
		}
		defer w.authorities.busy.Unlock()
		if err := w.renewIssuer(); err != nil {
			w.violate("the issuer has no CA: %v", err)
			return false
		}
		w.issue(w.plan.serverName(), issuedFor, 0)
	default:
		w.wants()
		w.tasks.Go(func() {
			w.tool("rotates the CA", of, rng, func(ctx context.Context, m *eirinix.ExtensionManager) error {
				_ = m.RotateCA(ctx, eirinix.RotateOptions{}) // it may have to wait
				return nil
			})
		})
	}
	w.tell(fate, "has a tool put the caBundles of the %s back as they were, again and again, for %s", b.kind, undoneFor)
	was, began, undone := bundles(found), time.Now(), time.Time{}
	starts, times := w.begun(), 0
	for time.Since(began) < undoneFor && w.wait(200*time.Millisecond) {
		now := w.find(b.kind, b.namespace, b.name)
		w.mu.Lock()
		met := w.watch.asked.After(began) || w.watch.damaged.After(began) || w.excused(evicted, time.Now()) // what it puts back may verify nothing by now
		w.mu.Unlock()
		if now == nil || met {
			return true
		}
		object := now.DeepCopy()
		hooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
		published := false
		for _, h := range hooks {
			h := h.(map[string]any)
			name, _ := h["name"].(string)
			old, known := was[name]
			config, _ := h["clientConfig"].(map[string]any)
			if text := encoded(old); known && config["caBundle"] != text {
				config["caBundle"], published = text, true
			}
		}
		if published {
			undone = time.Now()
			times++
			w.mu.Lock()
			w.watch.undone = undone
			if times > mostUndone*(1+w.started-starts) {
				w.breaks("the caBundles of the %s were written %d times in %s, against a tool", b.kind, times, time.Since(began).Round(time.Second))
			}
			w.mu.Unlock()
			if err := unstructured.SetNestedSlice(object.Object, hooks, "webhooks"); err != nil || w.api.Put(object) != nil {
				w.violate("an edit failed: %v", err)
			}
			w.observe()
			continue
		}
		w.mu.Lock()
		if lacks := w.lacks(of, was); lacks && !undone.IsZero() && time.Since(undone) > trustedAgain && starts == w.started && w.settledOne(undone) != nil && w.needs(of) && !w.watch.damaged.After(began) && !w.troubledSince(began, rough, slow, spoiled, lapsed, apart, evicted, unissued, strange) {
			w.breaks("a tool has put the caBundles of the %s back %s ago, and they are not repaired", b.kind, time.Since(undone).Round(time.Second))
		}
		w.mu.Unlock()
	}
	return true
}

// needs reports whether a replica has certificates of the source of a version. The caller holds mu.
func (w *World) needs(of release) bool {
	return slices.ContainsFunc(w.processes, func(p *process) bool { return !p.leaving && p.release.issued == of.issued })
}

// lacks reports whether caBundles lack a CA that is to be trusted. The caller holds mu.
func (w *World) lacks(of release, bundles map[string][]byte) bool {
	need := []byte(nil)
	if of.issued {
		need = w.authorities.issuer.CertificatePEM
	} else if state := w.state(); state != nil {
		need = state.Bundle()
	}
	for _, b := range bundles {
		if !ca.Contains(b, need) {
			return true
		}
	}
	return false
}

// swapped is the line of the log when another certificate of an issuer is served because every caBundle holds its CA.
const swapped = "serving another certificate from now on (reason: the API server trusts it)"

// takenOverAfter is how long every caBundle holds the CA of a certificate at least before a replica serves that. It sees each of
// them later than it was written.
const takenOverAfter = 10*time.Second - time.Millisecond

// swaps looks at a replica that serves another certificate of the issuer from now on. The caller holds mu.
func (w *World) swaps(who string) {
	a := &w.authorities
	i := slices.IndexFunc(w.processes, func(p *process) bool { return p.name == who })
	if i < 0 || !w.processes[i].release.bySecret() || w.plan.Split || a.unusable || time.Since(a.madeAt) > settling || a.issuer == nil || w.excused(unissued, time.Now()) || w.excused(spoiled, time.Now().Add(-takenOverAfter)) {
		return // it may be an earlier one, and a watch need not see a state that another client makes for a moment
	}
	for _, kind := range registered {
		for _, v := range slices.Backward(w.history[kind]) {
			if len(webhooksOf(v.object)) > 0 && !holdsAll(v.object, a.issuer.CertificatePEM) {
				w.breaks("%s serves a certificate, and the %s did not trust its CA %s ago", who, kind, time.Since(v.at).Round(time.Millisecond))
			}
			if time.Since(v.at) > takenOverAfter {
				break
			}
		}
	}
}

// holdsAll reports whether each caBundle of a configuration holds a CA.
func holdsAll(object *unstructured.Unstructured, authority []byte) bool {
	return !slices.ContainsFunc(webhooksOf(object), func(h hook) bool {
		return !bytes.Contains(h.ClientConfig.CABundle, bytes.TrimSpace(authority)) && !ca.Contains(h.ClientConfig.CABundle, authority)
	})
}

// isSwapped reports whether a text of a log says so.
func isSwapped(text string) bool { return strings.HasPrefix(text, swapped) }
