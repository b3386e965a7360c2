package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"code.cloudfoundry.org/eirinix/bench/podsecurity"
)

// TestCharts expects the published charts and table to be those of the published figures.
func TestCharts(t *testing.T) {
	files, err := readDocuments()
	if err != nil {
		t.Fatal(err)
	}
	for path, expected := range files {
		text, err := os.ReadFile(filepath.Join(docsFolder, path))
		if err != nil || !bytes.Equal(text, expected) {
			t.Errorf("%s differs from %s; run make charts (%v)", path, figuresFile, err)
		}
		for decoder := xml.NewDecoder(bytes.NewReader(expected)); strings.HasSuffix(path, ".svg"); {
			if _, err := decoder.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Errorf("%s: %v", path, err)
				break
			}
		}
	}
}

// TestChartsShowNoFalseFigures expects no bar for a peer that was not up, or whose verdicts were wrong.
func TestChartsShowNoFalseFigures(t *testing.T) {
	cell := func(webhook float64, wrong int) []podsecurity.Cell {
		return []podsecurity.Cell{{Load: tenUsers, Wrong: wrong, Slices: []podsecurity.Slice{{Webhook: webhook, APIServer: 1}}}}
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
	for _, line := range []string{"| wrong | its figures do not count |", "| down | was not up |", "| right | 0.0, 0.0, 0.0, 0.0 | 5.00 | 1.00 | 0.400 (0.400-0.400) | 1 |"} {
		if text := string(table(r)); !strings.Contains(text, line) {
			t.Errorf("no line %q in:\n%s", line, text)
		}
	}
}
