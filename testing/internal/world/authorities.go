package world

// This file is the authorities that are not the program's: the issuer of certificates for versions without a CA of their own.

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/ca"
)

const (
	issuedName  = "issued"  // the Secret of the issuer
	callersName = "callers" // the ConfigMap with the CA of API servers
	callerName  = "kube-apiserver"

	// issuedFor is how long an issued certificate is valid. Its issuer replaces it after two thirds of that, as cert-manager
	// does, so that half an hour is left in which the API servers may be away.
	issuedFor = 90 * time.Minute

	// callersFollowed is how long it takes at most until another CA of callers is in force.
	callersFollowed = time.Minute
)

// authorities are those of the cluster.
type authorities struct {
	busy sync.Mutex // held while one of them changes; nothing waits for it, which would stop the clock

	// guarded by World.mu
	issuer, callers *ca.Authority
	signer          *ca.Authority    // that stays
	reads           atomic.Int64     // of the CAs of the signer
	heard           map[string]bool  // the requests that the signer has heard of, by their names
	trusted         []byte           // the CAs of callers that the ConfigMap holds, unless it is lost
	caller          *tls.Certificate // with which API servers call
	refused         *tls.Certificate // with which they called before
	newest          []byte           // the last good certificate of the issuer
	madeAt          time.Time        // when it was made
	unusable        bool             // the certificate in the issuer's Secret
	dir             string           // of the files, if there are any
	beside          []byte           // a CA in the issuer's ca.crt that verifies none of its certificates
}

// set makes the authorities of a plan.
func (a *authorities) set(w *World) error {
	if w.plan.Issued {
		if err := w.renewIssuer(); err != nil {
			return err
		}
		w.tasks.Go(w.renews)
	}
	if !w.plan.Callers {
		return nil
	}
	var err error
	if a.callers, err = ca.New("callers", 30*day, w.began); err != nil {
		return err
	}
	if a.caller, err = certify(a.callers, callerName, w.began); err != nil {
		return err
	}
	a.trusted = a.callers.CertificatePEM
	return w.api.Put(callersOf(a.trusted))
}

// renewIssuer has the issuer sign with another CA.
func (w *World) renewIssuer() error {
	if last := w.authorities.issuer; last != nil {
		w.unneeded(last.CertificatePEM)
	}
	issuer, err := ca.New("issuer", 30*day, time.Now())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.authorities.issuer = issuer
	return err
}

// renews is the issuer.
func (w *World) renews() {
	wait, rng := time.Duration(0), w.stream("issuer", 0)
	if w.plan.Late {
		wait = lateBy
		w.excuse(unissued, wait+settling)
		w.expects(wait, withoutCertificate, w.unserved)
	}
	for w.wait(wait) {
		first := wait == 0
		wait = settling
		if w.authorities.busy.TryLock() {
			w.issue(w.plan.serverName(), issuedFor, 0)
			if first && w.plan.blind() && rng.IntN(2) == 0 {
				w.corrects(rng)
			}
			w.authorities.busy.Unlock()
			wait = issuedFor * 2 / 3
		}
	}
}

// corrects has the issuer, which is installed with the program, sign with another CA in its first seconds: before or after the tool
// registers the first one, which replicas serve by then.
func (w *World) corrects(rng *rand.Rand) {
	if !w.wait(500*time.Millisecond + time.Duration(rng.Int64N(int64(time.Second)))) {
		return
	}
	if err := w.renewIssuer(); err != nil {
		w.violate("the issuer has no other CA: %v", err)
		return
	}
	w.tell(fate, "has the issuer sign with another CA")
	w.issue(w.plan.serverName(), issuedFor, 0)
}

// reissues has the issuer make a certificate a while after a restore: the old one may be over before it is time for the next.
func (w *World) reissues() {
	if w.wait(quiet/4) && w.authorities.busy.TryLock() {
		w.issue(w.plan.serverName(), issuedFor, 0)
		w.authorities.busy.Unlock()
	}
}

// withoutCertificate is in the log when the issuer's Secret holds none that can be used.
const withoutCertificate = "waiting for a serving certificate"

// unserved reports whether the issuer's Secret cannot be used, and a replica that needs it lives.
func (w *World) unserved() bool {
	exists := w.find("Secret", namespace, issuedName) != nil
	w.mu.Lock()
	defer w.mu.Unlock()
	needs := func(p *process) bool { return p.release.bySecret() && !p.leaving && time.Since(p.began) > mostSilent/2 }
	return (!exists || w.authorities.unusable) && slices.ContainsFunc(w.processes, needs)
}

// issue puts a new certificate into the issuer's Secret, which may have been made before.
func (w *World) issue(host string, lifetime, before time.Duration) {
	w.putIssued(w.signs(host, lifetime, before))
}

// signs returns a new certificate of the issuer, by the keys of its Secret.
func (w *World) signs(host string, lifetime, before time.Duration) map[string][]byte {
	w.mu.Lock()
	by := w.authorities.issuer
	w.authorities.unusable = false
	w.mu.Unlock()
	signer, chain, err := by, []byte(nil), error(nil)
	if w.plan.inBetween() {
		if signer, err = between(by); err == nil {
			chain = ca.EncodeCertificate(signer.Certificate)
		}
	}
	if err != nil {
		w.violate("the issuer has no CA in between: %v", err)
		return nil
	}
	leaf, err := signer.SignServing([]string{host}, lifetime, time.Now().Add(-before))
	if err != nil {
		w.violate("nothing can be issued: %v", err)
		return nil
	}
	key, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		w.violate("nothing can be issued: %v", err)
		return nil
	}
	if host == w.plan.serverName() && before <= 0 {
		w.mu.Lock()
		w.authorities.newest, w.authorities.madeAt = leaf.Certificate[0], time.Now().Add(-before)
		w.mu.Unlock()
	}
	data := map[string][]byte{
		"ca.crt": w.further(by.CertificatePEM), "tls.crt": append(ca.EncodeCertificate(leaf.Leaf), chain...), "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}
	if w.plan.rootless() {
		return withoutRoot(data, by.CertificatePEM)
	}
	return data
}

func (w *World) putIssued(data map[string][]byte) {
	if err := w.api.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: issuedName}, Type: corev1.SecretTypeTLS, Data: data}); err != nil {
		w.violate("the issuer's Secret cannot be written: %v", err)
	}
}

// issuance has the issuer make another certificate, half the time by another CA. Most times its Secret cannot be used for a
// while before that, and the last good certificate is served meanwhile.
func (w *World) issuance(f Fault, rng *rand.Rand) {
	if !w.authorities.busy.TryLock() {
		return
	}
	defer w.authorities.busy.Unlock()
	if own := w.stream("suspends", int(f.At)); w.plan.blind() && w.plan.settled("restore") && own.IntN(3) == 0 && f.At+shortLived+4*settling < w.plan.Lasts-quiet-settling {
		w.suspends(own)
		return
	}
	deed, was := "", w.find("Secret", namespace, issuedName)
	f.For = min(3*f.For, issuedFor/6, w.plan.Lasts-quiet-settling-f.At)
	switch rng.IntN(7) {
	case 0:
		deed = "takes the key from"
		if found := w.find("Secret", namespace, issuedName); found != nil {
			without := found.DeepCopy()
			unstructured.RemoveNestedField(without.Object, "data", "tls.key")
			if err := w.api.Put(without); err != nil {
				w.violate("an edit failed: %v", err)
			}
		}
	case 1:
		deed = "deletes"
		w.api.Remove(schema.GroupResource{Resource: "secrets"}, namespace, issuedName)
	case 2:
		deed = "puts the certificate of another host into"
		w.issue("elsewhere.example.com", issuedFor, 0)
	case 3:
		deed = "puts a certificate that is over into"
		w.issue(w.plan.serverName(), issuedFor/9, issuedFor/3)
	case 4:
		w.reissue(f)
		return
	}
	if deed != "" {
		w.mu.Lock()
		w.authorities.unusable = true
		w.mu.Unlock()
		w.excuse(unissued, f.For+settling)
		w.tell(named("the issuer"), "%s its Secret, for %s", deed, f.For.Round(time.Second))
		w.expects(f.For, withoutCertificate, w.unserved)
		w.wait(f.For)
		if own := w.stream("puts back", int(f.At)); own.IntN(3) == 0 && w.putsBack(was) {
			return
		}
	} else if rng.IntN(2) == 0 {
		w.withdraws(rng)
		return
	}
	deed = "makes a certificate"
	if rng.IntN(2) == 0 {
		deed = "makes a certificate by another CA"
		if err := w.renewIssuer(); err != nil {
			w.violate("the issuer has no CA: %v", err)
			return
		}
	}
	w.tell(named("the issuer"), "%s", deed)
	ahead := time.Duration(0)
	if rng.IntN(3) == 0 { // a certificate is valid from a tenth of its life before it is made
		ahead = issuedFor/10 + time.Duration(rng.Int64N(int64(settling)))
		w.excuse(unissued, ahead+settling)
		w.tell(named("the issuer"), "has a clock that is %s ahead", ahead.Round(time.Second))
	}
	w.issue(w.plan.serverName(), issuedFor, -ahead)
	if w.plan.blind() && rng.IntN(2) == 0 { // with no certificate but this one
		w.restart(f, rng)
	}
}

// withdraws has the issuer make a certificate, and put the one before back when replicas have seen it and do not serve it yet.
func (w *World) withdraws(rng *rand.Rand) {
	found := w.find("Secret", namespace, issuedName)
	w.mu.Lock()
	newest, madeAt := w.authorities.newest, w.authorities.madeAt
	w.mu.Unlock()
	if found == nil || time.Since(madeAt) > issuedFor/2 { // that one is nearly over
		return
	}
	w.tell(named("the issuer"), "makes a certificate, and withdraws it")
	w.issue(w.plan.serverName(), issuedFor, 0)
	if !w.wait(time.Second + time.Duration(rng.Int64N(int64(8*time.Second)))) {
		return
	}
	before := found.DeepCopy()
	before.SetResourceVersion("")
	if err := w.api.Put(before); err != nil {
		w.violate("a certificate cannot be withdrawn: %v", err)
	}
	w.mu.Lock()
	w.authorities.newest, w.authorities.madeAt = newest, time.Now()
	w.mu.Unlock()
	if !w.calm(settling + time.Second) {
		return
	}
	w.mu.Lock()
	late := func(p *process) bool {
		return p.leaving || p.began.After(w.authorities.madeAt) || p.readySince.IsZero()
	}
	all := slices.DeleteFunc(slices.Clone(w.processes), late)
	w.mu.Unlock()
	for _, p := range all {
		w.reach(p, "after a withdrawal")
	}
}

// reissue has the issuer write the certificate of another CA before that CA.
func (w *World) reissue(f Fault) {
	w.mu.Lock()
	before := w.authorities.issuer.CertificatePEM
	w.mu.Unlock()
	if err := w.renewIssuer(); err != nil {
		w.violate("the issuer has no CA: %v", err)
		return
	}
	w.excuse(unissued, f.For+settling)
	w.tell(named("the issuer"), "makes a certificate by another CA, and adds that CA %s later", f.For.Round(time.Second))
	data := w.signs(w.plan.serverName(), issuedFor, 0)
	half := maps.Clone(data)
	half["ca.crt"] = before
	w.putIssued(half)
	w.wait(f.For)
	w.putIssued(data)
}

// calm waits for a while in which nothing keeps the program from the API servers. It returns false at the end of the world.
func (w *World) calm(d time.Duration) bool {
	for w.wait(d) {
		w.mu.Lock()
		calm := !w.troubledSince(time.Now().Add(-d), rough, slow, spoiled, lapsed, unread, apart)
		w.mu.Unlock()
		if calm {
			return true
		}
	}
	return false
}

// keepsIssuer sees that a configuration holds the issuer's CA while a replica serves a certificate of it. The caller holds mu.
func (w *World) keepsIssuer(kind string, is []hook) {
	a := &w.authorities
	serves := func(p *process) bool {
		return p.release.bySecret() && !p.leaving && !p.readySince.IsZero() && time.Since(p.readySince) > settling && p.wire.hears()
	}
	within := settling
	if w.plan.Split { // the tool registers the CA
		within += registersEvery
	}
	if a.issuer == nil || a.unusable || time.Since(a.madeAt) < within || time.Since(w.watch.undone) < settling || !slices.ContainsFunc(w.processes, serves) ||
		w.troubledSince(time.Now(), rough, slow, spoiled, lapsed, apart, unissued, strange) {
		return
	}
	for _, h := range is {
		if len(h.ClientConfig.CABundle) > 0 && !ca.Contains(h.ClientConfig.CABundle, a.issuer.CertificatePEM) {
			w.breaks("the %s no longer holds the CA of the issuer, of which replicas serve certificates", kind)
			return
		}
	}
}

// renewed sees that a replica serves the last certificate of the issuer.
func (w *World) renewed(p *process, when string, serves *x509.Certificate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := &w.authorities
	if p.release.bySecret() && !a.unusable && time.Since(a.madeAt) > settling && !w.excused(unissued, time.Now()) && !bytes.Equal(serves.Raw, a.newest) {
		w.breaks("%s, %s does not serve the certificate that the issuer made %s ago", when, p, time.Since(a.madeAt).Round(time.Second))
	}
}

// sources has a version use the other authorities.
func (w *World) sources(o *eirinix.ManagerOptions, r release) {
	if r.signed {
		o.Certificates = w.signed()
	} else if r.issued && w.plan.filed() {
		o.Certificates = w.fromFiles()
	} else if r.issued {
		o.Certificates = eirinix.FromSecret("", issuedName)
	}
	if w.plan.Callers {
		o.ClientCA = eirinix.ClientCA{ConfigMap: namespace + "/" + callersName, Names: []string{callerName}}
		if w.plan.filesCallers() {
			o.ClientCA = eirinix.ClientCA{File: filepath.Join(w.dir(), callersName+"-ca.crt"), Names: []string{callerName}}
		}
	}
}
