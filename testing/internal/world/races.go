package world

// This file is writes that lose a race: another client changes or deletes an object in the moment before a write of the program arrives.

import (
	"encoding/json"
	"net/http"
	"path"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// races reports whether other clients write the objects of the program at the same moments as the program.
func (p Plan) races() bool { return p.Seed%4 == 3 }

// raced is the annotation of such a client.
const raced = "example.com/raced"

// mostLost is how many writes of an object lose in a row at most.
const mostLost = 2

// race has another client change an object that a request is about to replace, so that the request gets a conflict, or delete the
// configuration that one is about to delete.
func (s *apiServer) race(r *http.Request) {
	w, name := s.w, path.Base(r.URL.Path)
	i := slices.IndexFunc(belongings, func(b belonging) bool { return b.name == name })
	if !w.plan.races() || i < 0 || r.Method != http.MethodPut && (r.Method != http.MethodDelete || i > 1) {
		return
	}
	found := w.find(belongings[i].kind, belongings[i].namespace, name)
	if found == nil || found.Object["immutable"] == true || isStale(r, found.GetResourceVersion()) {
		return
	}
	w.mu.Lock()
	if w.watch.raced == nil {
		w.watch.raced, w.watch.lost = map[string]int{}, map[string]int{}
	}
	w.watch.raced[name]++
	loses := w.watch.lost[name] < mostLost && w.stream("races "+name, w.watch.raced[name]).IntN(3) == 0
	if w.watch.lost[name]++; !loses {
		w.watch.lost[name] = 0
	}
	w.mu.Unlock()
	if !loses {
		return
	}
	if r.Method == http.MethodDelete {
		w.tell(named("another client"), "deletes the %s a moment before the program", belongings[i].kind)
		w.api.Remove(resources[belongings[i].kind], belongings[i].namespace, name)
		return
	}
	object := found.DeepCopy()
	all := object.GetAnnotations()
	if all == nil {
		all = map[string]string{}
	}
	all[raced] = found.GetResourceVersion()
	object.SetAnnotations(all)
	w.tell(named("another client"), "annotates the %s a moment before a write of the program", belongings[i].kind)
	if err := w.api.Put(object); err != nil {
		w.violate("an annotation cannot be written: %v", err)
	}
}

// isStale reports whether a write is of an earlier version of the object, so that it loses in any case.
func isStale(r *http.Request, version string) bool {
	if r.GetBody == nil {
		return false
	}
	var sent metav1.PartialObjectMetadata
	body, err := r.GetBody()
	return err == nil && json.NewDecoder(body).Decode(&sent) == nil && sent.ResourceVersion != "" && sent.ResourceVersion != version
}
