package audit

// This file knows the labels of namespaces, which namespaceSelectors select by.

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

var namespaceResource = resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces")}

// namespaces holds the labels of namespaces. Without the right to list them, it knows only their names.
type namespaces struct {
	lister    *lister
	needed    bool // a step selects by other labels than the name
	forbidden bool
	labels    map[string]labels.Set
}

// load lists the namespaces, or gets the only one that matters.
func (n *namespaces) load(ctx context.Context, only string) error {
	n.labels = map[string]labels.Set{}
	if !n.needed {
		return nil
	}
	var err error
	if only != "" {
		_, err = n.get(ctx, only)
	} else {
		err = n.lister.list(ctx, namespaceResource.path(""), acceptLabels, func(_ context.Context, i *item) error {
			n.labels[i.head.Metadata.Name] = i.head.Metadata.Labels
			return nil
		}, nil)
	}
	if apierrors.IsForbidden(err) {
		n.forbidden, err = true, nil
	}
	return err
}

// of returns the labels of a namespace. One that is younger than the list is requested.
func (n *namespaces) of(ctx context.Context, name string) (labels.Set, error) {
	if known, ok := n.labels[name]; ok {
		return known, nil
	}
	if n.needed && !n.forbidden {
		found, err := n.get(ctx, name)
		if err == nil || !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			return found, err
		}
	}
	n.labels[name] = labels.Set{corev1.LabelMetadataName: name}
	return n.labels[name], nil
}

func (n *namespaces) get(ctx context.Context, name string) (labels.Set, error) {
	patient, cancel := context.WithTimeout(ctx, n.lister.patience)
	defer cancel()
	var text []byte
	err := wait.Retry(patient, n.lister.log, "the namespace "+name, func(context.Context) error {
		if err := n.lister.rate.Wait(ctx); err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, n.lister.pageTime)
		defer cancel()
		var err error
		text, err = n.lister.client.Get().AbsPath(namespaceResource.path(""), name).
			SetHeader("Accept", acceptObjects).MaxRetries(0).DoRaw(limited)
		return err
	})
	if err != nil {
		return nil, err
	}
	var found head
	if err := decode.Into(text, &found); err != nil {
		return nil, &unreadableError{err}
	}
	n.labels[name] = found.Metadata.Labels
	return n.labels[name], nil
}

// otherLabels returns the labels by which a selector selects namespaces, except their name, in order.
func otherLabels(s labels.Selector) (keys []string) {
	requirements, _ := s.Requirements()
	for _, r := range requirements {
		if r.Key() != corev1.LabelMetadataName {
			keys = append(keys, r.Key())
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// groupResource returns the name of a resource with its group, as kubectl writes it.
func groupResource(r schema.GroupVersionResource) string { return r.GroupResource().String() }
