package world

// This file is the rights of the program, and answers that requests get instead of the right one.

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/cluster"
)

type right struct{ verb, resource string }

// rights are those of the program's service account.
type rights struct {
	mu     sync.Mutex
	denied map[string]int       // "verb resource", and how often it was taken and not given back
	given  map[string]time.Time // when it was given back
	sick   int                  // the status of answers about policies; 0 for the right one, -1 for none

	cured    time.Time // when sick was 0 again
	unserved bool      // the kind of policies is not served
	coming   bool      // the kind that a step is about is not served yet
	partly   string    // the namespace in which policies cannot be read
	last     right     // that was taken
}

func (r *rights) sicken(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sick, r.cured = status, time.Now()
}

// ill reports whether requests for policies get no right answer, or did not a moment ago.
func (r *rights) ill() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sick != 0 || r.partly != "" || time.Since(r.cured) < cluster.Rewatched
}

func (r *rights) set(verb, resource string, denied bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.denied == nil {
		r.denied, r.given = map[string]int{}, map[string]time.Time{}
	}
	right := verb + " " + resource
	if denied {
		r.denied[right]++
	} else if r.denied[right]--; r.denied[right] == 0 {
		delete(r.denied, right)
		r.given[right] = time.Now()
	}
}

// held reports whether the program has had a right for so long that no replica remembers a refusal.
func (r *rights) held(verb, resource string) bool {
	if r.deny(verb, resource) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc([]string{verb + " " + resource, everything + " " + resource, everything + " " + everything}, func(right string) bool {
		return time.Since(r.given[right]) < rightRemembered
	})
}

// servesHeader is in the requests of replicas that have no right to touch configurations.
const servesHeader = "World-Serves"

func (r *rights) deny(verb, resource string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.denied[verb+" "+resource] > 0 || r.denied[everything+" "+resource] > 0 || r.denied[everything+" "+everything] > 0 && !strings.HasPrefix(resource, "selfsubject") && resource != "events"
}

var requestInfo = request.RequestInfoFactory{
	APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
}

// taken is the reason of a refusal.
const taken = "the right was taken away"

// check answers a request that is refused, and a review of a right that the program has not. It reports whether it did.
func (r *rights) check(w http.ResponseWriter, req *http.Request) bool {
	r.mu.Lock()
	serves := req.Header.Get(servesHeader) != ""
	none, sick := len(r.denied) == 0 && !serves, r.sick
	r.mu.Unlock()
	if sick != 0 && (strings.HasSuffix(req.URL.Path, "/configmaps") || strings.HasSuffix(req.URL.Path, "/networkpolicies")) && strings.Contains(req.URL.RawQuery, policyName) {
		if sick > 0 {
			writeJSON(w, sick, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(sick)})
		} else {
			<-req.Context().Done()
		}
		return true
	}
	info, err := requestInfo.NewRequestInfo(req)
	if err == nil && info.Resource == "selfsubjectrulesreviews" {
		review := authorizationv1.SelfSubjectRulesReview{TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectRulesReview"}}
		review.Status.Incomplete = !none
		if none {
			all := []string{"*"}
			review.Status.ResourceRules = []authorizationv1.ResourceRule{{Verbs: all, APIGroups: all, Resources: all}}
		}
		writeJSON(w, http.StatusCreated, review)
		return true
	}
	if none || err != nil || !info.IsResourceRequest {
		return false
	}
	denied := func(verb, resource string) bool {
		return r.deny(verb, resource) || serves && strings.HasSuffix(resource, "webhookconfigurations")
	}
	if denied(info.Verb, info.Resource) {
		resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
		status := apierrors.NewForbidden(resource, info.Name, errors.New(taken)).Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		writeJSON(w, http.StatusForbidden, status)
		return true
	}
	if info.Resource != "selfsubjectaccessreviews" {
		return false
	}
	body, err := io.ReadAll(req.Body)
	req.Body = io.NopCloser(bytes.NewReader(body))
	var review authorizationv1.SelfSubjectAccessReview
	if err != nil || json.Unmarshal(body, &review) != nil || review.Spec.ResourceAttributes == nil {
		return false
	}
	if !denied(review.Spec.ResourceAttributes.Verb, review.Spec.ResourceAttributes.Resource) {
		return false
	}
	review.TypeMeta = metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}
	writeJSON(w, http.StatusCreated, review)
	return true
}

func writeJSON(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document) // to memory
}

// takeRight takes a right away, and gives it back.
func (w *World) takeRight(f Fault, rng *rand.Rand) {
	if own := w.stream("hiccups", int(f.At)); own.IntN(4) == 0 && w.hiccups(own) {
		return
	}
	all := []right{
		{"watch", "leases"},
		{"update", "leases"},
		{"get", "leases"},
		{everything, "leases"},
		{"watch", "secrets"},
		{"update", "secrets"},
		{"update", "mutatingwebhookconfigurations"},
		{"watch", "validatingwebhookconfigurations"},
		{"create", "configmaps"},
		{everything, everything},
	}
	_, policies := w.plan.policyKind()
	if w.plan.Reads {
		all = append(all, right{"list", policies.Resource}, right{"watch", policies.Resource})
	}
	if w.plan.Modes {
		all = append(all, right{"get", "configmaps"}, right{"list", "configmaps"})
	}
	r := all[rng.IntN(len(all))]
	w.rights.mu.Lock()
	if last := w.rights.last; last.resource != "" && rng.IntN(3) == 0 { // the same one is lost again and again
		r = last
	}
	w.rights.last = r
	w.rights.mu.Unlock()
	why := slow
	switch r.resource {
	case "configmaps", policies.Resource:
		why = unread
	case "leases":
		why = lapsed
	}
	remembered := rightRemembered
	if rng.IntN(2) == 0 {
		f.For *= 3
	}
	if r.resource == everything { // with the first right that works again, the others are tried
		remembered = settling
		w.excuse(unread, f.For+remembered)
	}
	polling := r == (right{"watch", "leases"}) && len(w.releases) > 1 && w.stream("polling", int(f.At)).IntN(2) == 0
	if polling {
		f.For = min(max(f.For, polledFor), w.plan.Lasts-quiet-settling-f.At)
	}
	w.tasks.Go(func() { w.restrains(f.For, mostRefused) })
	if r == (right{"watch", "leases"}) { // it is polled from then on
		remembered = settling - f.For
	}
	w.excuse(why, f.For+remembered)
	if r.verb == "list" && r.resource == policies.Resource && w.plan.Reads {
		w.expects(f.For, unreadable, func() bool { return w.rights.deny(r.verb, r.resource) && !w.rights.ill() })
		w.rings(f.For, unreadable, func() bool { return w.rights.deny(r.verb, r.resource) && !w.rights.ill() })
	}
	if r.verb == "watch" && why != unread && !w.plan.Split && w.rights.held(r.verb, r.resource) {
		w.tasks.Go(func() { w.polls(r, f.For) })
	}
	w.tell(fate, "takes the right to %s %s for %s", r.verb, r.resource, f.For.Round(time.Second))
	w.rights.set(r.verb, r.resource, true)
	if own := w.stream("without", int(f.At)); own.IntN(3) == 0 {
		w.tasks.Go(func() { w.restartsWithout(r, f.For, own) })
	}
	for _, s := range w.servers {
		s.server.Close() // watches end
	}
	if r == (right{"get", "leases"}) && f.For > settling {
		w.tasks.Go(w.repairsByCopy)
	}
	if r.resource == "mutatingwebhookconfigurations" && rng.IntN(2) == 0 && w.wait(time.Duration(rng.Int64N(int64(5*time.Second)))) {
		if own := w.stream("blanks", int(f.At)); own.IntN(2) == 0 {
			w.blanks(belongings[0], r.resource, own)
		} else {
			w.estranges(belongings[0], r.resource)
		}
	}
	if polling && w.wait(settling+time.Duration(rng.Int64N(int64(time.Minute)))) { // all replicas poll by then
		w.rollout(Fault{For: time.Minute}, rng)
		f.For = max(0, f.At+f.For-time.Since(w.began))
	}
	if r == (right{everything, "leases"}) && len(w.releases) > 1 && rng.IntN(2) == 0 {
		f.For += 2 * time.Minute
		w.excuse(why, f.For+remembered)
		w.excuse(rough, f.For+remembered) // a replica that is called for another version answers 503, and retries may not reach one that can answer
		w.tasks.Go(func() { w.rollout(f, rng) })
		w.agree(f.For)
	} else {
		w.wait(f.For)
	}
	w.rights.set(r.verb, r.resource, false)
	w.stirs()
}

// repairsByCopy has another client take an entry while the Lease may be followed and not read, and sees it come back.
func (w *World) repairsByCopy() {
	b, began := belongings[0], time.Now()
	if w.plan.Split || !w.plan.settled("contest", "edit", "deletion", "namespace", "restore", "unregistration", "another program") || !w.wait(5*time.Second) {
		return
	}
	hooks := w.shortens(b)
	if hooks == 0 || !w.wait(settling-10*time.Second) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if has := len(webhooksOf(w.history[b.kind].last())); has < hooks && !w.troubledSince(began, rough, slow, apart) {
		w.breaks("the %s holds %d entries of %d, although each replica may follow the Lease", b.kind, has, hooks)
	}
}

// polledFor is how long the Lease may at least not be watched where versions follow each other meanwhile.
const polledFor = settling + 5*time.Minute

// everything stands for all verbs, and all resources.
const everything = "*"

// rightRemembered is how long a right that was refused may not be tried again.
const rightRemembered = 13 * time.Minute

// polled is what the log says of an object that may not be watched.
const polled = "an object may not be watched"

// polls sees that each replica tells of an object that it may not watch, whenever that happens. It is called as the right goes.
func (w *World) polls(r right, d time.Duration) {
	began := time.Now()
	for _, s := range w.servers {
		if failing, frozen := s.state(); failing != 0 || frozen != nil {
			return
		}
	}
	if d < mostSilent || !w.wait(mostSilent) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.troubledSince(began, rough, apart) || w.watch.stirred.After(began) {
		return
	}
	for _, p := range w.processes {
		told := func(l line) bool { return l.who == p.name && !l.at.Before(began) && strings.Contains(l.text, polled) }
		if !p.leaving && p.began.Add(settling).Before(began) && !slices.ContainsFunc(w.story, told) && (!p.release.signed || r.resource != "secrets") {
			w.breaks("%s does not tell within %s: %s", p, mostSilent, polled)
		}
	}
	if d > 2*mostSilent {
		w.tasks.Go(func() { w.rereadsSoon(r, began) })
	}
}

// polledEvery is how long it takes at most until an object that may not be watched is read again: 30 s, a fifth of that, and the way.
const polledEvery = 40 * time.Second

// rereadsSoon sees that each replica has just read an object that none may watch since then.
func (w *World) rereadsSoon(r right, began time.Time) {
	i := slices.IndexFunc(belongings, func(b belonging) bool { return resources[b.kind].Resource == r.resource })
	if !w.wait(mostSilent) || i < 0 || !w.rights.deny(r.verb, r.resource) || w.rights.deny("get", r.resource) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.troubledSince(began, rough, apart) || w.watch.stirred.After(began) || w.troubledSince(began, slow) && r.resource == "leases" {
		return
	}
	for _, p := range w.processes {
		p.wire.mu.Lock()
		last := p.wire.read[belongings[i].name]
		p.wire.mu.Unlock()
		if !p.leaving && p.began.Add(settling).Before(began) && time.Since(last) > polledEvery && !(p.release.issued && r.resource == "secrets") {
			w.breaks("%s may not watch the %s, and has read it last %s ago", p, belongings[i].kind, time.Since(last).Round(time.Second))
		}
	}
}

// mostWritten is how often configurations are written where versions cannot see each other, beside four times for each start.
const mostWritten = 8

// agree waits while versions cannot see each other, and sees that they do not fight.
func (w *World) agree(d time.Duration) {
	written := func() (n int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for name, r := range w.watch.writes {
			if strings.HasSuffix(name, "-hook") {
				n += r.all
			}
		}
		return n
	}
	before, began, started := written(), time.Now(), w.begun()
	if !w.wait(d) {
		return
	}
	n, most := written()-before, mostWritten+4*(w.begun()-started)
	w.mu.Lock()
	defer w.mu.Unlock()
	if n > most && !w.watch.contest.After(began.Add(-time.Hour)) && !w.watch.rotatedBy.After(began) {
		w.breaks("configurations were written %d times within %s, in which versions could not see each other", n, d.Round(time.Second))
	}
}

// estranges has another client put its own CA in place of all of a configuration, which may not be repaired now.
func (w *World) estranges(b belonging, resource string) {
	found := w.find(b.kind, b.namespace, b.name)
	stranger, err := ca.New(overwriter, day, time.Now())
	if found == nil || err != nil {
		return
	}
	object := found.DeepCopy()
	hooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
	for _, h := range hooks {
		if config, ok := h.(map[string]any)["clientConfig"].(map[string]any); ok {
			config["caBundle"] = encoded(stranger.CertificatePEM)
		}
	}
	w.harms(b)
	w.mu.Lock()
	w.watch.estranged = true
	w.mu.Unlock()
	w.excuseWhile(spoiled, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		theirs := func(h hook) bool { return bytes.Equal(h.ClientConfig.CABundle, stranger.CertificatePEM) }
		return w.rights.deny("update", resource) || slices.ContainsFunc(webhooksOf(w.history[b.kind].last()), theirs)
	})
	w.tell(fate, "puts a CA of another client in place of all in the %s", b.kind)
	if err = unstructured.SetNestedSlice(object.Object, hooks, "webhooks"); err == nil {
		err = w.api.Put(object)
	}
	if err != nil {
		w.violate("an edit failed: %v", err)
	}
	w.observe()
	w.tasks.Go(func() { w.failing(b, resource, stranger.CertificatePEM) })
	w.tasks.Go(func() {
		w.blamesBundle(b, diagnosis.UnknownAuthority, func() bool {
			return w.rights.deny("update", resource) && bytes.Equal(bundlesOf(w.find(b.kind, b.namespace, b.name)), stranger.CertificatePEM)
		})
	})
}

// failing sees that the metric of failed passes tells of a write that is refused: of a configuration that holds a CA of another client.
func (w *World) failing(b belonging, resource string, theirs []byte) {
	began, started := time.Now(), w.begun()
	for range 3 {
		if !w.wait(20 * time.Second) {
			return
		}
		now, err := gather()
		w.mu.Lock()
		still := w.rights.deny("update", resource) && ca.Contains(bundlesOf(w.history[b.kind].last()), theirs) && w.started == started && !w.troubledSince(began, rough, lapsed, apart, unissued) && !w.plan.Split
		w.mu.Unlock()
		if !still || err != nil || now.of("certificate_failing", "secret="+namespace+"/"+theSecret) == 1 {
			return
		}
	}
	w.violate("the %s cannot be written since %s, and eirinix_certificate_failing is 0", b.kind, time.Since(began).Round(time.Second))
}
