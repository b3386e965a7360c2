package main

// This file checks that every peer does the job, and that charts and tables show the published figures alone.

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"code.cloudfoundry.org/eirinix/bench/podsecurity"
)

// TestPeers checks that every peer does the job on every review, without which its figures mean nothing.
func TestPeers(t *testing.T) {
	quiet()
	eachReview(t, func(t *testing.T, r *review) {
		for _, s := range []spec{{injection(), wanted, r}, {injection(), unwanted, r}, {smallSteps(chainLength), wanted, r}} {
			for _, p := range peers() {
				if s.selects == unwanted && p.name == nameFloor {
					continue // it does not look
				}
				if _, err := checkedCall(p, s); err != nil {
					t.Errorf("%s: %d steps, selecting %q: %v", p.name, len(s.steps), s.selects, err)
				}
			}
		}
	})
}

// TestConversions checks that every peer converts an object.
func TestConversions(t *testing.T) {
	quiet()
	job := newJob(2)
	rev, err := conversionOf(job)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(p peer) error {
		h, err := p.handler(spec{review: rev})
		if err != nil {
			return err
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, conversionPath, bytes.NewReader(rev.body))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
		return checkConversion(w.Body.Bytes(), rev.uid, job)
	}
	for _, p := range converters() {
		if err := ask(p); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}

// BenchmarkInjection is for benchstat, which can put the peers side by side (see README.md):
//
//	go test -run '^$' -bench Injection -count 10 . | tee new.txt
//	go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da -col /peer new.txt
func BenchmarkInjection(b *testing.B) {
	quiet()
	eachReview(b, func(b *testing.B, r *review) {
		for _, p := range peers() {
			bench1(b, p, "peer="+p.name, spec{injection(), wanted, r})
		}
	})
}

func bench1(b *testing.B, p peer, name string, s spec) {
	b.Run(name, func(b *testing.B) {
		c, err := checkedCall(p, s)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		b.SetBytes(int64(len(s.review.raw)))
		for b.Loop() {
			c.do()
		}
	})
}

// eachReview runs f for every captured review, in a sub-test or sub-benchmark of its own.
func eachReview[T interface {
	Fatal(args ...any)
	Run(name string, f func(T)) bool
}](t T, f func(T, *review),
) {
	for _, size := range sizes {
		r, err := loadReview(size)
		if err != nil {
			t.Fatal(err)
		}
		t.Run("pod="+size, func(t T) { f(t, r) })
	}
}

// TestSize holds the binary of a small program to its bound: one call can link the clients of all of Kubernetes.
func TestSize(t *testing.T) {
	var said strings.Builder
	r := &report{w: &said}
	if err := sectionSize(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if !r.summary() {
		t.Error(said.String())
	}
}

// TestCharts expects the published charts, table and dark pictures to be those of the published figures and pictures.
func TestCharts(t *testing.T) {
	files, err := readDocuments()
	if err != nil {
		t.Fatal(err)
	}
	for path, expected := range files {
		text, err := os.ReadFile(filepath.Join(docsFolder, path))
		if (err == nil) != (expected != nil) || !bytes.Equal(text, expected) {
			t.Errorf("%s is not what make charts makes (%v)", path, err)
		}
	}
}

// TestChartsShowNoFalseFigures expects no bar for a peer that was not up, or whose verdicts were wrong.
func TestChartsShowNoFalseFigures(t *testing.T) {
	cell := func(webhook float64, wrong int) []podsecurity.Cell {
		s := podsecurity.Slice{Webhook: webhook, APIServer: 1, Latency: same(webhook)}
		return []podsecurity.Cell{{Load: tenUsers, Wrong: wrong, Slices: []podsecurity.Slice{s}}}
	}
	r := &podsecurity.Result{Groups: []podsecurity.GroupResult{{Peers: []podsecurity.PeerResult{
		{Name: "no webhook", Cells: cell(0, 0)},
		{Name: podsecurity.Ours, Cells: cell(2, 0), Peak: 1},
		{Name: "right", Cells: cell(5, 0), Peak: 1},
		{Name: "wrong", Cells: cell(1, 3), Peak: 1},
		{Name: "down", Down: "no such file"},
	}}}}
	all := charts[0].bars(r)
	if len(all) != 3 || all[0].name != "no webhook" || all[1].name != podsecurity.Ours || all[2].text != "6 (2 x ours)" {
		t.Errorf("bars: %+v", all)
	}
	for _, line := range []string{"| wrong | its figures do not count |", "| down | was not up |", "| right | 5.0, 5.0, 5.0, 5.0 | 5.00 | 1.00 | 0.400 (0.400-0.400) | 1 |"} {
		if text := string(table(r)); !strings.Contains(text, line) {
			t.Errorf("no line %q in:\n%s", line, text)
		}
	}
}

func same(l float64) podsecurity.Latency { return podsecurity.Latency{P50: l, P95: l, P99: l, Max: l} }

// latencies returns a peer whose rounds have these latencies at all percentiles.
func latencies(name string, rounds ...float64) podsecurity.PeerResult {
	c := podsecurity.Cell{Load: tenUsers}
	for _, l := range rounds {
		c.Slices = append(c.Slices, podsecurity.Slice{Latency: same(l)})
	}
	return podsecurity.PeerResult{Name: name, Cells: []podsecurity.Cell{c}}
}

// TestNoiseIsNotPublished expects no chart and no cell of the table to show an added latency that is noise.
func TestNoiseIsNotPublished(t *testing.T) {
	steady := []float64{10, 10, 10, 10, 10}
	lower := latencies("peer", 14, 14, 14, 14, 14)
	for i := range lower.Cells[0].Slices {
		lower.Cells[0].Slices[i].P99 = 13 // below p95
		lower.Cells[0].Slices[i].Max = 13.5
	}
	for name, c := range map[string]struct {
		without []float64
		peer    podsecurity.PeerResult
		cell    string
		charts  []string
	}{
		"a clear figure":             {steady, latencies("peer", 14, 14, 14, 14, 14), "4.0, 4.0, 4.0, 4.0", []string{"podsecurity-latency.svg", "podsecurity-tail.svg"}},
		"less than without":          {steady, latencies("peer", 8, 8, 8, 8, 8), "–, –, –, –", nil},
		"nothing in a quarter":       {steady, latencies("peer", 9, 9, 14, 14, 14), "–, –, –, –", nil},
		"less than the spread":       {[]float64{10, 10, 10, 15, 15}, latencies("peer", 14, 14, 14, 19, 19), "–, –, –, –", nil},
		"less than the one below it": {steady, lower, "4.0, 4.0, –, –", []string{"podsecurity-latency.svg"}},
	} {
		t.Run(name, func(t *testing.T) {
			us := latencies(podsecurity.Ours, 110, 110, 110, 110, 110)
			r := &podsecurity.Result{Groups: []podsecurity.GroupResult{{Peers: []podsecurity.PeerResult{latencies("no webhook", c.without...), us, c.peer}}}}
			if text := string(table(r)); !strings.Contains(text, "| peer | "+c.cell+" |") {
				t.Errorf("no cell %q in:\n%s", c.cell, text)
			}
			files, err := documents(r, []byte(figuresBegin+figuresEnd))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{"podsecurity-latency.svg", "podsecurity-tail.svg"} {
				drawn, path := slices.Contains(c.charts, file), filepath.Join(imagesFolder, file)
				if (files[path] != nil) != drawn || (files[darkTwin(path)] != nil) != drawn || bytes.Contains(files[pageFile], []byte(path)) != drawn {
					t.Errorf("%s: drawn is not %t", file, drawn)
				}
			}
		})
	}
}

// TestPictures expects each picture to be shown by a page, with its twin and a description, and to use the palette alone.
func TestPictures(t *testing.T) {
	var shown []string
	picture := regexp.MustCompile(`(?s)<picture>\n  <source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">\n  <img alt="([^"]{20,})" src="([^"]+)">\n</picture>`)
	pages, err := filepath.Glob(filepath.Join(docsFolder, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, filepath.Join(docsFolder, "..", "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		all := picture.FindAllSubmatch(text, -1)
		if n := bytes.Count(text, []byte(".svg")); n != 2*len(all) {
			t.Errorf("%s names %d files of pictures, and shows %d pictures with their twins", page, n, len(all))
		}
		for _, found := range all {
			if path := string(found[3]); string(found[1]) != darkTwin(path) {
				t.Errorf("%s: the twin of %s is not %s", page, path, found[1])
			} else {
				path = filepath.Join(filepath.Dir(page), path)
				shown = append(shown, path, darkTwin(path))
			}
		}
	}
	paths, err := filepath.Glob(filepath.Join(docsFolder, imagesFolder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if slices.Sort(shown); !slices.Equal(slices.Compact(shown), paths) {
		t.Errorf("pages show %q, and there are %q", shown, paths)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := xml.Unmarshal(text, new(struct{})); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if !regexp.MustCompile(`(?s)^<svg [^>]*>\n<title>[^<]+</title>\n<desc>[^<]+</desc>\n`).Match(text) {
			t.Errorf("%s has no title and description", path)
		}
		for _, colour := range regexp.MustCompile(`#[0-9A-Fa-f]{3,8}\b`).FindAllString(string(text), -1) {
			if i := slices.Index(palette, colour); i < 0 || (i%2 == 1) != strings.HasSuffix(path, twinEnds) {
				t.Errorf("%s: %s is no colour of the palette for it", path, colour)
			}
		}
	}
}
