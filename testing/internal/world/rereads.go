package world

// This file is the objects that a process reads anew before it writes: a copy may be late.

import (
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

// rereadWithin is how long before a write its process has read anew at most what the write depends on.
const rereadWithin = 5 * time.Second

// rereads notes a request of a process that reads an object of the program, and returns what looks at the answer to a write.
func (c *wire) rereads(r *http.Request) (answered func(did bool)) {
	name := path.Base(r.URL.Path)
	i := slices.IndexFunc(belongings, func(b belonging) bool { return b.name == name })
	switch {
	case i < 0:
	case r.Method == http.MethodGet:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.read == nil {
			c.read = map[string]time.Time{}
		}
		c.read[name] = time.Now()
	case r.Method == http.MethodPut && name == theSecret && strings.Contains(r.URL.Path, "/"+namespace+"/"): // not that of another program
		before := c.w.state()
		return func(did bool) { c.confirms(before, c.w.state(), did) }
	case r.Method == http.MethodPut && strings.HasSuffix(name, "-hook"):
		b := belongings[i]
		before := c.w.find(b.kind, b.namespace, b.name)
		return func(bool) { c.decides(b, before, c.w.find(b.kind, b.namespace, b.name)) }
	}
	return func(bool) {}
}

// confirms looks at a write of the Secret between these states: it counts up, and the next CA signs once the process has read every
// configuration anew.
func (c *wire) confirms(before, after *certsecret.State, did bool) {
	if did && before != nil && after != nil && after.Lineage == before.Lineage && after.Counter < before.Counter {
		c.w.violate("%s has put the counter in the Secret back from %d to %d", c.host.name, before.Counter, after.Counter)
	}
	if before == nil || after == nil || before.NextID == 0 || after.CurrentID != before.NextID || before.CurrentID == before.NextID || !c.w.plan.settled("restore") {
		return // or a process puts a later state back, which it knows
	}
	for _, b := range belongings[:2] {
		if c.lateOf(b) && c.w.find(b.kind, b.namespace, b.name) != nil {
			c.w.violate("%s has the next CA sign, and has not read the %s anew", c.host.name, b.kind)
		}
	}
}

// lateOf reports whether the process has not read an object anew, although it could.
func (c *wire) lateOf(b belonging) bool {
	c.w.mu.Lock()
	troubled := c.w.troubledSince(time.Now(), rough, slow, apart) // a request may have taken long
	c.w.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return !troubled && time.Since(c.read[b.name]) > rereadWithin && c.w.rights.held("get", resources[b.kind].Resource) && c.w.rights.held("watch", resources[b.kind].Resource)
}

// decides looks at a write of a configuration by a replica: it has read the configurations and the Secret anew, and the Lease, if
// the entries change.
func (c *wire) decides(b belonging, before, after *unstructured.Unstructured) {
	w := c.w
	w.mu.Lock()
	i := slices.IndexFunc(w.processes, func(p *process) bool { return p.wire == c })
	issued := i < 0 || w.processes[i].release.issued
	w.mu.Unlock()
	if i < 0 || before == nil || after == nil || before.GetResourceVersion() == after.GetResourceVersion() {
		return
	}
	needs := []belonging{b}
	if !issued {
		needs = append(needs, belongings[2])
	}
	if !equality.Semantic.DeepEqual(entriesOf(before), entriesOf(after)) {
		needs = append(needs, belongings[3])
	}
	for _, need := range needs {
		if c.lateOf(need) {
			w.violate("%s has written the %s, and has not read the %s anew", c.host.name, b.kind, need.kind)
		}
	}
}

// entriesOf returns the entries of a configuration without their caBundles.
func entriesOf(object *unstructured.Unstructured) (all []admissionregistrationv1.ValidatingWebhook) {
	for _, h := range webhooksOf(object) {
		h.ClientConfig.CABundle = nil
		all = append(all, h.ValidatingWebhook)
	}
	return all
}
