package world

// This file is a program that takes the place of one that was built with EiriniX: its Secret is there, with a CA in keys of
// EiriniX's own.

import (
	"bytes"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// migrates reports whether the Secret is EiriniX's at first.
func (p Plan) migrates() bool {
	return p.Seed%16 == 4 && !p.Issued && p.CALifetime == 0 && max(p.Clocks, -p.Clocks) <= time.Minute
}

// theirs are the keys of EiriniX's Secret.
var theirs = []string{"ca_certificate", "ca_private_key", "certificate", "private_key"}

// eirinixSecret returns EiriniX's Secret, with a CA that it has made a while ago.
func (w *World) eirinixSecret() (*corev1.Secret, error) {
	authority, err := ca.New("eirinix", 300*day, w.began.Add(-30*day))
	if err != nil {
		return nil, err
	}
	w.watch.eirinix = authority.CertificatePEM
	leaf, err := authority.SignServing([]string{w.plan.serverName()}, 100*day, w.began)
	if err != nil {
		return nil, err
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: theSecret, UID: "eirinix"}, Data: map[string][]byte{
		theirs[0]: authority.CertificatePEM, theirs[1]: authority.PrivateKeyPEM, theirs[2]: ca.EncodeCertificate(leaf.Leaf), theirs[3]: []byte("its key"),
	}}, nil
}

// migrated sees that the program goes on with EiriniX's CA, and leaves its keys where they are. The caller holds mu.
func (w *World) migrated() {
	secret := w.find("Secret", namespace, theSecret)
	if w.watch.eirinix == nil || !w.watch.damaged.IsZero() || w.watch.rotationsWanted > 0 || secret == nil || secret.GetUID() != "eirinix" || !w.plan.settled("restore", "namespace") {
		return
	}
	for _, kind := range registered {
		if all := bundlesOf(w.history[kind].last()); len(bytes.TrimSpace(all)) > 0 && !ca.Contains(all, w.watch.eirinix) {
			w.breaks("the %s does not trust the CA of EiriniX, which its replicas serve certificates of", kind)
		}
	}
	for _, key := range theirs {
		if text, _, _ := unstructured.NestedString(secret.Object, "data", key); text == "" {
			w.breaks("the Secret has lost the key %s of EiriniX, which a rollback needs", key)
		}
	}
}
