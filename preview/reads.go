package preview

// This file gives steps the objects that they declare in Settings.Reads, and finds declarations without objects.

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
	"code.cloudfoundry.org/eirinix/internal/reads"
	"code.cloudfoundry.org/eirinix/internal/snapshots"
	"code.cloudfoundry.org/eirinix/offline"
)

// existing returns the objects in the cluster.
func (c *cluster) existing(context.Context) ([]client.Object, error) {
	stored := c.api.Objects()
	all := make([]client.Object, len(stored))
	for i, o := range stored {
		all[i] = o
	}
	return all, nil
}

// declared is a declaration of a step.
type declared struct {
	reads.Declaration
	now         bool // there are such objects while the current object is admitted
	ran, filled bool // the step ran, and there were such objects
}

// emptyRead is a declaration of a step that ran while there was never such an object.
type emptyRead struct {
	Step string `json:"step"`
	Read string `json:"read"` // as it stands in the program
}

func declaredBy(played *offline.Program) (map[string][]*declared, error) {
	all := map[string][]*declared{}
	for step, of := range played.Reads {
		for _, r := range of {
			kind, err := apiutil.GVKForObject(r.Object, played.Scheme)
			if err != nil {
				return nil, fmt.Errorf("step %s: %w", step, err)
			}
			selected, err := reads.SelectorOf(r.Labels)
			if err != nil {
				return nil, fmt.Errorf("step %s: %w", step, err)
			}
			all[step] = append(all[step], &declared{Declaration: reads.Declaration{
				Object: r.Object, Kind: kind, Namespaces: r.Namespaces, Labels: selected, Fields: r.Fields,
			}})
		}
	}
	return all, nil
}

// look notes the declarations for which there are objects, before an object is admitted.
func (c *cluster) look() {
	objects := c.api.Objects()
	for _, of := range c.reads {
		for _, d := range of {
			d.now = slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return snapshots.Selects(d.Declaration, o) })
		}
	}
}

// looked adds the steps that ran.
func (c *cluster) looked(o *apiserver.Outcome) {
	for _, run := range o.Steps {
		for _, d := range c.reads[run.Step] {
			d.ran, d.filled = true, d.filled || d.now
		}
	}
}

// empty returns the declarations of steps that ran, for which there was never an object.
func (c *cluster) empty() (all []emptyRead) {
	for _, step := range slices.Sorted(maps.Keys(c.reads)) {
		for _, d := range c.reads[step] {
			if d.ran && !d.filled {
				all = append(all, emptyRead{step, d.String()})
			}
		}
	}
	return all
}
