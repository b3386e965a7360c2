package world

// This file is a Secret that no replica may write: a newer version of the library has written it, or it is immutable.

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

// newerFormat returns the data of a Secret as a newer version of the library has written it.
func newerFormat(object *unstructured.Unstructured) error {
	text, _, _ := unstructured.NestedString(object.Object, "data", certsecret.StateKey)
	state, err := base64.StdEncoding.DecodeString(text)
	var document map[string]any
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(state))
		decoder.UseNumber()
		err = decoder.Decode(&document)
	}
	if err != nil {
		return err
	}
	document["formatVersion"], document[invented] = certsecret.FormatVersion+1, mark
	if state, err = json.Marshal(document); err != nil {
		return err
	}
	return unstructured.SetNestedField(object.Object, encoded(state), "data", certsecret.StateKey)
}

// holdsSecret has the Secret be one that no replica may write for a while, in which replicas are restarted and a person asks for a
// rotation. They serve with it as it is. One that is immutable is deleted then, and comes back with its CA.
func (w *World) holdsSecret(f Fault, rng *rand.Rand) bool {
	b := belongings[2]
	found, before := w.find(b.kind, b.namespace, b.name), w.state()
	w.mu.Lock()
	calm := !w.troubledSince(time.Now(), slow, spoiled, lapsed, apart, strange) && w.watch.held == nil
	w.mu.Unlock()
	if found == nil || before == nil || before.Phase != ca.Steady || !calm || w.plan.Split || w.plan.Issued || w.plan.CALifetime > 0 {
		return false
	}
	object, deed := found.DeepCopy(), "has a newer version write"
	newer := rng.IntN(2) == 0
	var err error
	if newer {
		err = newerFormat(object)
	} else {
		deed = "makes immutable, with an empty key,"
		object.Object["immutable"] = true
		err = unstructured.SetNestedField(object.Object, "", "data", certsecret.CACertificateKey)
	}
	all := object.GetAnnotations()
	if all == nil {
		all = map[string]string{}
	}
	all[certsecret.RotateAnnotation] = fmt.Sprint(rng.Uint32())
	object.SetAnnotations(all)
	w.wants()
	w.tell(fate, "%s the Secret, and asks for a rotation", deed)
	w.mu.Lock()
	w.watch.held = object
	if err == nil {
		err = w.api.Put(object)
	}
	w.mu.Unlock()
	if err != nil {
		w.violate("the Secret cannot be changed: %v", err)
	}
	if w.wait(10 * time.Second) {
		w.restart(f, rng)
	}
	w.wait(f.For + settling)
	w.mu.Lock()
	untouched := w.watch.held == object
	w.watch.held, w.watch.heldUntil = nil, time.Now()
	w.mu.Unlock()
	now := w.find(b.kind, b.namespace, b.name)
	if state := w.state(); newer && now != nil && state != nil && state.FormatVersion > certsecret.FormatVersion {
		now = now.DeepCopy()
		now.Object["data"] = found.Object["data"]
		w.tell(fate, "takes what the newer version has written from the Secret")
		w.harms(b)
		if err := w.api.Put(now); err != nil {
			w.violate("the Secret cannot be changed: %v", err)
		}
		w.observe()
	}
	if newer || now == nil || now.Object["immutable"] != true {
		return true
	}
	began := time.Now()
	if known := w.loses(b); !known || !untouched || !w.wait(settling) { // it may have been damaged meanwhile
		return true
	}
	after := w.state()
	old, err := before.Current()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && !w.watch.damaged.After(began.Add(time.Millisecond)) && w.watch.lonely.Before(began) && !w.troubledSince(began, rough, slow, spoiled, apart, strange) && (after == nil || !ca.Contains(after.Bundle(), old.CertificatePEM)) {
		w.breaks("a Secret that was immutable was deleted, and does not come back with its CA: %v", after)
	}
	return true
}

// keepsHeld sees that a write of the program has left a Secret as it is that none may write. The caller holds mu.
func (w *World) keepsHeld(now *unstructured.Unstructured) {
	held := w.watch.held
	switch {
	case held == nil:
	case now == nil || now.GetUID() != held.GetUID() || w.troubledSince(time.Now(), spoiled, lapsed):
		w.watch.held = nil // it was lost, or another client has written it
	case !equality.Semantic.DeepEqual(now.Object["data"], held.Object["data"]):
		w.breaks("the program has written the Secret, which is immutable, or of a newer version")
	}
}
