// Package podsecurity compares implementations of the Pod Security Standard "restricted" in front of a real API server:
// programs on this library, other webhooks, policy engines, and the API server's own policies.
//
// The files:
//
//	podsecurity.go   a run: groups of peers, and the loads that each gets
//	result.go        the figures
//	load.go          requests, and how long they take; pods.go makes the pods
//	cluster.go       the API server of a group
//	peer.go          the list of peers; process.go starts and stops their programs
//	ours.go          the peers whose programs are in this repository
//	webhook.go       Kubernetes' own webhook
//	kyverno.go, gatekeeper.go, policies.go   the policy engines, and the API server's own policies
//	charts.go        objects of other projects
package podsecurity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Settings choose how much is measured.
type Settings struct {
	Groups   []string  // names of Groups, in any order
	Rounds   int       // slices of each load and peer
	Share    float64   // part of the requests that are sent, of 1
	Progress io.Writer // a line for each step
}

// loads returns what each peer gets in a round: the creations of kyverno's published load test, in which users share a
// number of requests, and pods at two rates. Five rounds send 50/5,000 and 100/10,000 once, and 10/1,000 five times,
// because the bounds hold for it.
func loads(share float64) (all []load, err error) {
	part := func(requests float64) int { return max(10, int(math.Round(requests*share))) }
	small, err := newPod(4000, false)
	if err != nil {
		return nil, err
	}
	for _, l := range []struct{ users, requests int }{{10, 1000}, {50, 1000}, {100, 2000}} {
		all = append(all, load{name: fmt.Sprintf("%d users", l.users), users: l.users, requests: part(float64(l.requests)), pod: small})
	}
	for _, rate := range []float64{20, 100} {
		for _, bytes := range []int{4000, 22000} {
			for _, refused := range []bool{false, true} {
				p, err := newPod(bytes, refused)
				if err != nil {
					return nil, err
				}
				verdict := "compliant"
				if refused {
					verdict = "refused"
				}
				name := fmt.Sprintf("%g a second, %s, %s", rate, p.name, verdict)
				all = append(all, load{name: name, rate: rate, requests: part(rate * paced), pod: p})
			}
		}
	}
	return all, nil
}

// paced is how many seconds of each rate are sent in a round.
const paced = 2

// Run measures the groups, one after the other, each with an API server of its own.
func Run(ctx context.Context, s Settings) (*Result, error) {
	result := &Result{Cores: runtime.NumCPU(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Rounds: s.Rounds, Share: s.Share}
	fixtures, err := readFixtures(ctx)
	if err != nil {
		return nil, err
	}
	all, err := loads(s.Share)
	if err != nil {
		return nil, err
	}
	for _, g := range groups() {
		if !slices.Contains(s.Groups, g.name) {
			continue
		}
		figures, err := runGroup(ctx, s, g, all, fixtures, result)
		if err != nil {
			return nil, fmt.Errorf("group %s: %w", g.name, err)
		}
		result.Groups = append(result.Groups, *figures)
	}
	return result, nil
}

// contender is a peer in a cluster.
type contender struct {
	*Peer
	*process // nil if the API server itself does the work
	figures  *PeerResult
}

// runGroup starts the peers of a group, compares their verdicts, and measures them in turns.
func runGroup(ctx context.Context, s Settings, g group, all []load, fixtures []pod, result *Result) (_ *GroupResult, err error) {
	_, _ = fmt.Fprintf(s.Progress, "group %s: starting an API server\n", g.name)
	c, err := newCluster(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	version, err := c.typed.Discovery().ServerVersion()
	if err != nil {
		return nil, err
	}
	result.Kubernetes = version.GitVersion
	client, err := rest.HTTPClientFor(c.Config())
	if err != nil {
		return nil, err
	}
	to := &sender{client: client, host: c.Config().Host}
	server, err := apiServerProcess()
	if err != nil {
		return nil, err
	}
	peers := slices.Concat([]*Peer{none(), ours()}, g.peers())
	figures := &GroupResult{Name: g.name, Peers: make([]PeerResult, len(peers))}
	var up []*contender
	defer func() {
		for _, u := range up {
			if u.process != nil {
				err = errors.Join(err, u.process.end())
			}
		}
	}()
	for i, p := range peers {
		f := &figures.Peers[i]
		f.Name, f.Beyond = p.Name, p.Beyond
		_, _ = fmt.Fprintf(s.Progress, "group %s: starting %s\n", g.name, p.Name)
		u, err := bringUp(ctx, c, to, p, f)
		if err != nil {
			if ctx.Err() != nil || i < 2 {
				return nil, err
			}
			f.Down = err.Error()
			_, _ = fmt.Fprintf(s.Progress, "group %s: %s is not up: %s\n", g.name, p.Name, f.Down)
			continue
		}
		up = append(up, u)
	}
	if fixtures, err = acceptable(ctx, to, fixtures); err != nil {
		return nil, err
	}
	figures.Fixtures = len(fixtures)
	for _, u := range up[1:] {
		if err := u.compareVerdicts(ctx, to, fixtures); err != nil {
			return nil, fmt.Errorf("%s: %w", u.Name, err)
		}
	}
	for _, l := range all {
		_, _ = fmt.Fprintf(s.Progress, "group %s: %s, %d rounds of %d requests to each\n", g.name, l.name, s.Rounds, l.requests)
		if err := playRounds(ctx, s.Rounds, to, server, l, up); err != nil {
			return nil, err
		}
	}
	for _, u := range up {
		if u.process != nil {
			if _, u.figures.Peak, err = memoryOf(u.pid()); err != nil {
				return nil, err
			}
		}
	}
	return figures, nil
}

// bringUp creates the namespace of a peer and starts its program, several times to measure how long that takes.
func bringUp(ctx context.Context, c *cluster, to *sender, p *Peer, f *PeerResult) (*contender, error) {
	labels := map[string]string{"peer": p.namespace}
	for key, value := range p.labels {
		labels[key] = value
	}
	ns := &corev1.Namespace{TypeMeta: metav1.TypeMeta{Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: p.namespace, Labels: labels}}
	if err := c.create(ctx, ns); err != nil {
		return nil, err
	}
	u := &contender{Peer: p, figures: f}
	if p.setUp == nil {
		return u, nil
	}
	program, err := p.setUp(ctx, c, p)
	if err != nil {
		return nil, err
	}
	if program == nil {
		_, err := awaitVerdicts(ctx, to, p.namespace, nil)
		return u, err
	}
	for start := 0; ; start++ {
		if u.process, err = startProcess(ctx, c, p.namespace, program); err != nil {
			return nil, err
		}
		took, err := awaitVerdicts(ctx, to, p.namespace, u.process)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%w; its log ends with:\n%s", err, u.process.logEnd()), u.process.end())
		}
		if start > 0 { // the first one registers itself and creates its Secret
			f.Starts = append(f.Starts, took.Seconds())
		}
		if start == starts {
			break
		}
		if err := u.process.end(); err != nil {
			return nil, err
		}
	}
	if f.Ready, _, err = memoryOf(u.pid()); err != nil {
		return nil, errors.Join(err, u.process.end())
	}
	f.Binary, err = u.process.size()
	return u, err
}

// acceptable returns the fixtures that the API server accepts without a webhook.
func acceptable(ctx context.Context, to *sender, fixtures []pod) (all []pod, err error) {
	for _, p := range fixtures {
		if _, err := to.ask(ctx, p, none().namespace); err == nil {
			all = append(all, p)
		}
	}
	if len(all) < len(fixtures)/2 {
		return nil, fmt.Errorf("the API server accepts %d of %d fixtures without a webhook", len(all), len(fixtures))
	}
	return all, ctx.Err()
}

// compareVerdicts asks a peer about every fixture, and lists those that it decides differently from Kubernetes.
func (u *contender) compareVerdicts(ctx context.Context, to *sender, fixtures []pod) error {
	for _, p := range fixtures {
		refused, err := to.ask(ctx, p, u.namespace)
		if err != nil {
			u.figures.Differs = append(u.figures.Differs, p.name+" (no verdict)")
		} else if refused != p.refused {
			u.figures.Differs = append(u.figures.Differs, p.name)
		}
	}
	return ctx.Err()
}

// playRounds measures one load with every peer. In each round the peers take turns, and another one begins.
func playRounds(ctx context.Context, rounds int, to *sender, server int, l load, up []*contender) error {
	cells := make([]Cell, len(up))
	all := make([]answers, len(up))
	for round := range 1 + rounds {
		for i := range up {
			at := (round + i) % len(up)
			u, cell := up[at], &cells[at]
			l := l
			if u.Peer.setUp == nil {
				l.pod.refused = false // there is no webhook
			}
			if round == 0 { // the caches are cold
				l.requests = max(10, l.requests/4)
			}
			before, err := u.cpu(server)
			if err != nil {
				return err
			}
			a := to.play(ctx, l, u.namespace)
			after, err := u.cpu(server)
			if err != nil {
				return fmt.Errorf("%s: %w", u.Name, err)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if round > 0 {
				cell.add(a, after.minus(before))
				all[at].took = append(all[at].took, a.took...)
			}
		}
	}
	for i, u := range up {
		slices.Sort(all[i].took)
		cells[i].Load = l.name
		cells[i].Latency = latencyOf(all[i])
		u.figures.Cells = append(u.figures.Cells, cells[i])
	}
	return nil
}
