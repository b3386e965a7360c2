package podsecurity

// This file plays loads, verdicts and a whole group of peers.

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
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

// TestRun plays a group in front of a real API server, with few requests.
func TestRun(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set (make assets builds the binaries and prints their folder)")
	}
	if _, err := cpuOf(os.Getpid()); err != nil {
		t.Skip(err)
	}
	t.Chdir("..") // the programs are built from the folder of the module
	fixtures, err := readFixtures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all, err := loads(0.01)
	if err != nil {
		t.Fatal(err)
	}
	all = []load{all[0], all[len(all)-1]} // users, and a rate of pods that are refused
	broken := func() *Peer {
		return &Peer{Name: "broken", namespace: "broken", setUp: func(context.Context, *cluster, *Peer) (func(context.Context) *exec.Cmd, error) {
			return func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, "false") }, nil
		}}
	}
	g := group{"test", func() []*Peer { return []*Peer{controllerRuntime(), broken()} }}
	figures, err := runGroup(t.Context(), Settings{Rounds: 2, Progress: t.Output()}, g, all, fixtures, &Result{})
	if err != nil {
		t.Fatal(err)
	}
	if figures.Fixtures < 90 {
		t.Errorf("%d fixtures", figures.Fixtures)
	}
	for _, p := range figures.Peers[:3] {
		if p.Down != "" || len(p.Differs) > 0 || len(p.Cells) != len(all) {
			t.Errorf("%s: down: %q; differs in %v; %d cells", p.Name, p.Down, p.Differs, len(p.Cells))
		}
		webhook := p.Name != none().Name
		for _, c := range p.Cells {
			if s := c.Slices; !c.Counts() || len(s) != 2 || s[1].Requests == 0 || s[1].P50 <= 0 || s[1].APIServer <= 0 || (s[1].Webhook > 0) != webhook {
				t.Errorf("%s: %+v", p.Name, c)
			}
		}
		if webhook && (len(p.Starts) != starts || p.Ready <= 0 || p.Peak < p.Ready || p.Binary == 0) {
			t.Errorf("%s: %+v", p.Name, p)
		}
	}
	if p := figures.Peers[3]; !strings.Contains(p.Down, "exit status 1") {
		t.Errorf("broken: %q", p.Down)
	}
}
