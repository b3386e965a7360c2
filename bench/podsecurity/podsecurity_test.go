package podsecurity

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix/bench/podsecurity/restricted"
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

// TestPods expects the pods and the fixtures to be what their names say, for Kubernetes' own checks.
func TestPods(t *testing.T) {
	check, err := restricted.Check()
	if err != nil {
		t.Fatal(err)
	}
	all, err := readFixtures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, bytes := range []int{1000, 4000, 22000} {
		for _, refused := range []bool{false, true} {
			p := madePod(t, bytes, refused)
			if size := len(p.json); size < bytes || size > bytes+2000 {
				t.Errorf("the pod of %d bytes has %d", bytes, size)
			}
			all = append(all, p)
		}
	}
	for _, p := range all {
		var decoded corev1.Pod
		if err := json.Unmarshal(p.json, &decoded); err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
		for i := range decoded.Spec.Volumes {
			if v := &decoded.Spec.Volumes[i]; v.VolumeSource == (corev1.VolumeSource{}) {
				v.EmptyDir = &corev1.EmptyDirVolumeSource{} // the default that API servers set
			}
		}
		if violation := check(&decoded); (violation != "") != p.refused {
			t.Errorf("%s: refused is %t, but: %q", p.name, p.refused, violation)
		}
	}
}

// TestUsersShareRequests expects as many requests as a load has, and as many at a time as it has users.
func TestUsersShareRequests(t *testing.T) {
	const users, requests = 4, 40
	var sent, now atomic.Int64
	together := make(chan struct{})
	to := apiServer(t, func(*corev1.Pod) (bool, int) {
		defer now.Add(-1)
		sent.Add(1)
		switch n := now.Add(1); {
		case n > users:
			t.Errorf("%d requests at a time", n)
		case n == users && sent.Load() == users:
			close(together)
		}
		<-together // the first of each user
		return false, http.StatusCreated
	})
	a := to.play(t.Context(), load{users: users, requests: requests, pod: madePod(t, 1000, false)}, "pods")
	if sent.Load() != requests || len(a.took) != requests || a.failed+a.wrong > 0 {
		t.Errorf("%d sent, %d measured, %d failed, %d wrong: %s", sent.Load(), len(a.took), a.failed, a.wrong, a.reason)
	}
	if !slices.IsSorted(a.took) || a.percentile(0.5) > a.percentile(1) || a.percentile(1) == 0 {
		t.Errorf("times are not in order: %v", a.took)
	}
}

// TestRateDoesNotWait expects requests to begin although none before was answered.
func TestRateDoesNotWait(t *testing.T) {
	const requests = 20
	var all sync.WaitGroup
	all.Add(requests)
	to := apiServer(t, func(*corev1.Pod) (bool, int) {
		all.Done()
		all.Wait()
		return false, http.StatusCreated
	})
	a := to.play(t.Context(), load{rate: 1000, requests: requests, pod: madePod(t, 1000, false)}, "pods")
	if a.failed+a.wrong > 0 {
		t.Errorf("%d failed, %d wrong: %s", a.failed, a.wrong, a.reason)
	}
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

// TestProgramThatEnds expects an error that names the reason, and the end of the program's log.
func TestProgramThatEnds(t *testing.T) {
	to := apiServer(t, func(*corev1.Pod) (bool, int) { return false, http.StatusInternalServerError })
	p, err := startProcess(t.Context(), &cluster{dir: t.TempDir()}, "broken", func(ctx context.Context) *exec.Cmd {
		return exec.CommandContext(ctx, "sh", "-c", "echo no settings; exit 3")
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = awaitVerdicts(t.Context(), to, "broken", p)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("the error is: %v", err)
	}
	if text := p.logEnd(); !bytes.Contains(text, []byte("no settings")) {
		t.Errorf("the log ends with %q", text)
	}
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

// TestProcesses expects the CPU time and the memory of another process.
func TestProcesses(t *testing.T) {
	if _, err := cpuOf(os.Getpid()); err != nil {
		t.Skip(err)
	}
	p, err := startProcess(t.Context(), &cluster{dir: t.TempDir()}, "busy", func(ctx context.Context) *exec.Cmd {
		return exec.CommandContext(ctx, "sh", "-c", "while true; do :; done")
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.end(); err != nil {
			t.Error(err)
		}
	}()
	for {
		used, err := cpuOf(p.pid())
		if err != nil {
			t.Fatal(err)
		}
		if used > 20*time.Millisecond {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if now, peak, err := memoryOf(p.pid()); err != nil || now <= 0 || peak < now {
		t.Errorf("%f MiB now, %f at most: %v", now, peak, err)
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
