package conformance_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// expected is the request that every hook must receive once a verb is played.
type expected struct {
	resource        schema.GroupVersionResource // with subresource
	operation       string
	namespace, name string
	object, old     bool
	options         string // their kind; "" where a request has none
	exempt          bool   // from admission: no webhook is called
}

// A witness compares the requests of hooks with the expected one.
type witness struct {
	e     *everyResource
	hooks []string

	mu       sync.Mutex
	expected expected
	faults   map[string][]string // by hook that was asked; empty where all was well
}

func (w *witness) expect(x expected) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expected, w.faults = x, map[string][]string{}
	w.e.warnings.take()
}

// saw notes a request that a hook got, if it is the expected one. It reports whether the request came from the spec at all.
func (w *witness) saw(hook string, req *admission.Request) bool {
	if req.UserInfo.Username != w.e.user {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.expected
	resource := x.resource
	if hook[len(hook)-len("exact"):] != "exact" {
		resource = w.e.first[x.resource]
	}
	got := schema.GroupVersionResource(req.Resource)
	if req.SubResource != "" {
		got.Resource += "/" + req.SubResource
	}
	if got != resource || string(req.Operation) != x.operation || req.Namespace != x.namespace || req.Name != x.name {
		return true
	}
	served := w.e.resources[resource]
	kind := schema.GroupVersionKind{Group: served.Group, Version: served.Version, Kind: served.Kind}
	faults := []string{}
	check := func(part string, raw []byte, wanted bool, kind schema.GroupVersionKind) {
		var meta metav1.TypeMeta
		switch present := len(raw) > 0 && string(raw) != "null"; {
		case present != wanted:
			faults = append(faults, fmt.Sprintf("%s present: %t", part, present))
		case present:
			if err := json.Unmarshal(raw, &meta); err != nil || meta.GroupVersionKind() != kind {
				faults = append(faults, fmt.Sprintf("%s is %s, not %s", part, meta.GroupVersionKind(), kind))
			}
		}
	}
	check("object", req.Object.Raw, x.object, kind)
	check("oldObject", req.OldObject.Raw, x.old, kind)
	check("options", req.Options.Raw, x.options != "", metav1.SchemeGroupVersion.WithKind(x.options))
	if got := schema.GroupVersionKind(req.Kind); got != kind {
		faults = append(faults, fmt.Sprintf("kind is %s, not %s", got, kind))
	}
	if sent := (schema.GroupVersionResource{Group: req.RequestResource.Group, Version: req.RequestResource.Version, Resource: join(req.RequestResource.Resource, req.RequestSubResource)}); sent != x.resource {
		faults = append(faults, fmt.Sprintf("requestResource is %s", sent))
	}
	w.faults[hook] = faults
	return true
}

func join(resource, sub string) string {
	if sub != "" {
		resource += "/" + sub
	}
	return resource
}

// verdict returns the differences between the hooks' requests and the expected one.
func (w *witness) verdict() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	warned := w.e.warnings.list()
	for _, hook := range w.hooks {
		faults, asked := w.faults[hook]
		switch {
		case w.expected.exempt && asked:
			return fmt.Errorf("%s was asked, though the resource is exempt", hook)
		case w.expected.exempt:
		case !asked:
			return fmt.Errorf("%s was not asked: %+v", hook, w.expected)
		case len(faults) > 0:
			return fmt.Errorf("%s: %v", hook, faults)
		case !slices.Contains(warned, hook):
			return fmt.Errorf("the warning of %s did not arrive: %v", hook, warned)
		}
	}
	return nil
}
