package cluster

// This file watches for changes of the kinds that a cluster serves.

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/wait"
)

// WatchDefinitions calls changed after each change of a CustomResourceDefinition, and once at first. It watches their
// metadata alone, until ctx ends, when it returns nil, or the API server refuses the watch, when it returns the reason.
func WatchDefinitions(ctx context.Context, config *rest.Config, changed func()) error {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	delays := wait.Backoff(time.Second, 30*time.Second)
	for {
		began := time.Now()
		w, err := definitions.Watch(ctx, metav1.ListOptions{})
		switch {
		case apierrors.IsForbidden(err):
			return fmt.Errorf("watching CustomResourceDefinitions: %w", err)
		case err == nil:
			for range w.ResultChan() {
				changed()
			}
			w.Stop()
		}
		if time.Since(began) > time.Minute {
			delays = wait.Backoff(time.Second, 30*time.Second)
		}
		if wait.Sleep(ctx, delays()) != nil {
			return nil //nolint:nilerr // ctx has ended
		}
	}
}
