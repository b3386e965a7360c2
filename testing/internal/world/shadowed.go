package world

// This file is steps about boxes in Shadow, which run after the answer: each of them sees the object as the call has left it, once.

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix"
)

// shadowed is the objects that steps in Shadow have seen, by request and step, and how often steps about boxes have panicked. It is safe
// for concurrent use.
type shadowed struct {
	panicked atomic.Int64

	mu   sync.Mutex
	seen map[types.UID]map[string][]string
}

func (s *shadowed) note(id types.UID, step, saw string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[types.UID]map[string][]string{}
	}
	if s.seen[id] == nil {
		s.seen[id] = map[string][]string{}
	}
	s.seen[id][step] = append(s.seen[id][step], saw)
}

// of returns the objects that steps have seen of a request, and forgets them.
func (s *shadowed) of(id types.UID) map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen[id]
	delete(s.seen, id)
	return seen
}

// shadowsRun is how long the runs in Shadow take at most that calls have left, if few calls come. One of them may hang until its
// deadline.
const shadowsRun = 5 * time.Minute

// shadowsWell looks at the objects that the steps in Shadow of a call see, of an object that the call leaves so, if it is
// not denied.
func (w *World) shadowsWell(one said, of []boxStep, left *unstructured.Unstructured, denied []string, ill, settled bool) {
	if one.response == nil {
		return
	}
	if !one.response.Allowed {
		left = one.object // nothing has changed it
		denies := func(s boxStep) bool { return len(denied) > 0 && s.name == denied[0] }
		if i := slices.IndexFunc(of, denies); i >= 0 && one.mutating { // which ends the chain
			of = of[:i]
		}
	}
	shadows := slices.DeleteFunc(slices.Clone(of), func(s boxStep) bool { return s.Mode != eirinix.ModeShadow })
	if len(shadows) == 0 {
		return
	}
	leaves := func(p *process) bool { return p.leaving } // and drops the runs that are left
	w.mu.Lock()
	began, started, drops := time.Now(), w.started, slices.ContainsFunc(w.processes, leaves)
	w.mu.Unlock()
	if drops || !w.wait(shadowsRun) {
		return
	}
	seen := w.boxes[0].later.of(one.response.UID)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started != started || slices.ContainsFunc(w.processes, leaves) || w.troubledSince(began, rough) {
		return
	}
	now := left
	if now == nil {
		now = one.old
	}
	for _, s := range shadows {
		var want []string
		if s.wants(one.ask, left, settled) && !(ill && s.form != treeForm) {
			if want = []string{s.looks(now)}; s.rule && one.operation == admissionv1.Update && s.isTo(now, deny, invalid, lacks, badRequest) != "" {
				want = append(want, s.looks(one.old)) // its Rule judges that, too
			}
		}
		if !slices.Equal(seen[s.name], want) {
			w.breaks("step %s in Shadow has seen %q of a box, and was to see %q (%s by %s)", s.name, seen[s.name], want, one.operation, one.Name)
		}
	}
}
