package world

// This file is what must hold at rest, and of the work that a program makes.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// mostGone is the number of records of versions that are gone: two, and those that lived when the last one came. A change of a
// mode makes another version of each that lives.
const mostGone = 4

const (
	// quiet is how long a world is left alone at its end.
	quiet = 25 * time.Minute

	// mostRequests is the number of requests of a replica at rest in an hour; DESIGN allows 60.
	mostRequests = 60

	// mostWrites and mostAtOnce are the numbers of writes of one object, and of requests of one process, in a minute. More
	// are a fight. A tool that waits for a rotation makes up to ten requests a second.
	mostWrites, mostAtOnce = 60, 800
)

// wrote notes a request that may have changed an object of that name.
func (w *World) wrote(name string) {
	i := slices.IndexFunc(belongings, func(b belonging) bool { return b.name == name })
	if i < 0 {
		return
	}
	now := w.find(belongings[i].kind, belongings[i].namespace, name)
	w.mu.Lock()
	defer w.mu.Unlock()
	of := rateOf(&w.watch.writes, name)
	if now == of.last {
		return
	}
	if belongings[i].kind == "Secret" {
		w.rotates(of.last, now)
		w.phases(of.last, now)
		w.remakes(of.last, now)
		w.formed(now)
		w.touches()
		w.keepsHeld(now)
	}
	of.last = now
	if belongings[i].kind == "Secret" && now != nil {
		w.secrets = append(w.secrets, now)
	}
	if of.add(time.Now()); len(of.recent) > mostWrites+10*w.plan.Replicas && len(of.recent) > mostWrites+10*w.startsSince(time.Now().Add(-time.Minute)) {
		w.breaks("%s was written %d times in a minute", name, len(of.recent))
	}
}

// startsSince returns how many replicas have started since then, each of which writes the Lease a few times. The caller holds mu.
func (w *World) startsSince(then time.Time) (n int) {
	for _, l := range w.story {
		if l.text == "starts" && l.at.After(then) {
			n++
		}
	}
	return n
}

// floods looks at the requests that a process makes.
func (w *World) floods(c *wire) {
	c.mu.Lock()
	n := len(c.made.recent)
	c.mu.Unlock()
	if n > mostAtOnce {
		w.violate("%s made %d requests in a minute", c.host.name, n)
	}
}

// rest waits for the end of the world, in which nothing happens, and looks at the state that the program has come to.
func (w *World) rest() {
	if !w.wait(quiet / 2) {
		return
	}
	w.mu.Lock()
	before, writes := map[*process]int{}, 0
	trusts := w.authorities.reads.Load()
	shared := w.writesOf(belongings[2].name, belongings[3].name)
	for _, p := range w.processes {
		before[p] = p.wire.count()
	}
	for name, r := range w.watch.writes {
		if strings.HasSuffix(name, "-hook") {
			writes += r.all
		}
	}
	w.mu.Unlock()
	if !w.wait(quiet / 2) {
		return
	}
	w.mu.Lock()
	rotates := w.plan.CALifetime > 0 || w.plan.Leaf > 0 && (w.plan.Issued || !w.plan.settled("rotation", "distrust", "restore", "deletion", "edit", "contest"))
	for _, p := range w.processes {
		made := p.wire.count() - before[p]
		bound := mostRequests * 1.5
		if w.plan.Reads { // nothing notices a dead connection here, so watches are short
			bound += 3600 / 20
		}
		if w.plan.vaults() {
			bound += 3600 / 20
		}
		if w.plan.Wide {
			bound += 3 * 3600 / 20
		}
		if w.plan.Split { // what was refused is tried again every ten minutes
			bound += 30
		}
		if share := float64(made) * float64(time.Hour) / float64(quiet/2); !rotates && share > bound {
			w.breaks("%s made %d requests within %s of rest, which are %.0f an hour", p, made, quiet/2, share)
		}
	}
	for name, r := range w.watch.writes {
		if strings.HasSuffix(name, "-hook") {
			writes -= r.all
		}
	}
	if n := w.writesOf(belongings[2].name, belongings[3].name) - shared; n > 0 && !rotates && !w.plan.Split {
		w.breaks("the Secret and the Lease were written %d times within %s of rest", n, quiet/2)
	}
	if writes < 0 && !rotates && !w.watch.estranged {
		w.breaks("configurations were written %d times within %s of rest", -writes, quiet/2)
	}
	all := slices.Clone(w.processes)
	w.mu.Unlock()
	w.mirrored()
	for _, p := range all {
		w.reach(p, atRest)
		w.speaksWell(p)
		w.askedEnough(p)
		if p.watcher != nil {
			w.toldAll(p.watcher)
		}
	}
	w.complete()
	w.readsTrust(quiet/2, w.authorities.reads.Load()-trusts)
	w.reached()
	w.pruned()
	w.diagnoses()
	if w.plan.Seed%4 == 3 {
		w.diagnosesElsewhere()
	}
	w.gauges()
	w.neighbours()
}

const atRest, atReady = "at rest", "ready"

// reach connects to a replica as each API server would, with each caBundle.
func (w *World) reach(p *process, when string) {
	seen := map[string]bool{}
	w.mu.Lock()
	estranged := w.watch.estranged
	wanted := w.watch.rotationsWanted > 0
	w.mu.Unlock()
	for _, s := range w.servers {
		for _, kind := range registered {
			for _, h := range s.entries(kind) {
				bundle := string(h.ClientConfig.CABundle)
				if seen[s.name+bundle] || when != atRest && len(ca.SplitBundle(h.ClientConfig.CABundle)) == 0 { // nothing can be called by that one
					continue
				}
				seen[s.name+bundle] = true
				roots := x509.NewCertPool()
				roots.AppendCertsFromPEM([]byte(bundle))
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				conn, err := w.network.dial(ctx, w.controlPlane, p.address)
				if err == nil {
					shaken := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: w.plan.serverName(), Time: s.now, MinVersion: tls.VersionTLS12, CurvePreferences: cheapest})
					if err = shaken.HandshakeContext(ctx); err == nil && when != atReady && when != amid {
						w.renewed(p, when, shaken.ConnectionState().PeerCertificates[0])
						w.uncrossed(p, when, len(shaken.ConnectionState().PeerCertificates))
						if when == atRest {
							w.isFresh(p, shaken.ConnectionState().PeerCertificates[0])
						}
					}
					_ = conn.Close()
				}
				cancel()
				w.mu.Lock()
				leaving := p.leaving && when == atReady // it crashes
				w.mu.Unlock()
				if err != nil && !leaving && (when != amid || slices.Contains(w.mustVerify(), p)) { // it may have been hit meanwhile
					w.violate("%s: %s cannot call %s for %s: %v", when, s.name, p, h.Name, err)
				}
				if n := len(ca.SplitBundle([]byte(bundle))); when == atRest && (!w.plan.Split || w.plan.CALifetime > 0) && !w.plan.Issued && !estranged && (n > 2 && w.plan.settled("restore", "deletion", "edit") || n > 1 && w.plan.CALifetime == 0 && !wanted && w.plan.settled("restore", "deletion", "edit", "rotation", "namespace", "contest")) {
					w.violate("at rest, the caBundle of %s holds %d CAs", h.Name, n)
				}
			}
		}
	}
}

// speaksWell looks at whether a replica speaks TLS 1.2, which ManagerOptions.TLS decides.
func (w *World) speaksWell(p *process) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := w.network.dial(ctx, w.controlPlane, p.address)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	older := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, CurvePreferences: cheapest}) //nolint:gosec // whom it calls, others check
	if err = older.HandshakeContext(ctx); (err != nil) != w.plan.newest() {
		w.violate("at rest, a client of TLS 1.2 shakes hands with %s, which speaks TLS 1.3 alone (%t): %v", p, w.plan.newest(), err)
	}
}

// uncrossed sees that a replica at rest sends no cross-certificate when no rotation is under way.
func (w *World) uncrossed(p *process, when string, sent int) {
	secret := w.find("Secret", namespace, fingerprint+"-setupcertificate")
	if when != atRest || sent < 2 || p.release.issued || secret == nil {
		return
	}
	if state, err := decode(secret); err == nil && state.Phase == ca.Steady && time.Since(state.Since) > settling {
		w.violate("%s, %s sends %d certificates, and no rotation has been under way for %s", when, p, sent, time.Since(state.Since).Round(time.Second))
	}
}

// leaks looks for goroutines of a process that has ended a while ago.
func (w *World) leaks(p *process) {
	w.mu.Lock()
	told := p.told
	w.mu.Unlock()
	if told && !w.wait(endedWithin) {
		return
	}
	if told && !w.leftBy(p, endedWithin, true) {
		return
	}
	if w.wait(time.Minute) {
		w.leftBy(p, time.Minute, false)
	}
}

// endedWithin is how long after its end a process that was told to stop may have goroutines: those of connections that are closed.
const endedWithin = 2 * time.Second

// leftBy looks for goroutines of a process that has ended so long ago, and reports whether there are some. Those that are in a step
// may be left out, because it can ignore its context.
func (w *World) leftBy(p *process, ago time.Duration, steps bool) (some bool) {
	var all strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&all, 1) // to memory
	for stack := range strings.SplitSeq(all.String(), "\n\n") {
		if !strings.Contains(stack, fmt.Sprintf("%q:%q", processLabel, p.name)) {
			continue
		}
		if some = true; steps && (strings.Contains(stack, "release.sticks") || strings.Contains(stack, "world.clung")) {
			continue
		}
		w.violate("%s has ended %s ago and left a goroutine: %s", p, ago, stack)
	}
	return some
}

// isOver ends the world, and says so outside its bubble.
func (w *World) isOver() {
	w.end.Do(func() {
		close(w.over)
		w.overTo <- w
	})
}

// endsWithin is how much real time the goroutines of a world that is over have to end. They need milliseconds.
const endsWithin = time.Minute

// awaitEnd is outside the bubble of a world, which never ends while a goroutine that was left behind has something to do.
func awaitEnd(over <-chan *World, ended <-chan struct{}) {
	select {
	case <-ended:
	case w := <-over:
		select {
		case <-ended:
		case <-time.After(endsWithin):
			panic(fmt.Sprintf("seed %d: blocked goroutines remain, or busy ones: %s", w.plan.Seed, w.violation))
		}
	}
}

// processLabel is the label of the goroutines of a process.
const processLabel = "process"

// settled reports whether none of these faults is in the plan.
func (p Plan) settled(kinds ...string) bool {
	return !slices.ContainsFunc(p.Faults, func(f Fault) bool { return slices.Contains(kinds, f.Kind) })
}

// firstOf reports whether only one fault of these kinds comes before that time.
func (p Plan) firstOf(until time.Duration, kinds ...string) bool {
	n := 0
	for _, f := range p.Faults {
		if f.At <= until && slices.Contains(kinds, f.Kind) {
			n++
		}
	}
	return n <= 1
}

// complete looks at what is registered at rest.
func (w *World) complete() {
	w.mu.Lock()
	defer w.mu.Unlock()
	fresh := 0
	for _, p := range w.processes {
		if p.readySince.IsZero() {
			w.breaks("at rest, %s is not ready", p)
		} else if !p.endpoint {
			w.breaks("at rest, %s is not ready any more", p)
		}
		if p.generation == w.generation {
			fresh++
		}
	}
	if fresh != w.replicas || len(w.processes) != fresh {
		w.breaks("at rest, %d replicas of %d run, and %d others", fresh, w.replicas, len(w.processes)-fresh)
	}
	w.unmarked()
	if lease := w.find("Lease", namespace, fingerprint+"-versions"); lease != nil {
		gone := 0
		for _, r := range rollout.Read(lease.GetAnnotations()) {
			if r.Removed {
				gone++
			}
		}
		if gone > mostGone && !w.plan.Modes || gone > mostGone+2 {
			w.breaks("at rest, the Lease holds the records of %d versions that are gone", gone)
		}
	}
	if secret := w.find("Secret", namespace, fingerprint+"-setupcertificate"); secret != nil && !w.wanted.issued {
		state, err := decode(secret)
		if asked := secret.GetAnnotations()[certsecret.DistrustAnnotation]; err != nil || asked != "" && asked == fmt.Sprint(state.CurrentID) {
			w.breaks("at rest, the distrusted CA %s still signs (%v)", asked, err)
		}
		if err == nil {
			w.mirrors(secret, state)
			w.distrusted(state)
		}
	}
	if w.plan.Converts {
		w.defined()
	}
	for _, kind := range configurations {
		object := w.history[kind].last()
		if w.wanted.judges && kind == configurations[0] {
			if all := webhooksOf(object); len(all) > 0 {
				w.breaks("at rest, the %s holds %s, and %s changes nothing", kind, all[0].Name, w.wanted.name)
			}
			continue
		}
		if object == nil {
			w.breaks("at rest, there is no %s", kind)
			continue
		}
		if v := object.GetAnnotations()[webhookconf.VersionAnnotation]; v == "" {
			w.breaks("at rest, the %s carries no version", kind)
		}
		w.pins(kind, object)
		w.ours(kind, object)
		w.shadowed(kind, webhooksOf(object))
		w.ownedWell(kind, object)
		names := ""
		for _, h := range webhooksOf(object) {
			names += " " + h.Name
			w.outgrown(h)
			was, known := w.watch.written[h.version+" "+kind+" "+h.Name]
			if h.ClientConfig.CABundle = nil; known && !equality.Semantic.DeepEqual(was.ValidatingWebhook, h.ValidatingWebhook) {
				w.breaks("at rest, the entry %s of the %s is not as it was registered", h.Name, kind)
			}
		}
		for _, step := range w.wanted.steps {
			if isolated := w.wanted.isolated[step]; isolated && !strings.Contains(names, " "+step+".") && !strings.Contains(names, " "+step+"-sets.") {
				w.breaks("at rest, the %s lacks step %s of %s (it holds%s)", kind, step, w.wanted.name, names)
			}
		}
		for _, step := range plain {
			if held := strings.Contains(names, " "+step+".") || strings.Contains(names, " "+step+"-sets."); held && !w.wanted.isolated[step] && w.watch.ordered.IsZero() {
				w.breaks("at rest, the %s holds an entry of step %s, which %s does not declare", kind, step, w.wanted.name)
			}
		}
		if owners := slices.DeleteFunc(object.GetOwnerReferences(), isMarked); !w.plan.Split && (len(owners) != 1 || owners[0].UID != w.find("Namespace", "", namespace).GetUID()) {
			w.breaks("at rest, the %s is not owned by the namespace: %v", kind, owners)
		}
	}
}

// decode reads the state in the Secret.
func decode(object *unstructured.Unstructured) (*certsecret.State, error) {
	store := certsecret.Store{Now: time.Now, Cached: func(context.Context) (*corev1.Secret, error) {
		secret := &corev1.Secret{}
		return secret, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, secret)
	}}
	return store.Peek(context.Background())
}
