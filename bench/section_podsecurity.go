package main

// This file compares implementations of the Pod Security Standard "restricted" in front of an API server.

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"code.cloudfoundry.org/eirinix/bench/podsecurity"
)

// podSecuritySettings choose the groups of peers, the length of section podsecurity, and the file for its figures.
type podSecuritySettings struct {
	groups string
	rounds int
	share  float64
	file   string
}

// The bounds of section podsecurity. They hold for the load with ten users.
const (
	tenUsers           = "10 users"
	kubernetesCPUBound = 0.30
	runtimeCPUBound    = 0.35
	kyvernoCPUBound    = 0.07
	residentBound      = 3    // MiB above controller-runtime
	firstVerdictBound  = 0.15 // seconds
	nameKyverno        = "kyverno"
)

// sectionPodSecurity measures the groups, prints their figures, and writes them to a file.
func sectionPodSecurity(ctx context.Context, r *report, s podSecuritySettings) error {
	if os.Getenv(assetsVariable) == "" {
		r.skip("Pod Security", assetsVariable+" is not set (make assets builds the binaries and prints their folder)")
		return nil
	}
	names := strings.Split(s.groups, ",")
	for _, name := range names {
		if !slices.Contains(podsecurity.Groups(), name) {
			return fmt.Errorf("there is no group %q; the groups are %s", name, strings.Join(podsecurity.Groups(), ", "))
		}
	}
	result, err := podsecurity.Run(ctx, podsecurity.Settings{Groups: names, Rounds: s.rounds, Share: s.share, Progress: os.Stderr})
	if err != nil {
		return err
	}
	if s.file != "" {
		text, err := json.Marshal(result)
		if err == nil {
			err = os.WriteFile(s.file, append(text, '\n'), 0o644)
		}
		if err != nil {
			return err
		}
	}
	for i := range result.Groups {
		printGroup(r, &result.Groups[i])
		judgeGroup(r, &result.Groups[i])
	}
	return nil
}

// printGroup prints the figures of a group: of the peers first, then of each load.
func printGroup(r *report, g *podsecurity.GroupResult) {
	r.title("Pod Security, %s: peers, and %d fixtures of Kubernetes that each was asked about", g.Name, g.Fixtures)
	r.line("%-36s %10s %9s %9s %11s %17s", "", "binary MB", "ready MiB", "peak MiB", "start s", "verdicts differ")
	for _, p := range g.Peers {
		if p.Down != "" {
			r.skip(p.Name, p.Down)
			continue
		}
		start := quartiles(p.Starts).median
		r.line("%-36s %10.1f %9.1f %9.1f %11.2f %17d", p.Name, float64(p.Binary)/1e6, p.Ready, p.Peak, start, len(p.Differs))
	}
	for _, p := range g.Peers {
		if p.Beyond != "" {
			r.line("%s, beside this job: %s", p.Name, p.Beyond)
		}
		if len(p.Differs) > 0 {
			r.line("%s decides differently from Kubernetes: %s", p.Name, strings.Join(p.Differs, " "))
		}
	}
	for _, cell := range g.Peers[0].Cells {
		printLoad(r, g, cell.Load)
	}
}

// printLoad prints the figures of one load.
func printLoad(r *report, g *podsecurity.GroupResult, load string) {
	r.title("Pod Security, %s: %s", g.Name, load)
	r.line("%-36s %31s   %31s   %17s   %s", "", "latency in ms", "added in ms", "CPU-s per 1,000", "ours as a ratio to it (quartiles)")
	r.line("%-36s %7s %7s %7s %7s   %7s %7s %7s %7s   %8s %8s   %-20s %-20s %s", "", "p50", "p95", "p99", "max", "p50", "p95", "p99", "max",
		"webhook", "API", "webhook CPU", "added p50", "added p99")
	none, us := g.Peers[0].Cell(load), g.Peers[1].Cell(load)
	for i := range g.Peers {
		c := g.Peers[i].Cell(load)
		if c == nil {
			continue
		}
		if !c.Counts() {
			r.line("%-36s not counted: %d requests without a verdict, %d with the wrong one (%s)", g.Peers[i].Name, c.Failed, c.Wrong, c.Reason)
			continue
		}
		l := c.Latency
		text := fmt.Sprintf("%-36s %7.1f %7.1f %7.1f %7.1f", g.Peers[i].Name, l.P50, l.P95, l.P99, l.Max)
		if c == none {
			r.line("%s   %31s   %8s %8.3f", text, "", "", median(c, serverCPU))
			continue
		}
		for _, of := range []figure{p50, p95, p99, slowest} {
			text += fmt.Sprintf(" %7.1f", added(c, none, of).median)
		}
		text += fmt.Sprintf("   %8.3f %8.3f  ", median(c, webhookCPU), median(c, serverCPU))
		if c != us && us.Counts() {
			text += fmt.Sprintf(" %-20s %-20s %s", ratioText(us, c, none, webhookCPU), ratioText(us, c, none, p50), ratioText(us, c, none, p99))
		}
		r.line("%s", strings.TrimRight(text, " "))
	}
}

// figure is one of the figures of a slice.
type figure func(podsecurity.Slice) float64

func p50(s podsecurity.Slice) float64        { return s.P50 }
func p95(s podsecurity.Slice) float64        { return s.P95 }
func p99(s podsecurity.Slice) float64        { return s.P99 }
func slowest(s podsecurity.Slice) float64    { return s.Max }
func webhookCPU(s podsecurity.Slice) float64 { return s.Webhook }
func serverCPU(s podsecurity.Slice) float64  { return s.APIServer }

func each(c *podsecurity.Cell, of figure) (all []float64) {
	for _, s := range c.Slices {
		all = append(all, of(s))
	}
	return all
}

func median(c *podsecurity.Cell, of figure) float64 { return quartiles(each(c, of)).median }

// differences returns a figure of each slice, less that of the slice without a webhook in the same round.
func differences(c, none *podsecurity.Cell, of figure) []float64 {
	all := each(c, of)
	for i, without := range each(none, of) {
		all[i] -= without
	}
	return all
}

// added returns how much a webhook adds to a figure.
func added(c, none *podsecurity.Cell, of figure) ratio { return quartiles(differences(c, none, of)) }

// oursTo returns how much ours adds to a figure, as a ratio to another peer, round by round.
func oursTo(us, other, none *podsecurity.Cell, of figure) ratio {
	return (&work{cpu: differences(us, none, of)}).ratioTo(&work{cpu: differences(other, none, of)})
}

// ratioText prints a ratio, unless the other peer adds nothing that could be measured.
func ratioText(us, other, none *podsecurity.Cell, of figure) string {
	if added(other, none, of).low <= 0 {
		return "-"
	}
	q := oursTo(us, other, none, of)
	return fmt.Sprintf("%.3f (%.3f-%.3f)", q.median, q.low, q.high)
}

// judgeGroup compares a group with the bounds.
func judgeGroup(r *report, g *podsecurity.GroupResult) {
	find := func(name string) (*podsecurity.PeerResult, *podsecurity.Cell) {
		i := slices.IndexFunc(g.Peers, func(p podsecurity.PeerResult) bool { return p.Name == name })
		if i < 0 {
			return nil, nil
		}
		c := g.Peers[i].Cell(tenUsers)
		if c == nil || !c.Counts() {
			return nil, nil
		}
		return &g.Peers[i], c
	}
	none := g.Peers[0].Cell(tenUsers)
	us, usCell := find(podsecurity.Ours)
	if us == nil {
		r.judge(1, 0, "Pod Security, %s: figures of ours that count", g.Name)
		return
	}
	r.judge(quartiles(us.Starts).median, firstVerdictBound, "Pod Security, %s: seconds from exec to the first verdict", g.Name)
	if _, c := find(podsecurity.KubernetesWebhook); c != nil {
		r.judge(oursTo(usCell, c, none, webhookCPU).median, kubernetesCPUBound, "Pod Security: CPU, ours/Kubernetes' webhook")
	}
	if p, c := find(podsecurity.ControllerRuntime); c != nil {
		r.judge(oursTo(usCell, c, none, webhookCPU).median, runtimeCPUBound, "Pod Security: CPU, ours/controller-runtime")
		r.judge(us.Peak-p.Peak, residentBound, "Pod Security: peak MiB, ours above controller-runtime")
		r.judge(added(usCell, none, p99).low-added(c, none, p99).high, 0, "Pod Security: ms added at p99 above controller-runtime, beyond quartiles")
	}
	for _, p := range g.Peers {
		if !strings.HasPrefix(p.Name, podsecurity.NameKyverno) {
			continue
		}
		if _, c := find(p.Name); c != nil {
			r.judge(oursTo(usCell, c, none, webhookCPU).median, kyvernoCPUBound, "Pod Security: CPU, ours/%s", p.Name)
		}
	}
}
