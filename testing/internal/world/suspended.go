package world

// This file is a split deployment whose CronJob is suspended when its issuer has another CA, until the certificate that is served
// is nearly over.

import (
	"bytes"
	"context"
	"crypto/tls"
	"math/rand/v2"
	"slices"
	"time"
)

// shortLived is how long the certificate is valid that is nearly over soon. A tenth of that is its last tenth, because it begins
// a tenth of that before it is made.
const shortLived = 15 * time.Minute

// suspends has the issuer make a certificate that is soon over, and the next one by another CA, of which nothing registers. The
// last good one is served until nine tenths of its life are over, and then the new one.
func (w *World) suspends(rng *rand.Rand) {
	w.tell(named("the issuer"), "makes a certificate that is good for %s", shortLived)
	w.issue(w.plan.serverName(), shortLived, 0)
	end := time.Now().Add(shortLived)
	if !w.wait(settling) {
		return
	}
	w.mu.Lock()
	short, live := w.authorities.newest, slices.Clone(w.processes)
	w.mu.Unlock()
	if slices.ContainsFunc(live, func(p *process) bool { return !bytes.Equal(w.serves(p), short) }) {
		w.issue(w.plan.serverName(), issuedFor, 0)
		return // the CronJob, which was suspended before, has not registered its CA yet
	}
	w.mu.Lock()
	w.watch.suspended = end.Add(time.Minute)
	w.mu.Unlock()
	w.tell(fate, "suspends the CronJob for %s", time.Until(end.Add(time.Minute)).Round(time.Second))
	if err := w.renewIssuer(); err != nil {
		w.violate("the issuer has no CA: %v", err)
		return
	}
	began := time.Now()
	for _, e := range []excuse{rough, spoiled, unissued} {
		w.excuse(e, time.Until(end)+registersEvery+settling)
	}
	w.issue(w.plan.serverName(), issuedFor, 0)
	last := shortLived * 11 / 100 // the last tenth begins then
	if !w.wait(time.Until(end) - last*time.Duration(1+rng.IntN(3))/4) {
		return
	}
	w.mu.Lock()
	newest := w.authorities.newest
	all := slices.DeleteFunc(slices.Clone(w.processes), func(p *process) bool {
		return p.leaving || p.readySince.IsZero() || p.readySince.After(began) || !p.wire.hears()
	})
	calm := !w.troubledSince(began, slow, lapsed, apart) && !w.watch.damaged.After(began.Add(time.Second))
	w.mu.Unlock()
	for _, p := range all {
		if serves := w.serves(p); calm && len(serves) > 0 && !bytes.Equal(serves, newest) {
			w.violate("%s serves a certificate that is over in %s, and the issuer has made another one %s ago", p, time.Until(end).Round(time.Second), time.Since(began).Round(time.Second))
		}
	}
}

// serves returns the certificate that a replica serves.
func (w *World) serves(p *process) (certificate []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	wires, err := w.network.dial(ctx, w.controlPlane, p.address)
	if err != nil {
		return nil
	}
	defer func() { _ = wires.Close() }()
	conn := tls.Client(wires, &tls.Config{InsecureSkipVerify: true, CurvePreferences: cheapest, GetClientCertificate: w.servers[0].shows}) //nolint:gosec // it is looked at
	if conn.HandshakeContext(ctx) != nil {
		return nil
	}
	return conn.ConnectionState().PeerCertificates[0].Raw
}
