package main

// This file draws the figures of section podsecurity as charts and as a table, for docs/performance.md.
//
// A figure that is inside the noise of the run is not published: the table has a dash for it, and a chart with such a figure
// is left out.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io/fs"
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

// The comments in the page between which the charts and the table stand.
const (
	figuresBegin = "<!-- make charts writes these. -->\n"
	figuresEnd   = "<!-- End. -->\n"
)

// bar is a line of a chart: a figure, and how it compares with the bar of ours in the same group.
type bar struct {
	group int
	name  string
	ours  bool
	value float64
	text  string
}

// amount is a figure of a peer. A noisy one cannot be told from the spread of the run.
type amount struct {
	value float64
	noisy bool
}

// chart is a chart with horizontal bars from zero. A peer without the figure has no bar.
type chart struct {
	file, title, unit string
	of                func(g *podsecurity.GroupResult, p *podsecurity.PeerResult) (figure amount, ok bool)
}

var charts = []chart{
	{"podsecurity-cpu.svg", "CPU of API server and webhook for 1,000 creations of a pod", "CPU-s", totalCPU},
	{"podsecurity-latency.svg", "Latency that is added to a creation, median, with 10 users", "ms", latencyAt(0)},
	{"podsecurity-tail.svg", "Latency that is added at the 99th percentile, with 10 users", "ms", latencyAt(2)},
	{"podsecurity-memory.svg", "Peak memory of the webhook", "MiB", peakOf},
}

// cellsOf returns the figures of a peer and of the API server without a webhook, if they count.
func cellsOf(g *podsecurity.GroupResult, p *podsecurity.PeerResult) (c, none *podsecurity.Cell) {
	c, none = p.Cell(tenUsers), g.Peers[0].Cell(tenUsers)
	if c == nil || none == nil || c == none || !c.Counts() || !none.Counts() {
		return nil, nil
	}
	return c, none
}

func totalCPU(_ *podsecurity.GroupResult, p *podsecurity.PeerResult) (amount, bool) {
	c := p.Cell(tenUsers)
	if c == nil || !c.Counts() {
		return amount{}, false
	}
	return amount{value: median(c, func(s podsecurity.Slice) float64 { return s.Webhook + s.APIServer })}, true
}

func peakOf(_ *podsecurity.GroupResult, p *podsecurity.PeerResult) (amount, bool) {
	return amount{value: p.Peak}, p.Peak > 0
}

// latencyAt returns the figure of a chart: the latency that is added at one of the percentiles.
func latencyAt(percentile int) func(*podsecurity.GroupResult, *podsecurity.PeerResult) (amount, bool) {
	return func(g *podsecurity.GroupResult, p *podsecurity.PeerResult) (amount, bool) {
		c, none := cellsOf(g, p)
		if c == nil {
			return amount{}, false
		}
		return addedLatency(c, none)[percentile], true
	}
}

// percentiles are the figures of latency that are published, each at least as large as the one before.
var percentiles = [...]figure{p50, p95, p99, slowest}

// addedLatency returns the latency that a webhook adds at each percentile. An amount is noisy if one of these holds:
//   - In a quarter of the rounds, nothing was added.
//   - It is no larger than the spread between the quartiles of the same figure without a webhook.
//   - It is smaller than that of a lower percentile.
func addedLatency(c, none *podsecurity.Cell) (all [len(percentiles)]amount) {
	lower := 0.0
	for i, of := range percentiles {
		more, without := added(c, none, of), quartiles(each(none, of))
		all[i] = amount{more.median, more.low <= 0 || more.median <= without.high-without.low || more.median < lower}
		if !all[i].noisy {
			lower = more.median
		}
	}
	return all
}

// bars returns the bars of a chart, or none if one of its figures is noisy. A group that compares nothing has none.
func (c chart) bars(r *podsecurity.Result) (all []bar) {
	groups := 0
	for i := range r.Groups {
		g := &r.Groups[i]
		us, counts := c.of(g, &g.Peers[1])
		var group []bar
		for j := range g.Peers {
			p := &g.Peers[j]
			figure, ok := c.of(g, p)
			if figure.noisy {
				return nil
			}
			if !ok {
				continue
			}
			b := bar{groups, p.Name, strings.HasPrefix(p.Name, podsecurity.Ours), figure.value, fmt.Sprintf("%.3g", figure.value)}
			if j > 1 && counts && us.value > 0 {
				b.text += fmt.Sprintf(" (%.2g x ours)", figure.value/us.value)
			}
			group = append(group, b)
		}
		if len(group) > 1 {
			all = append(all, group...)
			groups++
		}
	}
	return all
}

// Sizes of a chart in pixels.
const (
	chartWidth, barsBegin, barsWidth          = 760, 270, 340
	rowHeight, barHeight, headHeight, between = 24, 15, 60, 10
)

// svg draws a chart for a light page.
func (c chart) svg(all []bar) []byte {
	largest, described := 0.0, make([]string, 0, len(all))
	for _, b := range all {
		largest = max(largest, b.value)
		described = append(described, b.name+": "+b.text)
	}
	var w bytes.Buffer
	height := headHeight + rowHeight*len(all) + between*all[len(all)-1].group + 10
	title := html.EscapeString(c.title + " (" + c.unit + ")")
	fmt.Fprintf(&w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">
<title>%s</title>
<desc>%s</desc>
<style>
text { font: 13px sans-serif; fill: #1f2328 } .title { font-weight: 600 } .note { font-size: 12px; fill: #59636e } rect { fill: #8c959f } .ours { fill: #0969da }
</style>
<text class="title" x="10" y="20">%s</text>
<text class="note" x="10" y="40">Peers of a group ran in turns. "x ours" compares a bar with that of ours in its group.</text>
`, chartWidth, height, chartWidth, height, title, html.EscapeString(strings.Join(described, "; ")), title)
	for i, b := range all {
		y := headHeight + rowHeight*i + between*b.group
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
			fmt.Fprintf(&w, "| %s | %s | %.2f | %.2f | %s | %s |\n", name,
				latencyText(addedLatency(c, none)), median(c, webhookCPU), median(c, serverCPU), compared, process)
		}
	}
	return w.Bytes()
}

// latencyText prints the latency that is added, with a dash for an amount that is noisy.
func latencyText(all [len(percentiles)]amount) string {
	text := make([]string, len(all))
	for i, a := range all {
		if text[i] = fmt.Sprintf("%.1f", a.value); a.noisy {
			text[i] = "–"
		}
	}
	return strings.Join(text, ", ")
}

// documents returns the files that show a run, by their paths in the folder of the pages. A file without text must not exist.
func documents(r *podsecurity.Result, page []byte) (map[string][]byte, error) {
	files := map[string][]byte{}
	var shown bytes.Buffer
	for _, c := range charts {
		path := filepath.Join(imagesFolder, c.file)
		files[path], files[darkTwin(path)] = nil, nil
		if all := c.bars(r); len(all) > 0 {
			files[path] = c.svg(all)
			files[darkTwin(path)] = darkened(files[path])
			shown.WriteString(pictureText(path, c.title) + "\n")
		}
	}
	before, rest, found := bytes.Cut(page, []byte(figuresBegin))
	_, after, ends := bytes.Cut(rest, []byte(figuresEnd))
	if !found || !ends {
		return nil, errors.New(pageFile + " lacks the comments between which its figures stand")
	}
	files[pageFile] = bytes.Join([][]byte{before, []byte(figuresBegin), shown.Bytes(), table(r), []byte(figuresEnd), after}, nil)
	return files, nil
}

// readDocuments returns the text of the files that show the published run, and of the dark twins of all other pictures.
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
	files, err := documents(&r, page)
	if err != nil {
		return nil, err
	}
	return files, addTwins(files)
}

// drawCharts writes the files that show the published run, and the dark twins of all pictures.
func drawCharts() error {
	files, err := readDocuments()
	if err != nil {
		return err
	}
	for path, text := range files {
		path = filepath.Join(docsFolder, path)
		if text == nil {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}
