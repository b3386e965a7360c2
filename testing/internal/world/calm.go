package world

// This file is promises of a program to which nothing has happened for a while.

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"slices"
	"time"
)

// readySoon is how long a start takes at most in a calm world. It takes some seconds, and ten more where API servers must learn of
// a CA first.
const readySoon = 35 * time.Second

// backdated is how long before now a certificate begins at most.
const backdated = time.Hour

// isSlow looks at a replica that starts. The caller holds mu.
func (w *World) isSlow(p *process) {
	if w.plan.blind() && time.Since(w.authorities.madeAt) < registersEvery+settling { // the tool has yet to register the CA
		return
	}
	if p.readySince.IsZero() && time.Since(p.began) > readySoon && w.settledSince(p.began.Add(-settling)) && w.plan.settled("right") && w.watch.stirred.Add(settling).Before(p.began) {
		w.breaks("%s is not ready %s after its start, and nothing has happened", p, readySoon)
	}
}

// isFresh looks at the certificate that a replica at rest serves, if it has signed that by itself: each replica has one of its own,
// and renews it in time.
func (w *World) isFresh(p *process, serves *x509.Certificate) {
	if p.release.issued {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for other, certificate := range w.watch.served {
		if other != p && bytes.Equal(certificate, serves.Raw) {
			w.breaks("%s and %s serve one certificate", p, other)
		}
	}
	curve := elliptic.P256()
	if w.plan.strong() {
		curve = elliptic.P384()
	}
	if key, ok := serves.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != curve {
		w.breaks("%s serves a certificate with a key that is none of %s", p, curve.Params().Name)
	}
	full := w.plan.serverName() + ".cluster.local" // for callers in the cluster
	if names := serves.DNSNames; names[0] != w.plan.serverName() || len(names) > 2 || len(names) == 2 && names[1] != full || len(serves.IPAddresses) > 0 {
		w.breaks("%s serves a certificate for %v and %v, and is called by %s", p, names, serves.IPAddresses, w.plan.serverName())
	}
	if most := cmp.Or(w.plan.Leaf, leafFor) + backdated + max(w.plan.Clocks, -w.plan.Clocks); w.plan.settled("clock") && serves.NotAfter.Sub(serves.NotBefore) > most+time.Minute {
		w.breaks("%s serves a certificate that is good for %s", p, serves.NotAfter.Sub(serves.NotBefore))
	}
	if w.watch.served == nil {
		w.watch.served = map[*process][]byte{}
	}
	w.watch.served[p] = serves.Raw
	if w.plan.Leaf == 0 || max(w.plan.Clocks, -w.plan.Clocks) > 0 || !w.plan.settled("clock") {
		return
	}
	if left := time.Until(serves.NotAfter); left < w.plan.Leaf/5 { // two thirds of its life are over, give or take a tenth
		w.breaks("at rest, %s serves a certificate that is over in %s, of %s", p, left.Round(time.Second), w.plan.Leaf)
	}
}

// writesOf returns how often the objects of the program were written. The caller holds mu.
func (w *World) writesOf(names ...string) (n int) {
	for _, name := range names {
		if of := w.watch.writes[name]; of != nil {
			n += of.all
		}
	}
	return n
}

// registersAgain looks at a second registration: it writes nothing.
func (w *World) registersAgain(r release, began time.Time, before, lease int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, since := w.watch.lastOrder, w.watch.lastOrdered
	w.watch.lastOrder, w.watch.lastOrdered = r.name, began
	names := []string{belongings[0].name, belongings[1].name, belongings[2].name}
	if n := w.writesOf(names...) - before; n > 0 && last == r.name && w.plan.Split && !w.plan.Issued && w.plan.CALifetime == 0 && w.plan.Leaf == 0 &&
		w.watch.stirred.Before(since) && w.settledSince(since) && w.isSteady(since) {
		w.breaks("RegisterExtensions of %s has written %d times, and the one before has registered the same", r.name, n)
	}
	other := func(p *process) bool {
		return p.release.name != r.name || p.readySince.IsZero() || p.readySince.After(since)
	}
	if n := w.writesOf(belongings[3].name) - lease; n > 0 && last == r.name && !w.plan.Issued && w.watch.stirred.Before(since) && w.settledSince(since) && !slices.ContainsFunc(w.processes, other) && !w.plan.Modes {
		w.breaks("RegisterExtensions of %s has written the Lease %d times, and the one before has registered the same", r.name, n)
	}
}

// isSteady reports whether no rotation is under way, nor was one since then. The caller holds mu.
func (w *World) isSteady(since time.Time) bool {
	state := w.state()
	return state != nil && state.NextID == 0 && state.Since.Before(since)
}

// ends looks at the metric of the end of a serving certificate, which each pass brings up to date. The caller holds mu.
func (w *World) ends(seconds int) {
	if at := time.Unix(int64(seconds), 0); w.settledSince(time.Now().Add(-quiet)) && at.Add(resync).Before(time.Now()) {
		w.breaks("at rest, eirinix_certificate_expiration_timestamp_seconds says that the serving certificate has ended at %s", at.UTC())
	}
}

// isRenewed is in the log of a program that has signed a certificate again because the one before was due.
const isRenewed = "serving certificate renewed"

// renewsSoon looks at a line of a program: it renews a certificate when two thirds of its life are over, give or take a tenth. The
// caller holds mu.
func (w *World) renewsSoon(who, text string) {
	if text != isRenewed || w.plan.Leaf == 0 || w.plan.CALifetime > 0 || !w.plan.settled("clock") {
		return
	}
	if w.watch.lastRenewed == nil {
		w.watch.lastRenewed = map[string]time.Time{}
	}
	last := w.watch.lastRenewed[who]
	if took := time.Since(last); !last.IsZero() && took < w.plan.Leaf*55/100 {
		w.breaks("%s renews its certificate %s after it has done so, and it is good for %s", who, took.Round(time.Second), w.plan.Leaf)
	}
	w.watch.lastRenewed[who] = time.Now()
}
