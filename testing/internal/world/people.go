package world

// This file is what people do to a program, and tools of theirs that do not serve.

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix"
)

func (w *World) rollout(f Fault, rng *rand.Rand) {
	w.mu.Lock()
	if rng.IntN(2) == 0 { // it is not finished at once
		w.paused = w.began.Add(min(time.Since(w.began)+3*f.For, w.plan.Lasts-quiet-settling))
	}
	if w.plan.Issued && w.plan.Leaf > 0 && w.stream("stays", int(f.At)).IntN(2) == 0 { // it takes longer than a CA is retained
		w.paused = w.began.Add(min(time.Since(w.began)+2*w.plan.Leaf+settling, w.plan.Lasts-quiet-settling))
	}
	w.wanted = w.releases[rng.IntN(len(w.releases))]
	w.generation++
	to := w.wanted.name
	w.mu.Unlock()
	w.tell(fate, "rolls out %s", to)
	w.wake()
}

func (w *World) restart(f Fault, _ *rand.Rand) {
	if own := w.stream("twice", int(f.At)); f.At > 0 && own.IntN(3) == 0 { // replicas that start are stopped
		w.tasks.Go(func() {
			if w.wait(time.Duration(own.Int64N(int64(8 * time.Second)))) {
				w.stirs()
				w.restart(Fault{}, nil)
			}
		})
	}
	w.mu.Lock()
	w.generation++
	w.mu.Unlock()
	w.tell(fate, "restarts all replicas in turn")
	w.wake()
}

// crashLoop rolls out a version whose replicas end before they are ready, and takes it back.
func (w *World) crashLoop(f Fault, rng *rand.Rand) {
	broken := w.releases[rng.IntN(len(w.releases))]
	broken.name, broken.crashes = broken.name+" (broken)", true
	w.mu.Lock()
	good := w.wanted
	if good.crashes {
		w.mu.Unlock()
		return
	}
	w.wanted = broken
	w.generation++
	w.mu.Unlock()
	w.tell(fate, "rolls out %s", broken.name)
	w.wake()
	w.wait(f.For)
	w.mu.Lock()
	if w.wanted.crashes {
		w.wanted = good
		w.generation++
	}
	w.mu.Unlock()
	w.tell(fate, "rolls out %s again", good.name)
	w.wake()
}

// tool runs an operation of a process that does not serve.
func (w *World) tool(what string, of release, rng *rand.Rand, do func(context.Context, *eirinix.ExtensionManager) error) {
	ctx, cancel := w.ctx()
	defer cancel()
	ctx, cancelTimeout := context.WithTimeout(ctx, time.Minute)
	defer cancelTimeout()
	h := newHost("a tool")
	c := w.newWire(h, rng)
	if own := w.stream("frail", int(time.Since(w.began))); strings.HasPrefix(what, "rotates") && own.IntN(2) == 0 {
		c.frail = own
	}
	m := w.newManager(h, c, "a tool", "10.2.0.1:"+port, of)
	if err := of.add(m); err != nil {
		w.violate("a tool cannot be made: %v", err)
		return
	}
	w.tell(named("a tool"), "%s", what)
	w.mu.Lock()
	w.watch.rotatedBy = time.Now() // perhaps
	w.mu.Unlock()
	began := time.Now()
	if err := do(ctx, m); err != nil {
		w.tell(named("a tool"), "cannot: %v", err)
		w.cannot(began, what, err)
	}
	m.Stop()
	h.cut(true)
	c.cut()
}

// dies ends a context soon.
func (w *World) dies(ctx context.Context, rng *rand.Rand) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	time.AfterFunc(time.Duration(rng.Int64N(int64(time.Second))), cancel)
	return ctx
}

// cannot judges an operation that has failed.
func (w *World) cannot(began time.Time, what string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.over:
		return
	default:
	}
	if w.watch.held != nil || w.watch.heldUntil.Add(settling).After(began) {
		return // the Secret must not be written
	}
	for e := range excuses {
		if w.excused(e, began) {
			return
		}
	}
	if strings.Contains(what, "rotat") && !strings.Contains(what, "distrust") && (w.plan.CALifetime > 0 || w.watch.rotationsWanted > 1 || !w.plan.firstOf(began.Sub(w.began), "rotation", "distrust", "restore", "contest")) {
		return // a further one waits until the one before is over, which may take days
	}
	w.breaks("%s fails although nothing is in its way: %v", what, err)
}

func (w *World) rotate(f Fault, rng *rand.Rand) {
	if own := w.stream("annotates", int(f.At)); !w.plan.Issued && own.IntN(4) == 0 {
		w.annotates(own)
		return
	}
	w.wants()
	if p := w.any(rng); p != nil && !w.plan.Split && !p.release.issued && rng.IntN(2) == 0 {
		w.tell(p, "is asked for a rotation of the CA")
		ctx, cancel := w.ctx()
		defer cancel()
		ctx, cancelTimeout := context.WithTimeout(ctx, time.Minute)
		defer cancelTimeout()
		began, staged, was := time.Now(), w.staged(), w.state()
		if err := p.manager.RotateCA(ctx, eirinix.RotateOptions{}); err != nil {
			w.tell(p, "cannot: %v", err)
			select {
			case <-p.gone: // it stops meanwhile
			default:
				w.cannot(began, "a rotation", err)
			}
		} else {
			w.signsAnew(was)
			if !staged {
				w.announced(p, began)
			}
		}
		return
	}
	of := w.live(rng)
	if of.issued {
		return // it has no CA
	}
	before := w.find("Secret", namespace, fingerprint+"-setupcertificate")
	was := w.state()
	w.tool("rotates the CA", of, rng, func(ctx context.Context, m *eirinix.ExtensionManager) error {
		err := m.RotateCA(ctx, eirinix.RotateOptions{})
		if err == nil {
			w.signsAnew(was)
		}
		return err
	})
	if before != nil && w.plan.Split && w.plan.Leaf > 0 {
		w.tasks.Go(func() { w.prunes(before) })
	}
	if own := w.stream("set back", int(f.At)); before != nil && !w.plan.Split && own.IntN(2) == 0 && w.wait(time.Duration(own.Int64N(int64(2*time.Minute)))) {
		w.setsBack(before)
	}
}

func (w *World) distrust(f Fault, rng *rand.Rand) {
	of := w.live(rng)
	if of.issued {
		return // it has no CA
	}
	w.excuse(evicted, 10*time.Minute)
	w.wants()
	w.mu.Lock()
	asked := time.Now()
	w.watch.asked = asked
	w.mu.Unlock()
	var old []byte // the CA that is to go
	if secret := w.find("Secret", namespace, fingerprint+"-setupcertificate"); secret != nil {
		if state, err := decode(secret); err == nil {
			if authority, err := state.Current(); err == nil {
				old = authority.CertificatePEM
			}
		}
	}
	w.tool("rotates the CA and distrusts the old one", of, rng, func(ctx context.Context, m *eirinix.ExtensionManager) error {
		if rng.IntN(2) == 0 {
			_ = m.RotateCA(w.dies(ctx, rng), eirinix.RotateOptions{Distrust: true})
			w.tell(named("a tool"), "is interrupted")
			return nil
		}
		err := m.RotateCA(ctx, eirinix.RotateOptions{Distrust: true})
		if err == nil && old != nil {
			w.evict(old)
		}
		return err
	})
	if own := w.stream("loses", int(f.At)); old != nil && !w.plan.Split && own.IntN(3) == 0 {
		w.tasks.Go(func() { w.losesMark(old, asked, own) })
		return
	}
	if own := w.stream("emptied", int(f.At)); !w.plan.Split && !w.plan.Issued && w.plan.CALifetime == 0 && own.IntN(2) == 0 && w.wait(time.Minute) {
		w.empties(asked)
	}
}

// live returns a version of which a replica lives.
func (w *World) live(rng *rand.Rand) release {
	if p := w.any(rng); p != nil {
		return p.release
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wanted
}

// await returns true once most replicas are of the version and ready, and false if another one is wanted by then. An API server
// tries eleven times to find one of them.
func (w *World) await(r release) bool {
	for w.wait(time.Second) {
		w.mu.Lock()
		wanted := w.wanted.name == r.name
		ready := 0
		for _, p := range w.processes {
			if p.release.name == r.name && !p.leaving && !p.readySince.IsZero() {
				ready++
			}
		}
		most := 2*ready > len(w.processes)
		w.mu.Unlock()
		if most || !wanted {
			return wanted
		}
	}
	return false
}

// changeMode changes the mode of a step.
func (w *World) changeMode(f Fault, rng *rand.Rand) {
	if w.changesEntry(w.stream("entries", int(f.At))) {
		return
	}
	if own := w.stream("halves", int(f.At)); own.IntN(6) == 0 && !w.plan.Unregister {
		w.halves(own)
		return
	}
	switch own := w.stream("modes", int(f.At)); own.IntN(6) {
	case 0:
		if !w.plan.Unregister {
			w.darkens(f, own)
			return
		}
	case 3:
		if !w.plan.Unregister {
			w.flickers(own)
			return
		}
	case 1, 2:
		if own.IntN(3) == 0 && w.warnsMixed(f, own) || w.watchesAll(own) {
			return
		}
	}
	all := []eirinix.Mode{eirinix.ModeDeny, eirinix.ModeWarn, eirinix.ModeAudit, eirinix.ModeShadow}
	steps := w.common()
	if rng.IntN(5) == 0 {
		w.tell(fate, "deletes the ConfigMap of the modes")
		w.api.Remove(schema.GroupResource{Resource: "configmaps"}, namespace, modesName)
		w.remode()
		return
	}
	if rng.IntN(4) == 0 {
		w.relabel()
		return
	}
	if rng.IntN(4) == 0 {
		w.misspell(f, steps[rng.IntN(len(steps))])
		return
	}
	if rng.IntN(4) == 0 && !w.plan.only() {
		w.open(steps[rng.IntN(len(steps))], rng)
		return
	}
	to, step := string(all[rng.IntN(len(all))]), steps[rng.IntN(len(steps))]
	switch rng.IntN(6) {
	case 0, 1:
		to = fmt.Sprintf("%s where %s\n%s", to, gold, all[rng.IntN(len(all))])
	case 2:
		to = fmt.Sprintf("%s where %s", to, gold)
	}
	if rng.IntN(3) == 0 && !w.plan.Judges {
		step += "-sets"
	}
	w.setMode(step, to)
}

// gold is the label of a namespace by which modes differ.
const gold = "tier=gold"

// relabel takes the label from the namespace of pods, or gives it.
func (w *World) relabel() {
	shop := w.find("Namespace", "", "shop").DeepCopy()
	key, value, _ := strings.Cut(gold, "=")
	all := shop.GetLabels()
	if all[key] == "" {
		all[key] = value
	} else {
		delete(all, key)
	}
	shop.SetLabels(all)
	w.tell(fate, "gives the namespace of pods the labels %v", all)
	if err := w.api.Put(shop); err != nil {
		w.violate("a namespace cannot be changed: %v", err)
	}
	w.remode()
}

// open creates a namespace, and at once a pod in it, for which the mode of a step differs. No watch has shown it yet.
func (w *World) open(step string, rng *rand.Rand) {
	there, elsewhere := eirinix.ModeDeny, eirinix.ModeAudit
	if rng.IntN(2) == 0 {
		there, elsewhere = elsewhere, there
	}
	w.setMode(step, fmt.Sprintf("%s where %s\n%s", there, gold, elsewhere))
	w.mu.Lock()
	mode := w.modes[step]
	w.mu.Unlock()
	s := w.servers[rng.IntN(len(w.servers))]
	if failing, frozen := s.state(); !w.wait(2*inMode) || failing != 0 || frozen != nil {
		return
	}
	key, value, _ := strings.Cut(gold, "=")
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("shop%d", rng.Uint32()), Labels: map[string]string{key: value}}}
	w.tell(fate, "creates the namespace %s with the label %s", shop.Name, gold)
	if err := w.api.Put(shop); err != nil {
		w.violate("a namespace cannot be created: %v", err)
	}
	defer w.api.Remove(schema.GroupResource{Resource: "namespaces"}, "", shop.Name)
	pod := podIn(shop.Name, "first")
	pod.SetLabels(map[string]string{denyLabel: step})
	ctx, cancel := w.ctx()
	defer cancel()
	began := time.Now()
	v := s.admit(ctx, ask{operation: admissionv1.Create, resource: podResource, kind: podKind, object: pod})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.settledSince(mode.since) && w.modes[step] == mode && w.mustRun(step, began) && (v.denied == "") == (there == eirinix.ModeDeny) {
		w.breaks("%s: the first pod of a namespace, for which step %s is in %s, is %s", s.name, step, there, v)
	}
}

// modeIn returns the mode by a text in the ConfigMap of modes.
func (w *World) modeIn(text string) eirinix.Mode {
	special, usual, found := strings.Cut(text, " where "+gold)
	key, value, _ := strings.Cut(gold, "=")
	if found && w.find("Namespace", "", "shop").GetLabels()[key] != value {
		return cmp.Or(eirinix.Mode(strings.TrimSpace(usual)), eirinix.ModeDeny)
	}
	return cmp.Or(eirinix.Mode(special), eirinix.ModeDeny)
}

// noMode is a word that is no mode.
const noMode = "Adit"

// misspell writes a word that is no mode for a while. The last good entry stays in force.
func (w *World) misspell(f Fault, step string) {
	w.mu.Lock()
	m := w.modes[step]
	m.bad = time.Now()
	w.modes[step] = m
	if until := m.bad.Add(f.For + settling); until.After(w.watch.spells) {
		w.watch.spells = until
	}
	w.mu.Unlock()
	w.tell(fate, "misspells the mode of step %s for %s", step, f.For.Round(time.Second))
	w.writeModes()
	w.wait(f.For)
	w.refusesMode(step, m.bad)
	w.mu.Lock()
	if now := w.modes[step]; now.bad.Equal(m.bad) {
		now.bad = time.Time{}
		if w.misspelt(m) { // its replica learns of the mode only now
			now.since = time.Now()
		}
		w.modes[step] = now
	}
	w.mu.Unlock()
	w.writeModes()
}

func (w *World) setMode(step, to string) {
	w.tell(fate, "puts step %s into %q", step, to)
	w.mu.Lock()
	before := w.modes[step]
	w.modes[step] = modeOf{mode: w.modeIn(to), since: time.Now(), text: to}
	w.mu.Unlock()
	w.writeModes()
	if shadow := string(eirinix.ModeShadow); (to == shadow) != (before.text == shadow) && !strings.Contains(to+before.text, " ") && !w.plan.Split {
		w.tasks.Go(func() { w.switches(step, to == shadow) })
	}
}

// writeModes writes the ConfigMap.
func (w *World) writeModes() {
	w.mu.Lock()
	data := map[string]string{}
	for _, s := range w.boxes {
		if len(s.modes) > 0 {
			data[s.name] = s.entry()
		}
	}
	for name, m := range w.modes {
		if m.text != "" {
			data[name] = m.text
		}
		if !m.bad.IsZero() {
			data[name] = noMode
		}
	}
	w.mu.Unlock()
	if err := w.api.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: modesName}, Data: data}); err != nil {
		w.violate("a mode cannot be changed: %v", err)
	}
}
