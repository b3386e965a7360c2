package world

// This file is the conversion of custom resources: callers that write shops in one version and read them in others, and how each
// conversion is judged.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/conversion"
	"code.cloudfoundry.org/eirinix/internal/apiserver"
	"code.cloudfoundry.org/eirinix/internal/convert"
)

// learn draws which versions of the program convert the third version of shops. With UnregisterOnStop, no other replica is
// expected.
func (w *World) learn(rng *rand.Rand) {
	for i := range w.releases {
		w.releases[i].thirds = w.plan.Converts && !w.plan.Unregister && rng.IntN(2) == 0
	}
	w.wanted = w.releases[0]
}

// learns reports whether a version of the program converts the third version of shops.
func (w *World) learns() bool {
	return slices.ContainsFunc(w.releases, func(r release) bool { return r.thirds })
}

// addConversion gives the Manager the conversion of shops. What a version cannot hold comes back, as long as it is not edited.
func addConversion(m *eirinix.ExtensionManager, thirds bool, over <-chan struct{}) error {
	type tree = *unstructured.Unstructured
	by := func(change func(map[string]any) map[string]any, also ...func(tree)) func(context.Context, tree) (tree, error) {
		return func(ctx context.Context, shop tree) (tree, error) {
			if slow, err := time.ParseDuration(shop.GetLabels()[slowLabel]); err == nil {
				select {
				case <-time.After(slow):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			if shop.GetLabels()[clings] != "" {
				clung(over)
			}
			spec, _ := shop.Object["spec"].(map[string]any)
			shop.Object["spec"] = change(spec)
			for _, then := range also {
				then(shop)
			}
			if shop.GetLabels()[meddled] != "" {
				shop.SetFinalizers([]string{"example.com/added"})
			}
			return shop, nil
		}
	}
	of := conversion.Of[tree]{
		CRD: definitionName, Version: first,
		Spokes: []conversion.Spoke[tree]{conversion.NewSpoke(second, by(converters[second].to, signsIn(first)), by(converters[second].from, signsIn(second)))},
	}
	if thirds {
		to, from := by(converters[third].to), by(converters[third].from)
		of.Spokes = append(of.Spokes, conversion.NewSpoke(third,
			func(ctx context.Context, shop *Shop) (tree, error) { return to(ctx, untyped(shop)) },
			func(ctx context.Context, shop tree) (*Shop, error) { return typed(from(ctx, shop)) }))
	}
	return m.AddExtension(of)
}

func signsIn(version string) func(*unstructured.Unstructured) {
	return func(shop *unstructured.Unstructured) { signs(shop, version) }
}

// conversionTimeout is how long an API server waits for a conversion (k8s.io/apiextensions-apiserver/pkg/apiserver/conversion).
const conversionTimeout = 30 * time.Second

// lister is an API server that converts shops, by its copy of the definition.
type lister struct {
	*World
	ctx      context.Context
	s        *apiServer
	by       hook
	versions []string
	listed   time.Time // with the caBundle of then
}

// lister returns one; nil while the API server converts nothing.
func (w *World) lister(ctx context.Context, s *apiServer) *lister {
	entries, versions := s.entries(definitionKind), s.served()
	if failing, frozen := s.state(); failing != 0 || frozen != nil || len(entries) == 0 {
		return nil
	}
	return &lister{w, ctx, s, entries[0], versions, time.Now()}
}

// beside returns the same or another API server that serves a version, because the requests of one client reach any of them.
func (l *lister) beside(version string, rng *rand.Rand) *lister {
	if other := l.lister(l.ctx, l.servers[rng.IntN(len(l.servers))]); other != nil && slices.Contains(other.versions, version) {
		return other
	}
	return l
}

// other returns another version.
func (l *lister) other(than string, rng *rand.Rand) string {
	all := slices.DeleteFunc(slices.Clone(l.versions), func(v string) bool { return v == than })
	return all[rng.IntN(len(all))]
}

// list has an API server convert shops, and judges how it does. It converts each object with a request of its own, as API
// servers do.
func (w *World) list(rng *rand.Rand) {
	ctx, cancel := w.ctx()
	defer cancel()
	l := w.lister(ctx, w.servers[rng.IntN(len(w.servers))])
	if l == nil {
		return
	}
	if rng.IntN(20) == 0 {
		l.unknown(rng)
	}
	if own := w.stream("meddles", int(time.Since(w.began))); own.IntN(12) == 0 {
		l.meddles(own)
	}
	if own := w.stream("overflow", int(time.Since(w.began))); own.IntN(12) == 0 {
		l.overflow(own)
	}
	l.revisit(rng)
	for i := range 1 + rng.IntN(2) {
		l.tour(i, rng)
	}
}

// tour writes a new shop in one version, takes it through others, and reads it in the first one again. It is edited on its way.
func (l *lister) tour(i int, rng *rand.Rand) {
	start := l.versions[rng.IntN(len(l.versions))]
	shop := newShop(start, fmt.Sprint("shop", i), rng.Int64N(100), rng)
	if rng.IntN(8) == 0 {
		shop.labels = map[string]any{slowLabel: time.Duration(rng.Int64N(int64(4 * time.Second))).String()}
	}
	if i == 0 && rng.IntN(40) == 0 {
		shop.text = strings.Repeat("long ", 200_000)
	}
	var ok bool
	object, at := shop.in(start), start
	for range 1 + rng.IntN(2) {
		to := l.other(at, rng)
		if object, ok = l.beside(to, rng).hop(shop, object, at, to); !ok {
			return
		}
		if at = to; rng.IntN(2) == 0 {
			shop.edit(at, rng)
			shop.rewrites(object, at)
		}
	}
	if at != start {
		l.beside(start, rng).hop(shop, object, at, start)
	}
}

// storedShop is a shop as the cluster stores it, in the first version.
type storedShop struct {
	shop
	object map[string]any
}

// mostStored is the number of shops that stay in the cluster.
const mostStored = 6

// revisit reads a shop that is stored, in another version, and edits it half the time. At first there is none.
func (l *lister) revisit(rng *rand.Rand) {
	l.mu.Lock()
	var of storedShop
	if n := len(l.watch.stored); n > 0 && (n == mostStored || rng.IntN(2) == 0) {
		i := rng.IntN(n)
		of = l.watch.stored[i]
		l.watch.stored = slices.Delete(l.watch.stored, i, i+1)
	}
	l.mu.Unlock()
	to := l.other(first, rng)
	var ok bool
	changed, object := of.shop, of.object
	switch {
	case object == nil:
		changed = newShop(to, fmt.Sprint("stored", rng.IntN(1000)), rng.Int64N(100), rng)
		object = changed.in(to)
	case rng.IntN(6) == 0: // no webhook hears of it
		object = (&unstructured.Unstructured{Object: object}).DeepCopy().Object
		changed.edit(first, rng)
		changed.rewrites(object, first)
		l.keep(storedShop{changed, object})
		return
	default:
		if object, ok = l.hop(of.shop, object, first, to); !ok || rng.IntN(2) == 0 {
			l.keep(of)
			return
		}
		changed.edit(to, rng)
		changed.rewrites(object, to)
	}
	if object, ok = l.beside(to, rng).hop(changed, object, to, first); ok {
		l.keep(storedShop{changed, object})
	}
}

func (w *World) keep(s storedShop) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.watch.stored) < mostStored {
		w.watch.stored = append(w.watch.stored, s)
	}
}

// hop converts a shop, and judges how that is done. It returns false if the shop goes no further: it is not converted, or by a
// replica that need not know a key. That one leaves what it cannot read as it is.
func (l *lister) hop(of shop, object map[string]any, from, to string) (map[string]any, bool) {
	began, keys := time.Now(), keysIn(object)
	converted, t, err := l.s.convert(l.ctx, l.by, object, to)
	if l.ctx.Err() != nil {
		return nil, false
	}
	l.publish()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look()
	if t.again {
		l.breaks("%s is told to ask another replica to convert a shop, and the connection stays open", l.s.name)
	}
	if err != nil {
		old := l.plan.Issued && time.Since(l.listed) > 2*time.Second // a version with another source is ready by then, and retries may reach it
		if l.reachable(began) && !old && !l.excused(evicted, l.listed) && l.converts(began, from, to, t, err) {
			l.breaks("%s cannot convert a shop from %s to %s although a replica could be reached: %v", l.s.name, from, to, err)
		}
		return nil, false
	}
	by := l.processAt(t.at)
	l.signsWith(by, keys, keysIn(converted))
	lost := of.differs(converted, to)
	if by == nil || !l.gives(by, keys) {
		if lost != "" && by != nil && !l.leaves(by, object, converted) {
			l.breaks("%s: %s has converted a shop from %s to %s, and dropped what it could not read: %s", l.s.name, by, from, to, lost)
		}
		return converted, false
	}
	if annotations := (&unstructured.Unstructured{Object: converted}).GetAnnotations(); annotations[convert.Incomplete] != "" {
		lost = "it is incomplete: " + annotations[convert.Incomplete]
	}
	if lost != "" {
		l.breaks("%s: %s has converted a shop from %s to %s, and not rightly: %s", l.s.name, by, from, to, lost)
	}
	return converted, true
}

// converts reports whether a replica must have been found that knows both versions. One that does not has the API server ask
// another one, at random. The caller holds mu.
func (w *World) converts(began time.Time, from, to string, t *attempts, err error) bool {
	if from != third && to != third {
		return true
	}
	heard := w.plan.Lag + 2*time.Second
	if slices.ContainsFunc(w.processes, func(p *process) bool { return !p.wire.hears() }) { // one polls the Lease
		heard = time.Minute
	}
	if !w.teaches(began.Add(-heard)) || w.troubledSince(began, rough, slow, spoiled, lapsed, apart) {
		return false
	}
	ignorant := 0
	for _, p := range w.processes {
		if !p.release.thirds || p.leaving {
			ignorant++
		}
	}
	unlucky := strings.Contains(err.Error(), "is converted by another version of the program")
	return !unlucky || math.Pow(float64(ignorant)/float64(len(w.processes)), float64(t.fresh)) < 1e-5
}

// unknown asks for a shop in the third version, as an informer does that knows an older definition. Where no replica has converted
// it for a while, it is refused at once.
func (l *lister) unknown(rng *rand.Rand) {
	began := time.Now()
	_, _, err := l.s.convert(l.ctx, l.by, newShop(first, "unknown", 5, rng).in(first), third)
	l.mu.Lock()
	defer l.mu.Unlock()
	took := time.Since(began)
	if l.learns() && l.watch.taught.Add(settling).Before(began) && err != nil && l.ctx.Err() == nil && took > atOnce && l.settledSince(began.Add(-settling)) {
		l.breaks("%s asks for a version that no replica converts, and is refused only after %s: %v", l.s.name, took.Round(time.Millisecond), err)
	}
}

// meddled is a label of a shop in whose metadata conversions add what is not theirs.
const meddled = "meddled"

// clings is a label of a shop whose conversion lasts longer than its call, for which a client other than an API server gives so much time.
const clings, clingsFor, hurried = "clings", 4 * time.Second, "?timeout=1s"

// clung is such a conversion.
func clung(over <-chan struct{}) {
	select {
	case <-time.After(clingsFor):
	case <-over:
	}
}

// meddles asks for such shops. They are not converted.
func (l *lister) meddles(rng *rand.Rand) {
	for _, label := range []string{meddled, clings} {
		object := newShop(first, label, 5, rng).in(first)
		if err := unstructured.SetNestedField(object, "yes", "metadata", "labels", label); err != nil {
			l.violate("a shop cannot have a label: %v", err)
		}
		l.mu.Lock()
		l.watch.clings = time.Now().Add(settling)
		l.mu.Unlock()
		if got, _, err := l.s.convert(l.ctx, l.by, object, second); err == nil {
			l.violate("%s gets a shop of which a conversion has made what is not allowed, or too late (%s): %.300v", l.s.name, label, got)
		}
	}
}

// processAt returns the replica of an address, or nil. The caller holds mu.
func (w *World) processAt(address string) *process {
	for _, p := range w.processes {
		if p.address == address {
			return p
		}
	}
	return nil
}

// attempts are the connections that one call has used.
type attempts struct {
	at    string // the address of the last one
	used  []net.Conn
	fresh int  // were made for it
	again bool // one was used twice, although each answer but the last one asks for another replica
}

func (t *attempts) got(c httptrace.GotConnInfo) {
	t.at, t.again = c.Conn.RemoteAddr().String(), t.again || slices.Contains(t.used, c.Conn)
	t.used = append(t.used, c.Conn)
	if !c.Reused {
		t.fresh++
	}
}

// convert asks for one object in another version.
func (s *apiServer) convert(ctx context.Context, h hook, object map[string]any, version string) (map[string]any, *attempts, error) {
	ctx, cancel := context.WithTimeout(ctx, conversionTimeout)
	defer cancel()
	t := &attempts{}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: t.got})
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, t, err
	}
	query := "" // an API server says no time here
	if (&unstructured.Unstructured{Object: object}).GetLabels()[clings] != "" {
		query = hurried
	}
	way := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			body, err = s.post(r.Context(), h.ClientConfig, query, form{}, body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		_, _ = w.Write(body) // to memory
	})
	objects, err := (&apiserver.Conversion{CRD: definitionName, Path: "/"}).Convert(ctx, way, group+"/"+version, raw)
	if err != nil {
		return nil, t, err
	}
	s.w.count(func(*Counts) { s.w.watch.converted++ })
	var converted unstructured.Unstructured
	if err := converted.UnmarshalJSON(objects[0].Raw); err != nil {
		return nil, t, err
	}
	if converted.GetAPIVersion() != group+"/"+version {
		return nil, t, errors.New("the object is of " + converted.GetAPIVersion())
	}
	return converted.Object, t, nil
}

// lists has API servers convert many objects at once.
func (w *World) lists(f Fault, rng *rand.Rand) {
	w.mu.Lock()
	w.crowdings++
	n := w.crowdings
	w.mu.Unlock()
	if n == 1 && w.stream("crowd", int(f.At)).IntN(2) == 0 {
		w.crowds()
	}
	w.tell(fate, "lists shops again and again for %s", f.For.Round(time.Second))
	for until := time.Now().Add(min(f.For, 20*time.Second)); time.Now().Before(until); {
		w.tasks.Go(func() { w.list(rand.New(rand.NewPCG(rng.Uint64(), 4))) }) //nolint:gosec // a seed decides
		if !w.wait(time.Second) {
			return
		}
	}
}
