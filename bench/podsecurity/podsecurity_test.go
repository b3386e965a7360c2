package podsecurity

// This file plays loads and verdicts.

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// apiServer answers creations of pods. handle returns whether a pod is refused, or a status that is no verdict.
func apiServer(t *testing.T, handle func(*corev1.Pod) (refused bool, status int)) *sender {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var p corev1.Pod
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil || r.URL.Query().Get("dryRun") != "All" {
			t.Errorf("not a dry run of a pod: %s: %v", r.URL, err)
		}
		refused, status := handle(&p)
		if refused {
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, `{"kind":"Status","message":"admission webhook \"pods\" denied the request: no"}`)
			return
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	return &sender{client: server.Client(), host: server.URL}
}

func madePod(t *testing.T, bytes int, refused bool) pod {
	t.Helper()
	p, err := newPod(bytes, refused)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func privileged(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
		return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
	})
}

// TestWrongAnswersDoNotCount expects that figures of a peer with other verdicts, or with none, are not used.
func TestWrongAnswersDoNotCount(t *testing.T) {
	for name, test := range map[string]struct {
		refused       bool
		status        int
		failed, wrong int
	}{
		"refuses all":         {true, 0, 0, 10},
		"cannot be reached":   {false, http.StatusInternalServerError, 10, 0},
		"refuses unasked":     {false, http.StatusUnprocessableEntity, 10, 0},
		"decides as required": {false, http.StatusCreated, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			to := apiServer(t, func(*corev1.Pod) (bool, int) { return test.refused, test.status })
			a := to.play(t.Context(), load{users: 2, requests: 10, pod: madePod(t, 1000, false)}, "pods")
			if a.failed != test.failed || a.wrong != test.wrong || (a.reason == "") != (test.failed+test.wrong == 0) {
				t.Errorf("%d failed, %d wrong: %q", a.failed, a.wrong, a.reason)
			}
			var c Cell
			c.add(a, cpu{})
			if c.Counts() != (test.failed+test.wrong == 0) {
				t.Errorf("counts: %t", c.Counts())
			}
		})
	}
}

// TestVerdictsAreCompared expects a list of the fixtures that a peer decides differently.
func TestVerdictsAreCompared(t *testing.T) {
	fixtures, err := readFixtures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	to := apiServer(t, func(p *corev1.Pod) (bool, int) { return !privileged(p), http.StatusCreated })
	u := &contender{Peer: ours(), figures: &PeerResult{}}
	if err := u.compareVerdicts(t.Context(), to, fixtures); err != nil {
		t.Fatal(err)
	}
	if differs := u.figures.Differs; !slices.Contains(differs, "pass/base") || !slices.Contains(differs, "fail/privileged0") || slices.Contains(differs, "fail/runasnonroot0") {
		t.Errorf("differs in %v", differs)
	}
}
