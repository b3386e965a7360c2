package audit

// This file knows the labels of namespaces, which namespaceSelectors select by.

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"code.cloudfoundry.org/eirinix/internal/decode"
)

var namespaceResource = resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces")}

// namespaces knows the labels of namespaces. It lists them when the first of them is needed.
type namespaces struct {
	lister *lister
	listed bool
	failed error // of the list
	known  map[string]labelling
}

type labelling struct {
	labels labels.Set
	err    error
}

// newNamespaces returns the namespaces of an audit. only is the one that it is limited to, which is not listed.
func newNamespaces(l *lister, only string) *namespaces {
	return &namespaces{lister: l, listed: only != "", known: map[string]labelling{}}
}

// of returns the labels of a namespace. One that is not in the list, such as a younger one, is requested once.
func (n *namespaces) of(ctx context.Context, name string) (labels.Set, error) {
	if !n.listed {
		n.listed = true
		n.failed = n.lister.list(ctx, namespaceResource.path(""), acceptLabels, func(_ context.Context, i *item) error {
			n.known[i.head.Metadata.Name] = labelling{labels: i.head.Metadata.Labels}
			return nil
		}, nil)
	}
	if n.failed != nil {
		return nil, n.failed
	}
	if _, ok := n.known[name]; !ok {
		found, err := n.get(ctx, name)
		n.known[name] = labelling{found, err}
	}
	return n.known[name].labels, n.known[name].err
}

func (n *namespaces) get(ctx context.Context, name string) (labels.Set, error) {
	var found head
	err := n.lister.request(ctx, "the namespace "+name, func(limited context.Context) error {
		text, err := n.lister.client.Get().AbsPath(namespaceResource.path(""), name).
			SetHeader("Accept", acceptObjects).MaxRetries(0).DoRaw(limited)
		if bad := decode.Into(text, &found); err == nil && bad != nil {
			return &unreadableError{bad}
		}
		return err
	})
	return found.Metadata.Labels, err
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
