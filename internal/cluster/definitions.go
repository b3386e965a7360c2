package cluster

// This file says when to try again what waits for the cluster, such as for a kind that it does not serve.

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/wait"
)

// firstAttempt is the delay before the first attempt. unnoticed and noticed bound the delays, before jitter: where nothing
// tells that the wait may be over, and where events do.
const firstAttempt, unnoticed, noticed = 100 * time.Millisecond, 4 * time.Second, 30 * time.Second

// Attempts says when to try again. What is waited for shows in events: objects are listed, or a definition changes. A kind is served a moment after the
// event of its definition, so the next attempts follow quickly. Where no event can tell, such as where the program may not
// watch definitions, attempts are at most 5 s apart.
type Attempts struct {
	config  *rest.Config
	log     logr.Logger
	run     func(func())
	hints   chan struct{}
	refused chan struct{} // is closed when definitions may not be watched; nil then, and before they are watched
	watches bool
	longest time.Duration
	delays  func() time.Duration
}

// NewAttempts returns Attempts that run their watch with run.
func NewAttempts(config *rest.Config, log logr.Logger, run func(func())) *Attempts {
	return &Attempts{config: config, log: log, run: run, hints: make(chan struct{}, 1), longest: unnoticed, delays: wait.Backoff(firstAttempt, unnoticed)}
}

// Hint says that the wait may be over.
func (a *Attempts) Hint() { wait.Signal(a.hints) }

// Await returns true when it is time for an attempt: while something waits, or when one of the channels receives. forKind is
// set if a kind is waited for. It returns false when ctx ends.
func (a *Attempts) Await(ctx context.Context, waits, forKind bool, one, other <-chan struct{}) bool {
	if forKind && !a.watches {
		a.watches, a.refused = true, make(chan struct{})
		a.restart(noticed)
		refused := a.refused
		a.run(func() {
			defer close(refused)
			if err := a.watchDefinitions(ctx); ctx.Err() == nil {
				a.log.V(1).Info("a kind that comes is noticed within seconds; grant list and watch on customresourcedefinitions to notice it at once", "reason", err.Error())
			}
		})
	}
	for {
		var again <-chan time.Time
		if waits {
			again = time.After(a.delays())
		}
		select {
		case <-again:
			return true
		case <-a.hints:
			if forKind {
				a.restart(a.longest) // many events in a row cause one attempt
			}
		case <-a.refused:
			a.refused = nil
			a.restart(unnoticed)
		case <-one:
			return true
		case <-other:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// watchDefinitions hints at each change of a CustomResourceDefinition, and once at first. It watches their metadata alone,
// until ctx ends, or the API server refuses the watch.
func (a *Attempts) watchDefinitions(ctx context.Context) error {
	c, err := metadata.NewForConfig(a.config)
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
		Take:    func(watch.EventType, client.Object) { a.Hint() },
		Begun:   a.Hint,
	}).Run(ctx)
	return fmt.Errorf("watching CustomResourceDefinitions: %w", err)
}

func (a *Attempts) restart(longest time.Duration) {
	a.longest, a.delays = longest, wait.Backoff(firstAttempt, longest)
}
