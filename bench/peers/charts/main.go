// Program charts renders a Helm chart and prints its objects as YAML. Its arguments are the folder of the chart and the
// values, as one object in JSON.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: charts <folder> <values in JSON>")
	}
	if err := render(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func render(folder, text string) error {
	var given map[string]any
	if err := json.Unmarshal([]byte(text), &given); err != nil {
		return fmt.Errorf("the values: %w", err)
	}
	chart, err := loader.Load(folder)
	if err != nil {
		return err
	}
	values, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: "bench", Namespace: "kyverno"}, chartutil.DefaultCapabilities)
	if err != nil {
		return err
	}
	files, err := engine.Render(chart, values)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.TrimSpace(files[name]) != "" && path.Ext(name) == ".yaml" {
			fmt.Printf("---\n# %s\n%s\n", name, files[name])
		}
	}
	return nil
}
