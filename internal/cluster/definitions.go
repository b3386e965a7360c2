package cluster

// This file watches for changes of the kinds that a cluster serves.

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WatchDefinitions calls changed after each change of a CustomResourceDefinition, and once at first. It watches their
// metadata alone, until ctx ends, when it returns nil, or the API server refuses the watch, when it returns the reason.
func WatchDefinitions(ctx context.Context, config *rest.Config, changed func()) error {
	c, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	definitions := c.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	err = (&Follower{
		List: func(ctx context.Context, o metav1.ListOptions) (client.ObjectList, error) {
			return definitions.List(ctx, o)
		},
		Watch:   definitions.Watch,
		Restart: func() {},
		Take:    func(watch.EventType, client.Object) { changed() },
		Begun:   changed,
	}).Run(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it is why Run has returned
	}
	return fmt.Errorf("watching CustomResourceDefinitions: %w", err)
}
