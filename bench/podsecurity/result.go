package podsecurity

// This file holds the figures of a run. They are written as JSON, from which the charts are drawn.

import "math"

// Result is a run.
type Result struct {
	Cores                    int
	Go, Platform, Kubernetes string
	Rounds                   int
	Share                    float64
	Groups                   []GroupResult
}

// GroupResult holds the figures of peers that were up together. The first has no webhook, the second is ours.
type GroupResult struct {
	Name     string
	Fixtures int // pods that every peer was asked about before anything was measured
	Peers    []PeerResult
}

// PeerResult holds the figures of a peer.
type PeerResult struct {
	Name, Beyond string
	Down         string    `json:",omitempty"` // why it could not be measured
	Differs      []string  `json:",omitempty"` // the fixtures that it decides differently from Kubernetes
	Binary       int64     // bytes
	Starts       []float64 // seconds from exec to the first correct verdicts
	Ready, Peak  float64   // MiB resident: when ready, and the most at any time
	Cells        []Cell
}

// Cell holds the figures of one load.
type Cell struct {
	Load    string
	Latency Latency // of all slices together
	Slices  []Slice
	Failed  int // requests without a verdict
	Wrong   int // requests with the wrong verdict
	Reason  string
}

// Slice holds the figures of one round.
type Slice struct {
	Latency
	Requests           int
	Webhook, APIServer float64 // CPU-seconds for a thousand requests
}

// Latency is in milliseconds.
type Latency struct{ P50, P95, P99, Max float64 }

func latencyOf(a answers) Latency {
	return Latency{rounded(a.percentile(0.50)), rounded(a.percentile(0.95)), rounded(a.percentile(0.99)), rounded(a.percentile(1))}
}

// rounded leaves out digits that mean nothing.
func rounded(x float64) float64 { return math.Round(x*1e4) / 1e4 }

// add adds a slice.
func (c *Cell) add(a answers, used cpu) {
	per := 1000 / float64(len(a.took))
	c.Slices = append(c.Slices, Slice{
		Latency: latencyOf(a), Requests: len(a.took), Webhook: rounded(used.webhook.Seconds() * per), APIServer: rounded(used.server.Seconds() * per),
	})
	c.Failed, c.Wrong = c.Failed+a.failed, c.Wrong+a.wrong
	if c.Reason == "" {
		c.Reason = a.reason
	}
}

// Counts reports whether the figures of a cell may be used.
func (c Cell) Counts() bool { return c.Failed == 0 && c.Wrong == 0 && len(c.Slices) > 0 }

// Cell returns the figures of a load, or nil.
func (p *PeerResult) Cell(load string) *Cell {
	for i := range p.Cells {
		if p.Cells[i].Load == load {
			return &p.Cells[i]
		}
	}
	return nil
}
