package rotation_test

// This file holds watches of shops, which resume as clients do, and see every event.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// follower watches the shops in v2 through one API server. When a watch ends, it resumes from the last resourceVersion.
// It lists anew where that is too old, as a reflector does. Any other end is a failure, and so is an event that is lost,
// that comes twice, or whose shop is not complete.
type follower struct {
	traffic *traffic
	server  int
	version string // of the last event, for the API server
	again   bool   // it lists anew

	mu     sync.Mutex
	seen   map[string]int64 // by shop: the last write
	gone   map[string]int64 // by shop that was deleted: the last write
	events int
	ended  int // watches that ended without an error
	lists  int // lists after the first
}

func (f *follower) run(ctx context.Context) {
	f.seen, f.gone, f.again = map[string]int64{}, map[string]int64{}, true
	pace := time.NewTicker(every)
	defer pace.Stop()
	for first := true; ctx.Err() == nil; first = false {
		if f.again {
			if err := f.list(ctx, first); err != nil {
				f.fail(ctx, err)
			}
		}
		if !f.again {
			f.follow(ctx)
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
		}
	}
}

func (f *follower) fail(ctx context.Context, err error) {
	if ctx.Err() == nil {
		f.traffic.failed(fmt.Sprintf("%s, watch through API server %d: %v", time.Now().Format("15:04:05.000"), f.server, err))
	}
}

// list begins anew.
func (f *follower) list(ctx context.Context, first bool) error {
	all, err := f.traffic.shops.at(f.server, asked).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := map[string]int64{}
	for i := range all.Items {
		n, err := f.traffic.shops.complete(&all.Items[i], asked)
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		name := all.Items[i].GetName()
		if n < f.seen[name] || n < f.gone[name] {
			return fmt.Errorf("list: %s is of write %d, after %d", name, n, max(f.seen[name], f.gone[name]))
		}
		seen[name] = n
	}
	if !first {
		f.lists++
	}
	f.seen, f.gone, f.version, f.again = seen, map[string]int64{}, all.GetResourceVersion(), false
	return nil
}

// follow watches until the end of one watch.
func (f *follower) follow(ctx context.Context) {
	w, err := f.traffic.shops.at(f.server, asked).Watch(ctx, metav1.ListOptions{ResourceVersion: f.version, AllowWatchBookmarks: true})
	if err != nil {
		f.end(ctx, err)
		return
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			f.end(ctx, apierrors.FromObject(event.Object))
			return
		}
		if err := f.note(event); err != nil {
			f.fail(ctx, err)
			f.again = true
			return
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended++
}

// end handles a watch that did not begin, or that an error ended.
func (f *follower) end(ctx context.Context, err error) {
	f.again = true
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		f.fail(ctx, err)
	}
}

// note takes an event.
func (f *follower) note(event watch.Event) error {
	o, ok := event.Object.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("an event holds a %T", event.Object)
	}
	if f.version = o.GetResourceVersion(); event.Type == watch.Bookmark {
		return nil
	}
	n, err := f.traffic.shops.complete(o, asked)
	if err != nil {
		return fmt.Errorf("%s: %w", event.Type, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events++
	name := o.GetName()
	last, exists := f.seen[name]
	expected := last + 1
	switch {
	case event.Type == watch.Added && !exists:
		if last, known := f.gone[name]; known {
			expected = last + 1
		} else {
			expected = n // it was missing in the list
		}
	case event.Type == watch.Modified && exists:
	case event.Type == watch.Deleted && exists:
		expected = last
	default:
		return fmt.Errorf("%s of %s, after write %d (it existed: %t)", event.Type, name, last, exists)
	}
	if n != expected {
		return fmt.Errorf("%s of %s shows write %d instead of %d", event.Type, name, n, expected)
	}
	if event.Type == watch.Deleted {
		delete(f.seen, name)
		f.gone[name] = n
		return nil
	}
	f.seen[name] = n
	return nil
}

// shows returns the last write of each shop that exists.
func (f *follower) shows() map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.seen)
}

// mirror is the store of a reflector of client-go, in v2. It notes how often the reflector listed.
type mirror struct {
	cache.Store
	traffic *traffic

	mu       sync.Mutex
	replaced int
}

// Replace implements cache.Store.
func (m *mirror) Replace(all []any, version string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replaced++
	return m.Store.Replace(all, version)
}

// lists is how often the reflector listed after the first time.
func (m *mirror) lists() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.replaced - 1
}

// run reflects through one API server.
func (m *mirror) run(ctx context.Context, server int) {
	m.Store = cache.NewStore(cache.MetaNamespaceKeyFunc)
	client := m.traffic.shops.at(server, asked)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, o)
		},
	}
	cache.NewReflector(cache.ToListWatcherWithWatchListSemantics(source, client), &unstructured.Unstructured{}, m, 0).RunWithContext(ctx)
}

// shows returns the last write of each shop in the store.
func (m *mirror) shows() (map[string]int64, error) {
	shown := map[string]int64{}
	var problems []error
	for _, o := range m.List() {
		shop := o.(*unstructured.Unstructured)
		n, err := m.traffic.shops.complete(shop, asked)
		if err != nil {
			problems = append(problems, err)
		}
		shown[shop.GetName()] = n
	}
	return shown, errors.Join(problems...)
}
