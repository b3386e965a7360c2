package world

// This file is what must hold, why it need not for a while, and what the world knows of both.

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix/internal/ca"
	rbac "code.cloudfoundry.org/eirinix/internal/rights"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// An excuse is why a promise need not hold for a while.
type excuse int

const (
	rough    excuse = iota // a replica lost connections: its calls may fail
	slow                   // the API server does not answer: nothing can be registered
	spoiled                // another client has damaged what the program registered, or its CA while nothing knows it
	lapsed                 // the Lease cannot be read or written, or it or the Secret was lost: who lives is not known for a while
	evicted                // a CA was distrusted: a replica that is cut off cannot follow
	unread                 // what steps read cannot be read, so they fail
	apart                  // a replica, and not all, is kept from the API servers
	strange                // another program is there under the same fingerprint, which logs may call an error
	unissued               // what another authority gives to the program cannot be used: no replica can start
	excuses
)

// promises is what the world knows of them. World.mu guards it.
type promises struct {
	tallies                    map[string]*tally // by the end of the path
	refusals                   map[int]int       // of calls, by status
	killed                     map[string]bool   // processes, by name
	converted                  int               // objects
	until                      [excuses]time.Time
	force                      map[string]time.Time // since when a step has been seen in force, no order being under way, and must stay so
	covered                    map[string]time.Time // since when every live version declares a step
	writes                     map[string]*rate     // of the program's objects, by name
	lines                      map[string]*rate     // of logs
	changes                    map[string]*rate     // of configurations, by kind
	digests                    map[string]string    // the names of steps, by the version that has them
	gone                       map[string]bool      // versions that are recorded so
	foreign                    map[string]time.Time // CAs that nothing needs, since when
	versions                   rollout.Versions     // as they were recorded last
	recordedAt                 map[string]time.Time // when the steps of a version have changed there
	leftAt                     map[string]time.Time // when a version has last been recorded as stopping or gone, by its steps
	marked                     map[string]types.UID // kinds of objects to which another client has added something, and which object
	invented                   map[string]types.UID // the same of entries
	evicted                    [][]byte             // CAs that a rotation with Distrust has taken out of force
	strict                     map[string]time.Time // since when every live version declares that a step denies
	mild                       map[string]time.Time // since when none does
	written                    map[string]hook      // entries as they were registered first, without a caBundle, by their version and name
	adopted                    bool                 // the CA of another client, while no configuration pinned one
	keyless                    bool                 // the key of conversions is lost
	estranged                  bool                 // another client has put its CA in place of ours while that could not be repaired: who starts then cannot know it
	late                       time.Duration        // by which an API server has been behind at most
	ordered                    time.Time            // when a person has last registered a version
	spells                     time.Time            // until then, the ConfigMap of modes may hold a word that is none
	asked                      time.Time            // when a person has last asked for a rotation with Distrust
	renewed                    time.Time            // when the namespace was last deleted and made again
	damaged                    time.Time            // when an object of the program was last harmed
	contest                    time.Time            // when a tool has last reverted a configuration
	stirred                    time.Time            // when something has happened that makes replicas ask
	left                       map[string]time.Time // when a version was last replaced in the configurations
	lonely                     time.Time            // the last moment at which no replica was ready
	rotatedBy                  time.Time            // when a tool has last done something, of which it writes no Events
	questions                  map[string]*rate     // about CAs, by the kind of the configuration
	overflows                  time.Time            // until then, shops may lose values
	unbroken                   time.Time            // when a policy that a step cannot read has gone
	keys                       keyring              // of conversions
	stored                     []storedShop
	undone                     time.Time           // when a tool has last put caBundles back
	suspended                  time.Time           // until then, the CronJob of a split deployment rests
	overrun                    time.Time           // when another program was last registered by a person
	rotations, rotationsWanted int                 // that have begun, and that were asked for
	taught                     time.Time           // when a replica has last lived that converts the third version of shops
	refused                    map[*process]int    // requests for certificates in a row
	served                     map[*process][]byte // certificates of replicas at rest
	lastOrder                  string              // the version that a person has registered last, and when
	lastOrdered                time.Time
	grants                     map[string][]rbac.Grant    // of the accounts of versions, by name
	pods                       map[types.UID]*life        // of those that Watchers are told of
	moved                      life                       // that was made or changed last
	comings                    rate                       // of replicas that come or leave
	questionsTo                map[string]*rate           // of versions, by the version that is asked
	held                       *unstructured.Unstructured // the Secret, while no replica may write it
	heldUntil                  time.Time                  // when that was over
	eirinix                    []byte                     // the CA of EiriniX, whose Secret was there before the program
	said                       map[string]*rate           // lines of logs, by process and text
	denials                    rate                       // of requests
	toldDenials                map[types.UID]bool         // those that a log tells
	clings                     time.Time                  // until then, objects may not be converted
	toldModes                  map[string]string          // the last one of a process and a step that its log tells
	lastRenewed                map[string]time.Time       // when a process has last renewed its certificate
	pruned                     time.Time                  // when a running program has last taken an old CA away
	diagnosed                  time.Time                  // when the program was diagnosed at rest
	crowded                    time.Time                  // until then, calls may wait for others
	asleep                     time.Time                  // until then, no replica is to run
	knew                       int                        // how many replicas had started when the Secret was deleted, all of which knew it; 0 for another state
	raced, lost                map[string]int             // writes of an object, by its name: how many there were, and have lost a race in a row
}

// excuse lets a promise rest from now on, for d.
func (w *World) excuse(e excuse, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e == spoiled && w.watch.contest.Add(2*quiet).After(time.Now()) { // further repairs come late too
		d = max(d, repairedWithin)
	}
	if w.plan.Split && (e == spoiled || e == lapsed) { // only the CronJob mends
		d += registersEvery
	}
	if until := time.Now().Add(d); until.After(w.watch.until[e]) {
		w.watch.until[e] = until
	}
	if e == spoiled || e == lapsed {
		w.watch.damaged = time.Now()
		clear(w.watch.force)
	}
}

// excused reports whether a promise rested at a moment since then. The caller holds mu.
func (w *World) excused(e excuse, since time.Time) bool { return w.watch.until[e].After(since) }

// troubled reports whether something is wrong that a log may call an error. The caller holds mu.
func (w *World) troubled() bool {
	for e := range excuses {
		if w.excused(e, time.Now()) {
			return true
		}
	}
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// excuseWhile lets a promise rest while something holds, and a moment longer.
func (w *World) excuseWhile(e excuse, holds func() bool) {
	w.excuse(e, settling)
	w.tasks.Go(func() {
		for holds() && w.wait(time.Second) {
			w.excuse(e, settling)
		}
	})
}

// troubledSince reports whether one of these rested at a moment since then. The caller holds mu.
func (w *World) troubledSince(since time.Time, which ...excuse) bool {
	return slices.ContainsFunc(which, func(e excuse) bool { return w.excused(e, since) })
}

// inForce is how long a program may take until all of its steps are in force.
const inForce = 3 * time.Minute

// configured is told of each change of a configuration. The caller holds mu.
func (p *promises) configured(w *World, kind string, was, is *unstructured.Unstructured) {
	w.counts.Writes++
	of := rateOf(&p.changes, kind)
	if of.add(time.Now()); len(of.recent) > 2*mostWrites+10*w.plan.Replicas { // half of them may be by a tool
		w.breaks("the %s has come, changed or gone %d times in a minute", kind, len(of.recent))
	}
	before, after := webhooksOf(was), webhooksOf(is)
	if was == nil && is != nil && len(after) == 0 && kind != definitionKind && w.plan.settled("restore") {
		w.breaks("the %s has come, and holds no entry", kind)
	}
	for _, h := range after {
		for _, c := range ca.SplitBundle(h.ClientConfig.CABundle) {
			switch {
			case c.Subject.CommonName != intruder:
			case was == nil:
				p.adopted = true
			case !p.adopted:
				w.breaks("the caBundle of %s holds a CA that another client has put into the Secret", h.Name)
			}
		}
		for _, old := range p.evicted {
			if ca.Contains(h.ClientConfig.CABundle, old) {
				w.breaks("the caBundle of %s holds a CA again that RotateCA has taken out of force", h.Name)
			}
		}
		key := h.version + " " + kind + " " + h.Name
		if h.ClientConfig.CABundle = nil; p.written[key].Name == "" && !w.excused(spoiled, time.Now()) {
			p.written[key] = h
		}
	}
	if w.plan.Late && (w.watch.ordered.IsZero() || !w.rights.serves()) && len(w.policies) == 1 && slices.ContainsFunc(after, func(h hook) bool { return strings.HasPrefix(h.Name, reader+".") }) {
		w.breaks("the step %s is registered before there is what it requires", reader)
	}
	w.keepsIssuer(kind, after)
	w.leavesOut(kind, after)
	w.keeps(kind, was, is)
	w.holds(kind, was, is)
	w.questions(kind, was, is)
	var gone []string
	for _, h := range before {
		if !slices.ContainsFunc(after, func(a hook) bool { return a.Name == h.Name }) {
			gone = append(gone, h.Name)
		}
	}
	w.stands(was, is)
	if was != nil {
		next := ""
		if is != nil {
			next = w.watch.digests[is.GetAnnotations()[webhookconf.VersionAnnotation]]
		}
		w.stay(gone, w.watch.digests[was.GetAnnotations()[webhookconf.VersionAnnotation]], next)
	}
	text := fmt.Sprintf("holds %d entries", len(after))
	if len(gone) > 0 {
		text += ", and no more " + strings.Join(gone, ", ")
	}
	w.story = append(w.story, line{at: time.Now(), who: strings.TrimSuffix(kind, "WebhookConfiguration"), text: text, minor: true})
}

// evict notes that a CA has been taken out of force for good: no caBundle holds it.
func (w *World) evict(old []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watch.evicted = append(w.watch.evicted, old)
	for _, kind := range registered {
		for _, h := range webhooksOf(w.history[kind].last()) {
			if ca.Contains(h.ClientConfig.CABundle, old) {
				w.breaks("RotateCA with Distrust has returned, and the caBundle of %s still holds the old CA", h.Name)
			}
		}
	}
}

// unneeded notes a CA that nothing needs from now on. It stays in caBundles for a while.
func (w *World) unneeded(authority []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watch.foreign == nil {
		w.watch.foreign = map[string]time.Time{}
	}
	w.watch.foreign[string(authority)] = time.Now()
}

// outgrown looks for CAs in a caBundle that were to go. The caller holds mu.
func (w *World) outgrown(h hook) {
	seen := time.Now() // by the replica that has lived longest
	for _, p := range w.processes {
		if p.readySince.Before(seen) {
			seen = p.readySince
		}
	}
	for authority, since := range w.watch.foreign {
		if since.Before(seen) {
			since = seen
		}
		if ca.Contains(h.ClientConfig.CABundle, []byte(authority)) && w.plan.Leaf > 0 && time.Since(since) > w.plan.Leaf*11/10+settling {
			w.breaks("at rest, the caBundle of %s holds a CA that nothing has needed for %s", h.Name, time.Since(since).Round(time.Second))
		}
	}
}

// first looks at the state in which a replica is ready for the first time. The caller holds mu.
func (w *World) first(p *process) {
	w.isInLease(p)
	w.migrated()
	for _, kind := range configurations {
		object := w.history[kind].last()
		if object == nil && !w.excused(spoiled, time.Now()) && !w.plan.Unregister && !w.plan.Judges && !w.plan.blind() {
			w.breaks("%s is ready, and there is no %s", p, kind)
		}
		for _, h := range webhooksOf(object) {
			if to, _ := webhookconf.TargetOf(h.ClientConfig); to.String() != w.plan.target() && time.Since(w.watch.overrun) > time.Minute {
				w.breaks("%s is ready, and API servers call %s", p, to)
			}
		}
	}
}

// trusted sees that each API server can call a replica that has just become ready, also after the CA was lost.
func (w *World) trusted(p *process) {
	w.mu.Lock()
	for _, kind := range registered { // one that starts after a write cannot know that API servers may not have it yet
		if h := w.history[kind]; len(h) > 0 && h[len(h)-1].at.Before(p.host.listening()) && h[len(h)-1].at.Add(w.plan.Lag).After(p.began) {
			w.mu.Unlock()
			return
		}
	}
	spoiled := w.excused(spoiled, time.Now()) && !w.troubledSince(p.began, rough, slow, apart, evicted) && w.watch.damaged.Before(p.began) && !w.plan.Unregister && !w.plan.Split
	w.mu.Unlock()
	if spoiled {
		w.reach(p, atReady)
	}
}

// begins brings the promises up to date, and returns the time at which a request begins.
func (w *World) begins() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look()
	return time.Now()
}

// look brings what must hold up to date. It is called before each admission. The caller holds mu.
func (w *World) look() {
	now, p := time.Now(), &w.watch
	if p.force == nil {
		p.force, p.covered, p.lonely = map[string]time.Time{}, map[string]time.Time{}, now
	}
	ready := slices.ContainsFunc(w.processes, func(r *process) bool { return !r.leaving && !r.readySince.IsZero() })
	if !ready {
		p.lonely = now
	}
	p.compare(w, now)
	for _, step := range append(slices.Clip(plain), reader, lenient) {
		all := len(w.processes) > 0
		for _, r := range w.processes {
			all = all && r.release.has(step)
		}
		switch {
		case !all:
			delete(p.covered, step)
			delete(p.force, step)
		case p.covered[step].IsZero():
			p.covered[step] = now
		}
	}
}

// mostQuestions is the number of notes in a minute that CAs of a configuration are not needed, or are. A replica notes each of them
// once, and another one takes the note away; then nothing asks for as long as CAs are retained.
const mostQuestions = 15

// questions counts these notes. The caller holds mu.
func (w *World) questions(kind string, was, is *unstructured.Unstructured) {
	if was == nil || is == nil || was.GetAnnotations()[webhookconf.UnneededAnnotation] == is.GetAnnotations()[webhookconf.UnneededAnnotation] {
		return
	}
	of := rateOf(&w.watch.questions, kind)
	if of.add(time.Now()); len(of.recent) > mostQuestions {
		w.breaks("in a minute, replicas have noted %d times in the %s that a CA is not needed, or is", len(of.recent), kind)
	}
}
