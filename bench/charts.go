package main

// This file draws the figures of section podsecurity as charts and as a table, for docs/performance.md.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"

	"code.cloudfoundry.org/eirinix/bench/podsecurity"
)

// The files of the charts: the figures of the published run, and the page that shows them.
const (
	figuresFile = "testdata/podsecurity.json"
	docsFolder  = "../docs"
	pageFile    = "performance.md"
)

// The comments in the page between which the table stands.
const (
	tableBegin = "<!-- The table is written by make charts. -->\n"
	tableEnd   = "<!-- End of the table. -->\n"
)

// bar is a line of a chart: a figure, and how it compares with that of ours in the same group.
type bar struct {
	name  string
	ours  bool
	value float64
	text  string
}

// chart is a chart with horizontal bars from zero.
type chart struct {
	file, title, unit string
	of                func(g *podsecurity.GroupResult, p *podsecurity.PeerResult) (value float64, ok bool)
}

var charts = []chart{
	{
		"podsecurity-cpu.svg", "CPU of API server and webhook for 1,000 creations of a pod", "CPU-s",
		totalCPU,
	},
	{
		"podsecurity-latency.svg", "Latency that is added to a creation, median, with 10 users", "ms",
		func(g *podsecurity.GroupResult, p *podsecurity.PeerResult) (float64, bool) {
			return addedLatency(g, p, p50)
		},
	},
	{
		"podsecurity-tail.svg", "Latency that is added at the 99th percentile, with 10 users", "ms",
		func(g *podsecurity.GroupResult, p *podsecurity.PeerResult) (float64, bool) {
			return addedLatency(g, p, p99)
		},
	},
	{
		"podsecurity-memory.svg", "Peak memory of the webhook", "MiB",
		func(_ *podsecurity.GroupResult, p *podsecurity.PeerResult) (float64, bool) { return p.Peak, p.Peak > 0 },
	},
}

// cellsOf returns the figures of a peer and of the API server without a webhook, if they count.
func cellsOf(g *podsecurity.GroupResult, p *podsecurity.PeerResult) (c, none *podsecurity.Cell) {
	c, none = p.Cell(tenUsers), g.Peers[0].Cell(tenUsers)
	if c == nil || none == nil || c == none || !c.Counts() || !none.Counts() {
		return nil, nil
	}
	return c, none
}

func totalCPU(_ *podsecurity.GroupResult, p *podsecurity.PeerResult) (float64, bool) {
	c := p.Cell(tenUsers)
	if c == nil || !c.Counts() {
		return 0, false
	}
	return median(c, func(s podsecurity.Slice) float64 { return s.Webhook + s.APIServer }), true
}

func addedLatency(g *podsecurity.GroupResult, p *podsecurity.PeerResult, of figure) (float64, bool) {
	c, none := cellsOf(g, p)
	if c == nil {
		return 0, false
	}
	return added(c, none, of).median, true
}

// bars returns the bars of a chart. Those without a webhook and of ours are of the first group.
func (c chart) bars(r *podsecurity.Result) (all []bar) {
	for i := range r.Groups {
		g := &r.Groups[i]
		us, counts := c.of(g, &g.Peers[1])
		for j := range g.Peers {
			p := &g.Peers[j]
			value, ok := c.of(g, p)
			if !ok || i > 0 && j <= 1 {
				continue
			}
			b := bar{name: p.Name, ours: strings.HasPrefix(p.Name, podsecurity.Ours), value: value, text: fmt.Sprintf("%.3g", value)}
			if j > 1 && counts && us > 0 {
				b.text += fmt.Sprintf(" (%.2g x ours)", value/us)
			}
			all = append(all, b)
		}
	}
	return all
}

// Sizes of a chart in pixels.
const (
	chartWidth, barsBegin, barsWidth = 760, 270, 340
	rowHeight, barHeight, headHeight = 24, 15, 40
)

// svg draws a chart. The colours follow the reader's choice of light or dark.
func (c chart) svg(r *podsecurity.Result) []byte {
	all := c.bars(r)
	largest := 0.0
	for _, b := range all {
		largest = max(largest, b.value)
	}
	var w bytes.Buffer
	height := headHeight + rowHeight*len(all) + 10
	title := html.EscapeString(c.title + " (" + c.unit + ")")
	fmt.Fprintf(&w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">
<style>
text { font: 13px system-ui, sans-serif; fill: #24292f } .title { font-weight: 600 } rect { fill: #8c959f } .ours { fill: #0969da }
@media (prefers-color-scheme: dark) { text { fill: #d1d7e0 } rect { fill: #656c76 } .ours { fill: #4493f8 } }
</style>
<text class="title" x="10" y="20">%s</text>
`, chartWidth, height, chartWidth, height, title, title)
	for i, b := range all {
		y := headHeight + rowHeight*i
		class := ""
		if b.ours {
			class = ` class="ours"`
		}
		width := max(1, b.value/max(largest, 1e-9)*barsWidth)
		fmt.Fprintf(&w, `<text x="%d" y="%d" text-anchor="end">%s</text><rect%s x="%d" y="%d" width="%.1f" height="%d"/><text x="%.1f" y="%d">%s</text>
`, barsBegin-10, y+barHeight-2, html.EscapeString(b.name), class, barsBegin, y, width, barHeight, barsBegin+width+8, y+barHeight-2, html.EscapeString(b.text))
	}
	w.WriteString("</svg>\n")
	return w.Bytes()
}

// table returns the figures with ten users as a table in Markdown.
func table(r *podsecurity.Result) []byte {
	var w bytes.Buffer
	w.WriteString("| | added p50, p95, p99, max in ms | CPU-s per 1,000 | of the API server | ours/it | peak MiB | start s | MB |\n" +
		"|---|---|---|---|---|---|---|---|\n")
	for i := range r.Groups {
		g := &r.Groups[i]
		for j := 1; j < len(g.Peers); j++ {
			p := &g.Peers[j]
			c, none := cellsOf(g, p)
			if c == nil {
				why := "its figures do not count"
				if p.Down != "" {
					why = "was not up"
				}
				fmt.Fprintf(&w, "| %s | %s | | | | | | |\n", p.Name, why)
				continue
			}
			name, process, compared := p.Name, "| | ", ""
			if i > 0 && j == 1 {
				name += ", again"
			}
			if p.Peak > 0 {
				process = fmt.Sprintf("%.0f | %.2f | %.0f", p.Peak, quartiles(p.Starts).median, float64(p.Binary)/1e6)
			}
			if us := g.Peers[1].Cell(tenUsers); j > 1 && us.Counts() && p.Peak > 0 {
				compared = ratioText(us, c, none, webhookCPU)
			}
			fmt.Fprintf(&w, "| %s | %.1f, %.1f, %.1f, %.1f | %.2f | %.2f | %s | %s |\n", name,
				added(c, none, p50).median, added(c, none, p95).median, added(c, none, p99).median, added(c, none, slowest).median,
				median(c, webhookCPU), median(c, serverCPU), compared, process)
		}
	}
	return w.Bytes()
}

// documents returns the files that show a run, by their paths in the folder of the pages.
func documents(r *podsecurity.Result, page []byte) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, c := range charts {
		files[filepath.Join("images", c.file)] = c.svg(r)
	}
	before, rest, found := bytes.Cut(page, []byte(tableBegin))
	_, after, ends := bytes.Cut(rest, []byte(tableEnd))
	if !found || !ends {
		return nil, errors.New(pageFile + " lacks the comments between which the table stands")
	}
	files[pageFile] = bytes.Join([][]byte{before, []byte(tableBegin), table(r), []byte(tableEnd), after}, nil)
	return files, nil
}

// readDocuments returns what the files that show the published run must contain.
func readDocuments() (map[string][]byte, error) {
	text, err := os.ReadFile(figuresFile)
	if err != nil {
		return nil, err
	}
	var r podsecurity.Result
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", figuresFile, err)
	}
	page, err := os.ReadFile(filepath.Join(docsFolder, pageFile))
	if err != nil {
		return nil, err
	}
	return documents(&r, page)
}

// drawCharts writes the files that show the published run.
func drawCharts() error {
	files, err := readDocuments()
	if err != nil {
		return err
	}
	for path, text := range files {
		path = filepath.Join(docsFolder, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}
