package podsecurity

// This file reads the objects of other projects: manifests in their modules, and charts that are rendered.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/bench/peers"
)

// peersFolder holds the modules of the peers. Programs of this module run in the folder above.
const peersFolder = "peers"

// crdTimeout bounds the wait until the API server serves the kinds of definitions.
const crdTimeout = 30 * time.Second

// decodeObjects reads objects in YAML, in their order.
func decodeObjects(text []byte) (all []*unstructured.Unstructured, err error) {
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}

// readObjects reads the objects of files.
func readObjects(pattern string) (all []*unstructured.Unstructured, err error) {
	files, err := filepath.Glob(pattern)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("there is no %s", pattern)
	}
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		objects, err := decodeObjects(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, objects...)
	}
	return all, nil
}

// renderChart returns the objects of a chart of kyverno's module.
func renderChart(ctx context.Context, name string, values any) ([]*unstructured.Unstructured, error) {
	program, err := peers.Path(peersFolder, peers.Charts)
	if err != nil {
		return nil, err
	}
	module, err := peers.ModuleDir(ctx, peersFolder, peers.Kyverno)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, filepath.Join(module, "charts", name), string(text))
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("rendering chart %s: %w: %s", name, err, strings.TrimSpace(said.String()))
	}
	return decodeObjects(out)
}

// ofKind returns the objects of a kind.
func ofKind(kind string, all []*unstructured.Unstructured) (found []*unstructured.Unstructured) {
	for _, o := range all {
		if o.GetKind() == kind {
			found = append(found, o)
		}
	}
	return found
}

// apply creates objects.
func (c *cluster) apply(ctx context.Context, all []*unstructured.Unstructured) error {
	for _, o := range all {
		if err := c.create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// applyDefinitions creates CustomResourceDefinitions and waits until their kinds are served.
func (c *cluster) applyDefinitions(ctx context.Context, all []*unstructured.Unstructured) error {
	if err := c.apply(ctx, all); err != nil {
		return err
	}
	for _, o := range all {
		if err := c.awaitDefinition(ctx, o.GetName()); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) awaitDefinition(ctx context.Context, name string) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, crdTimeout, true, func(ctx context.Context) (bool, error) {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion(apiextensionsv1.SchemeGroupVersion.String())
		o.SetKind("CustomResourceDefinition")
		if err := c.client.Get(ctx, keyOf(name), o); err != nil {
			return false, nil //nolint:nilerr // it is not there yet
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &crd); err != nil {
			return false, err
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("the API server does not serve %s: %w", name, err)
	}
	return nil
}

// inOrder returns the values of a map in the order of their keys.
func inOrder[T any](all map[string]T) (values []T) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		values = append(values, all[key])
	}
	return values
}

func keyOf(name string) client.ObjectKey { return client.ObjectKey{Name: name} }
