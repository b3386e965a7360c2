package world

// This file is policies of two namespaces, which two steps read with declarations that differ, and how old they may be.

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
)

const (
	looker    = "looks" // says which policy it sees when a pod is changed or deleted, with failurePolicy Ignore
	ager      = "ages"  // reads the same, which may be of any age, when a pod is deleted, with failurePolicy Ignore
	looksAt   = "policy"
	laterOn   = "-later" // is behind that, where the step has waited meanwhile
	elsewhere = "rules"  // a namespace without policies, which is read after the other one

	undeclared = "undeclared" // a label that has the last step read undeclared objects, and drop the error

	unreadablePolicy = "Read.Transform panicked" // is why the second step fails for a policy with the label of broken pods
)

// policies are the objects that a step of a version reads.
func (r release) policies(required bool) eirinix.Read {
	read := eirinix.Read{Object: noPolicy(r.kinds), Namespaces: []string{namespace}, Required: required}
	if read.Fields = fields.OneTermEqualSelector(metav1.ObjectNameField, policyName); r.wide {
		read.Namespaces = append(read.Namespaces, elsewhere)
	}
	return read
}

// looks gives the Manager the second step that reads policies. It stores less of them, and requires none.
func looks(m *eirinix.ExtensionManager, r release) error {
	read := r.policies(false)
	read.Transform = func(o client.Object) {
		if o.GetLabels()[brokenRule] != "" {
			panic("it is broken")
		}
		o.SetAnnotations(nil)
	}
	says := func(ctx context.Context, c *eirinix.Call, when string) error {
		policy, seen := noPolicy(r.kinds), "0"
		err := c.Reader().Get(ctx, client.ObjectKey{Namespace: namespace, Name: policyName}, policy)
		switch {
		case err == nil:
			seen = policy.GetLabels()[generationLabel]
		case !apierrors.IsNotFound(err):
			return err
		}
		c.Annotate(looksAt+when, seen)
		differs, err := disagreement(ctx, c.Reader())
		if differs != "" {
			c.Annotate(disagree, differs)
		}
		return err
	}
	return m.AddExtension(eirinix.Validation[*corev1.Pod]{
		ID: looker, Settings: eirinix.Settings{
			Isolated: true, FailurePolicy: admissionregistrationv1.Ignore, Reads: []eirinix.Read{read, catalogue(), catalogue(), lowFloors()}, // two hold the same objects
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update, admissionregistrationv1.Delete},
		},
		Rule: func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error { return says(ctx, c, laterOn) },
		Update: func(ctx context.Context, c *eirinix.Call, _, pod *corev1.Pod) error {
			return errors.Join(says(ctx, c, ""), passes(ctx, pod))
		},
		Delete: func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error { return says(ctx, c, "") },
	})
}

// ages gives the Manager a step that declares the same objects as the first one, which may be of any age for it.
func ages(m *eirinix.ExtensionManager, r release) error {
	read := r.policies(true)
	read.MaxStale = eirinix.AnyAge
	return m.AddExtension(eirinix.Validation[*corev1.Pod]{
		ID: ager, Settings: eirinix.Settings{Isolated: true, FailurePolicy: admissionregistrationv1.Ignore, Reads: []eirinix.Read{read}},
		Delete: func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
			if pod.Labels[undeclared] != "" {
				_ = c.Reader().Get(ctx, client.ObjectKey{Namespace: "shop", Name: policyName}, noPolicy(r.kinds)) // which fails the step
			}
			return nil
		},
	})
}

// looksWell looks at the policy that the second step has seen. The caller holds mu.
func (w *World) looksWell(s *apiServer, began time.Time, v verdict) {
	for _, one := range v.said {
		if gone := w.watch.unbroken; one.failed != nil && strings.Contains(one.failed.Error(), unreadablePolicy) && !gone.IsZero() && gone.Add(settling).Before(began) {
			w.breaks("%s: step %s fails for a policy that has gone %s before: %v", s.name, looker, began.Sub(gone), one.failed)
		}
		if one.response == nil {
			continue
		}
		if strings.HasPrefix(one.Name, ager+".") && one.subject().GetLabels()[undeclared] != "" {
			w.breaks("%s: step %s reads what it does not declare, and decides", s.name, ager)
		}
		if was, is := one.annotated(looksAt), one.annotated(looksAt+laterOn); len(was) > 0 && len(is) > 0 && was[0] != is[0] {
			w.breaks("%s: step %s sees policy %s at first, and %s later in its call", s.name, looker, was[0], is[0])
		}
		for _, differs := range one.annotated(disagree) {
			w.breaks("%s: what step %s reads in one call does not agree: %s", s.name, looker, differs)
		}
		for _, seen := range one.annotated(looksAt) {
			if !slices.ContainsFunc(w.policies, func(p policyVersion) bool { return strconv.Itoa(p.generation) == seen }) {
				w.breaks("%s: step %s sees policy %s (0: none), which there never was", s.name, looker, seen)
			}
			if since := w.replaced(seen); !since.IsZero() && since.Add(staleBy).Before(began) {
				w.breaks("%s: step %s sees policy %s, which was replaced %s before", s.name, looker, seen, began.Sub(since))
			}
		}
	}
}

// policyVersion is the policy from a moment on. Generation 0 is none.
type policyVersion struct {
	generation int
	from       time.Time
}

// staleBy is how old the objects that a step sees may be: MaxStale, and the time of the call.
const staleBy = time.Minute + requestTime

// readsWell looks at the policy that a pod was admitted with. The caller holds mu.
func (w *World) readsWell(s *apiServer, began time.Time, v verdict) {
	seen, ran := v.object.GetAnnotations()["ran-"+reader]
	if !ran {
		return
	}
	if seen == none {
		w.breaks("%s admitted a pod by a step that requires a policy, and there was none", s.name)
	}
	if since := w.replaced(seen); !since.IsZero() && since.Add(staleBy).Before(began) {
		w.breaks("%s admitted a pod by policy %s, which was replaced %s before", s.name, seen, began.Sub(since))
	}
}

// replaced returns when a policy was replaced, or zero. The caller holds mu.
func (w *World) replaced(seen string) time.Time {
	for i := len(w.policies) - 1; i >= 0; i-- { // a restore brings an earlier one back
		if strconv.Itoa(w.policies[i].generation) == seen && i+1 < len(w.policies) {
			return w.policies[i+1].from
		} else if strconv.Itoa(w.policies[i].generation) == seen {
			break
		}
	}
	return time.Time{}
}

// discovers reports whether a request asks which kinds there are.
func discovers(r *http.Request) bool {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	return parts[0] == "api" && len(parts) <= 2 || parts[0] == "apis" && len(parts) <= 3
}

// hides answers a request for policies of the namespace in which they cannot be read. It reports whether it did.
func (r *rights) hides(w http.ResponseWriter, req *http.Request) bool {
	r.mu.Lock()
	in := r.partly
	r.mu.Unlock()
	if in == "" || !strings.HasSuffix(req.URL.Path, "/namespaces/"+in+"/configmaps") || !strings.Contains(req.URL.RawQuery, policyName) {
		return false
	}
	writeJSON(w, http.StatusServiceUnavailable, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Message: "the world says so"})
	return true
}

// hide has the API servers answer nothing about policies of one namespace.
func (r *rights) hide(in string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.partly, r.cured = in, time.Now()
}

// sickensOne has the API servers answer nothing about the policies of one namespace of two, while the policy is changed there.
func (w *World) sickensOne(f Fault, rng *rand.Rand) {
	f.For = min(max(f.For, staleBy+time.Minute), w.plan.Lasts-quiet-settling-f.At)
	w.mu.Lock()
	w.generations++
	next := w.generations
	w.mu.Unlock()
	w.excuse(unread, f.For+settling)
	w.tell(fate, "makes the API servers answer nothing about policies of %s for %s, and changes the policy", namespace, f.For.Round(time.Second))
	w.rights.hide(namespace)
	for _, s := range w.servers {
		s.server.Close()
	}
	if w.stream("half", int(f.At)).IntN(2) == 0 { // replicas start that have never listed them
		w.restart(f, rng)
	}
	w.policyBecomes(next)
	w.presses(f.For, rng)
	w.rights.hide("")
}

// presses has API servers admit new and changed pods again and again.
func (w *World) presses(d time.Duration, rng *rand.Rand) {
	for until := time.Now().Add(d); time.Now().Before(until) && w.wait(10*time.Second); {
		n := rng.Uint64()
		w.tasks.Go(func() { w.tries("", n) })
		w.edits(rng, int(n%1_000_000))
	}
}

// breaksPolicy makes a policy that the second step cannot read, which is deleted a while later. It returns false at the end of the world.
func (w *World) breaksPolicy(generation int) bool {
	policy := w.plan.policy(generation)
	labels := policy.GetLabels()
	labels[brokenRule] = "yes"
	policy.SetLabels(labels)
	w.tell(fate, "makes a policy that step %s cannot read", looker)
	w.mu.Lock()
	w.watch.unbroken = time.Time{}
	w.mu.Unlock()
	if err := w.api.Put(policy); err != nil {
		w.violate("the policy cannot be changed: %v", err)
	}
	return w.wait(brokenFor)
}

// brokenFor is how long a policy is there that the second step cannot read.
const brokenFor = 20 * time.Second
