package world

// This file is shops of which a version cannot keep all, since annotations have no room for it.

import (
	"math/rand/v2"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/convert"
)

// tooLong is a note that no annotations have room for: 256 KiB is all that an API server accepts.
var tooLong = strings.Repeat("long ", 60_000)

// lostValues is in the log, as an error, when an object has lost values.
const lostValues = "an object has lost values"

// overflow writes a shop whose note is too long to be kept, reads it in another version, and writes a short note. The object says
// that it has lost something as long as it has, and no longer.
func (l *lister) overflow(rng *rand.Rand) {
	l.mu.Lock()
	if until := time.Now().Add(conversionTimeout); until.After(l.watch.overflows) {
		l.watch.overflows = until
	}
	l.mu.Unlock()
	shop := newShop(first, "overflowing", rng.Int64N(100), rng)
	shop.says(first, tooLong)
	object, marked, _ := l.passes(shop.in(first), second)
	if object == nil {
		return
	}
	if !marked {
		l.violate("%s: a shop has lost a note of %d bytes, and does not say so", l.s.name, len(tooLong))
	}
	object, _, read := l.passes(object, first)
	if object == nil {
		return
	}
	note := object["spec"].(map[string]any)
	delete(note, "note")
	shop.notes = nil
	if lost := shop.differs(object, first); lost != "" && read {
		l.violate("%s: a shop has lost more than the longest of its values: %s", l.s.name, lost)
	}
	note["note"] = "short"
	if object, marked, _ = l.passes(object, second); object != nil && marked {
		l.violate("%s: a shop says that it has lost something, and holds it all: %v", l.s.name, (&unstructured.Unstructured{Object: object}).GetAnnotations())
	}
}

// passes converts an object, and reports whether it says that it has lost something, and whether the replica must have read what
// was kept. The object is nil if it is not converted.
func (l *lister) passes(object map[string]any, to string) (converted map[string]any, marked, read bool) {
	converted, t, err := l.s.convert(l.ctx, l.by, object, to)
	if err != nil || l.ctx.Err() != nil {
		return nil, false, false
	}
	l.publish()
	_, marked = (&unstructured.Unstructured{Object: converted}).GetAnnotations()[convert.Incomplete]
	l.mu.Lock()
	defer l.mu.Unlock()
	by := l.processAt(t.at)
	return converted, marked, by != nil && l.gives(by, keysIn(object))
}
