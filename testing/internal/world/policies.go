package world

// This file is the policy, an object that steps read: a ConfigMap, or one of a kind that comes and goes.

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	policyName      = "policy"
	generationLabel = "generation" // of a policy, which counts from 1
)

// noPolicy returns an empty object of the kind that steps read.
func noPolicy(kinds bool) client.Object {
	if kinds {
		return &networkingv1.NetworkPolicy{}
	}
	return &corev1.ConfigMap{}
}

// policyKind returns that kind, and its resource.
func (p Plan) policyKind() (kind string, resource schema.GroupResource) {
	if p.Kinds {
		return "NetworkPolicy", networkingv1.Resource("networkpolicies")
	}
	return "ConfigMap", corev1.Resource("configmaps")
}

func (p Plan) policy(generation int) client.Object {
	object := noPolicy(p.Kinds)
	object.SetNamespace(namespace)
	object.SetName(policyName)
	object.SetLabels(map[string]string{generationLabel: strconv.Itoa(generation)})
	return object
}

// The log says missing when there is no policy, unknown when there is no such kind at a start, and unreadable when that, or a
// right, has gone. It says again when that is over.
const (
	missing    = "an object is missing that steps require"
	unknown    = "objects that steps read cannot be listed"
	unreadable = "are refused; the steps fail"
	again      = "are up to date again"
)

// unruled reports whether there is no policy.
func (w *World) unruled() bool { return w.ruledBy() == 0 }

// ruledBy returns the generation of the policy, or 0.
func (w *World) ruledBy() (generation int) {
	kind, _ := w.plan.policyKind()
	if found := w.find(kind, namespace, policyName); found != nil {
		generation, _ = strconv.Atoi(found.GetLabels()[generationLabel])
	}
	return generation
}

// lateBy is when the policy, or the issuer's Secret, is made in a world that starts without it.
const lateBy = 4 * time.Minute

// late puts the policy there after the program has come, and its kind.
func (w *World) late() {
	w.excuse(unread, lateBy+settling)
	w.mu.Lock()
	w.policies = []policyVersion{{generation: 0, from: w.began}}
	w.generations++
	next := w.generations
	w.mu.Unlock()
	switch {
	case w.plan.Issued: // for which it waits first
	case w.rights.serves():
		w.expects(lateBy, missing, w.unruled)
	default:
		w.expects(lateBy, unknown, w.unruled)
	}
	if w.wait(lateBy-time.Second) && !w.plan.Issued && !w.plan.Split {
		w.waits()
	}
	if w.wait(time.Second) {
		w.tell(fate, "makes the policy")
		w.rights.unserve(false)
		w.policyBecomes(next)
		w.joins()
	}
}

func (w *World) policyBecomes(generation int) {
	w.mu.Lock()
	w.policies = append(w.policies, policyVersion{generation, time.Now()})
	w.mu.Unlock()
	_, resource := w.plan.policyKind()
	if generation == 0 {
		w.api.Remove(resource, namespace, policyName)
	} else if err := w.api.Put(w.plan.policy(generation)); err != nil {
		w.violate("the policy cannot be changed: %v", err)
	}
}

// changePolicy changes what steps read, or takes it away for a while.
func (w *World) changePolicy(f Fault, rng *rand.Rand) {
	w.mu.Lock()
	w.generations++
	next := w.generations
	w.mu.Unlock()
	if w.plan.Wide { // amid calls that read it
		w.edits(w.stream("amid", int(f.At)), int(f.At))
	}
	if rng.IntN(2) == 0 {
		w.tell(fate, "changes the policy")
		w.policyBecomes(next)
		return
	}
	longer := w.plan.Wide && rng.IntN(2) == 0
	if longer {
		f.For = min(max(f.For, staleBy+time.Minute), w.plan.Lasts-quiet-settling-f.At)
	}
	breaks := w.plan.Wide && !w.unruled() && w.plan.settled("restore") && w.stream("breaks", int(f.At)).IntN(2) == 0
	if breaks {
		f.For = min(max(f.For, 2*settling), w.plan.Lasts-quiet-settling-f.At-brokenFor)
		w.excuse(unread, brokenFor+f.For+settling)
		if !w.breaksPolicy(w.ruledBy()) {
			return
		}
	}
	w.excuse(unread, f.For+settling)
	w.expects(f.For, missing, func() bool { return w.unruled() && w.rights.serves() && !w.rights.ill() })
	w.tell(fate, "deletes the policy for %s", f.For.Round(time.Second))
	w.policyBecomes(0)
	if breaks {
		w.mu.Lock()
		w.watch.unbroken = time.Now()
		w.mu.Unlock()
	}
	if longer || breaks {
		w.presses(f.For, rng)
	} else {
		w.wait(f.For)
	}
	w.policyBecomes(next)
}

// takeKind has the API servers serve the kind of the policy no more, with all objects of it, and again after a while.
func (w *World) takeKind(f Fault, rng *rand.Rand) {
	if !w.rights.serves() {
		return
	}
	f.For = min(3*f.For, w.plan.Lasts-quiet-settling-f.At)
	w.mu.Lock()
	w.generations++
	next := w.generations
	w.mu.Unlock()
	later := time.Duration(rng.IntN(2)) * staleBy * 2
	w.excuse(unread, f.For+later+settling)
	w.expects(f.For, unreadable, func() bool {
		return !w.rights.serves() && !w.rights.ill() && !w.saidSince(again, unknown) && !w.saidSince(again, unreadable)
	})
	w.rings(f.For, unreadable, func() bool { return !w.rights.serves() && !w.rights.ill() })
	w.tell(fate, "takes the kind of the policy away for %s", f.For.Round(time.Second))
	w.policyBecomes(0)
	w.rights.unserve(true)
	for _, s := range w.servers {
		s.server.Close()
	}
	w.wait(f.For)
	w.rights.unserve(false)
	w.tell(fate, "has the kind of the policy served again, and makes a policy %s later", later)
	w.wait(later)
	w.policyBecomes(next)
}

// sicken makes the API servers answer nothing about the objects that steps read.
func (w *World) sicken(f Fault, rng *rand.Rand) {
	if w.plan.Wide && rng.IntN(2) == 0 {
		w.sickensOne(f, rng)
		return
	}
	status := []int{http.StatusInternalServerError, http.StatusServiceUnavailable, -1}[rng.IntN(3)]
	w.excuse(unread, 4*f.For+settling)
	w.tell(fate, "makes the API servers answer %d to requests for policies, for %s (-1: nothing)", status, (4 * f.For).Round(time.Second))
	w.rights.sicken(status)
	for _, s := range w.servers {
		s.server.Close()
	}
	if own := w.stream("young", int(f.At)); status < 0 && !w.plan.Split && own.IntN(2) == 0 {
		w.tasks.Go(w.stopsYoung)
		w.restart(Fault{}, own)
	} else if own := w.stream("repair", int(f.At)); !w.plan.Split && own.IntN(2) == 0 {
		w.repairs(4*f.For, own)
	} else if later := staleBy + 10*time.Second; status > 0 && 4*f.For > later+10*time.Second && w.wait(later) {
		w.urges()
	}
	w.wait(max(0, f.At+4*f.For-time.Since(w.began)))
	w.rights.sicken(0)
}

// serves reports whether the kind of the policy is served.
func (r *rights) serves() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.unserved
}

func (r *rights) unserve(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unserved = on
}

// hidden returns the groups that are not served.
func (r *rights) hidden() (groups []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unserved {
		groups = append(groups, networkingv1.GroupName)
	}
	if r.coming {
		groups = append(groups, schedulingv1.GroupName)
	}
	return groups
}

// lacks answers a request for a group that is not served, or for all groups. It reports whether it did.
func (s *apiServer) lacks(w http.ResponseWriter, r *http.Request) bool {
	groups := s.w.rights.hidden()
	if slices.ContainsFunc(groups, func(g string) bool { return strings.HasPrefix(r.URL.Path+"/", "/apis/"+g+"/") }) {
		http.NotFound(w, r)
		return true
	}
	if len(groups) == 0 || r.URL.Path != "/apis" {
		return s.w.rights.hides(w, r)
	}
	all := httptest.NewRecorder()
	s.server.ServeHTTP(all, r)
	var found metav1.APIGroupList
	if err := json.Unmarshal(all.Body.Bytes(), &found); err != nil {
		s.w.violate("the groups cannot be read: %v", err)
	}
	found.Groups = slices.DeleteFunc(found.Groups, func(g metav1.APIGroup) bool { return slices.Contains(groups, g.Name) })
	writeJSON(w, http.StatusOK, found)
	return true
}
