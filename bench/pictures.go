package main

// This file makes the twin of each picture in docs/images that GitHub shows on a dark page. A picture is drawn for a light
// page. Its twin has the same text, with the colours of the palette replaced.

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
)

const (
	imagesFolder = "images"
	pictureEnds  = ".svg"
	twinEnds     = "-dark.svg"
)

// palette has the colours of pictures: for a light page, and for a dark one.
var palette = []string{
	"#1f2328", "#e6edf3", // text
	"#59636e", "#9198a1", // notes and arrows
	"#8c959f", "#656c76", // bars and borders
	"#f6f8fa", "#161b22", // boxes
	"#0969da", "#4493f8", // blue: the program
	"#ddf4ff", "#0c2d4d",
	"#1a7f37", "#3fb950", // green: the objects in the cluster
	"#dafbe1", "#12301c",
	"#9a6700", "#d29922", // yellow: the API server
	"#fff8c5", "#33270b",
	"#d1242f", "#f85149", // red: refusals
	"#ffebe9", "#3c1618",
}

// darkTwin returns the path of the twin of a picture.
func darkTwin(path string) string { return strings.TrimSuffix(path, pictureEnds) + twinEnds }

// darkened returns the text of the twin of a picture.
func darkened(picture []byte) []byte {
	return []byte(strings.NewReplacer(palette...).Replace(string(picture)))
}

// pictureText shows a picture and its twin in a page. GitHub chooses one by the theme that the reader has chosen.
func pictureText(path, alt string) string {
	return fmt.Sprintf(`<picture>
  <source media="(prefers-color-scheme: dark)" srcset="%s">
  <img alt="%s" src="%s">
</picture>
`, darkTwin(path), html.EscapeString(alt), path)
}

// addTwins adds the twins of those pictures that are not among the files yet.
func addTwins(files map[string][]byte) error {
	paths, err := filepath.Glob(filepath.Join(docsFolder, imagesFolder, "*"+pictureEnds))
	if err != nil {
		return err
	}
	for _, path := range paths {
		name := filepath.Join(imagesFolder, filepath.Base(path))
		if _, known := files[name]; known || strings.HasSuffix(name, twinEnds) {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files[darkTwin(name)] = darkened(text)
	}
	return nil
}
