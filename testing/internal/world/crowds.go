package world

// This file is the work that a replica still does while it is busy, kept from the API servers, or stops: conversions beside as many calls as have
// room at once, conversions for which keys are looked for in vain, and calls at the end of its DrainDelay.

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/convert"
)

const (
	// crowd is the number of calls whose steps wait, which is more than may run at once, and crowded how long they do.
	crowd, crowded = 105, 3 * time.Second

	// beforeEnd is how long before the end of a DrainDelay a replica is called.
	beforeEnd = time.Second
)

// crowds calls a step that waits, on one replica, so often that no more calls have room, and has the replica convert a shop meanwhile.
func (w *World) crowds() {
	s := w.servers[0]
	w.mu.Lock()
	p := w.settledOne(time.Now().Add(-settling))
	w.mu.Unlock()
	l := w.lister(context.Background(), s)
	if failing, frozen := s.state(); failing != 0 || frozen != nil || p == nil || l == nil {
		return
	}
	pod := podIn("shop", "first")
	pod.SetLabels(map[string]string{slowLabel: crowded.String()})
	body := reviewOf(pod)
	began := time.Now()
	client := w.only(s, p, l.by.ClientConfig.CABundle)
	defer client.CloseIdleConnections()
	for _, h := range s.entries(configurations[1]) {
		selects, err := h.selects(context.Background(), ask{operation: admissionv1.Create, resource: podResource, kind: podKind, object: pod}, nil)
		if err != nil || !selects || !strings.HasPrefix(h.Name, "a.") && !strings.HasPrefix(h.Name, "pods-") {
			continue
		}
		_, at, err := s.client(h.ClientConfig)
		if err != nil {
			return
		}
		w.mu.Lock()
		w.watch.crowded = time.Now().Add(2 * crowded)
		w.mu.Unlock()
		w.tell(named(s.name), "sends %d calls of %s to %s at once", crowd, h.Name, p)
		for range crowd {
			w.tallied(h.ClientConfig, func(t *tally) { t.sent++ })
			w.tasks.Go(func() {
				if answer, err := client.Post(at+"?timeout=10s", "application/json", bytes.NewReader(body)); err == nil {
					_ = answer.Body.Close()
				}
			})
		}
		break
	}
	if !w.wait(time.Second) {
		return
	}
	asked := time.Now()
	err := w.convertsAt(s, client, l.by, newShop(first, "crowded", 10, w.stream("crowd", 0)).in(first))
	w.mu.Lock()
	defer w.mu.Unlock()
	if took := time.Since(asked); (err != nil || took > atOnce/2) && !p.leaving && p.leavingAt.IsZero() && w.settledSince(began.Add(-settling)) {
		w.breaks("%s converts a shop only after %s, while the steps of other calls wait: %v", p, took.Round(time.Millisecond), err)
	}
}

// convertsAt has the replica of a client convert a shop from the first version to the second one.
func (w *World) convertsAt(s *apiServer, client *http.Client, by hook, object map[string]any) error {
	review, err := json.Marshal(map[string]any{
		"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
		"request": map[string]any{"uid": uuid.NewUUID(), "desiredAPIVersion": group + "/" + second, "objects": []any{object}},
	})
	_, at, unknown := s.client(by.ClientConfig)
	if err = errors.Join(err, unknown); err != nil {
		return err
	}
	answer, err := client.Post(at, "application/json", bytes.NewReader(review))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err == nil && !strings.Contains(string(text), `"status":"Success"`) {
		err = fmt.Errorf("%s: %.300s", answer.Status, text)
	}
	return err
}

// convertsApart has a replica that no API server answers convert shops of another cluster, whose keys it does not know: it looks for the
// keys once, and does without them.
func (w *World) convertsApart(p *process, rng *rand.Rand) {
	s := w.servers[0]
	l := w.lister(context.Background(), s)
	if failing, frozen := s.state(); failing != 0 || frozen != nil || l == nil || !w.wait(time.Second) {
		return
	}
	client := w.only(s, p, l.by.ClientConfig.CABundle)
	defer client.CloseIdleConnections()
	began := time.Now()
	w.mu.Lock()
	calm := !p.leaving && !p.readySince.IsZero() && p.readySince.Add(settling).Before(began) && !w.troubledSince(began.Add(-settling), rough, spoiled, lapsed, evicted, unissued)
	w.mu.Unlock()
	if !calm {
		return
	}
	for n := range fromElsewhere {
		object := newShop(first, fmt.Sprint("elsewhere", n), 5, rng).in(first)
		annotations := object["metadata"].(map[string]any)["annotations"].(map[string]any)
		annotations[convert.Prefix+"00000000000000000000000000000000"] = fmt.Sprintf("%08x.AAAAAAAAAAAAAAAAAAAAAA.{}", rng.Uint32())
		w.tasks.Go(func() {
			err := w.convertsAt(s, client, l.by, object)
			w.mu.Lock()
			defer w.mu.Unlock()
			took := time.Since(began)
			if (err != nil || took > lookedFor) && p.leavingAt.IsZero() && !w.troubledSince(began, rough, spoiled, evicted) && s.isUp() {
				w.breaks("%s, which no API server answers, converts a shop of another cluster only after %s: %v", p, took.Round(time.Millisecond), err)
			}
		})
	}
}

// fromElsewhere is the number of such shops, and lookedFor how long their keys may be looked for at most: the time of a request.
const fromElsewhere, lookedFor = 4, 12 * time.Second

// isUp reports whether the API server answers.
func (s *apiServer) isUp() bool {
	failing, frozen := s.state()
	return failing == 0 && frozen == nil
}

// only returns a client as an API server that calls this replica alone.
func (w *World) only(s *apiServer, p *process, bundle []byte) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return w.network.dial(ctx, w.controlPlane, p.address)
		},
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: w.plan.serverName(), Time: s.now, MinVersion: tls.VersionTLS12, CurvePreferences: cheapest, GetClientCertificate: s.shows},
	}}
}

// calledAtLast has each API server connect to a replica at the end of its DrainDelay, in which calls still come, also if it has served for
// a while by a CA that is replaced then.
func (w *World) calledAtLast(p *process) {
	w.mu.Lock()
	left := w.plan.drain() - time.Since(p.leavingAt) - beforeEnd
	w.mu.Unlock()
	if left <= 0 || !w.wait(left) {
		return
	}
	for _, s := range w.servers {
		if failing, frozen := s.state(); failing != 0 || frozen != nil {
			continue
		}
		for _, h := range s.entries(configurations[1])[:min(1, len(s.entries(configurations[1])))] {
			began := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), requestTime)
			conn, err := w.network.dial(ctx, w.controlPlane, p.address)
			if err == nil {
				roots := x509.NewCertPool()
				roots.AppendCertsFromPEM(h.ClientConfig.CABundle)
				err = tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: w.plan.serverName(), Time: s.now, MinVersion: tls.VersionTLS12, CurvePreferences: cheapest}).HandshakeContext(ctx)
				_ = conn.Close()
			}
			cancel()
			w.mu.Lock()
			var untrusted *tls.CertificateVerificationError
			if errors.As(err, &untrusted) && len(ca.SplitBundle(h.ClientConfig.CABundle)) > 0 && !p.readySince.IsZero() && !w.plan.Unregister && !w.troubledSince(began.Add(-settling), rough, slow, spoiled, lapsed, apart, unissued, strange) {
				w.breaks("%s cannot call %s, which still drains: %s", s.name, p, fmt.Sprint(err))
			}
			w.mu.Unlock()
		}
	}
}
