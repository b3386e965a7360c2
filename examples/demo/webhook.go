package main

// This file runs the Manager of the demo.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/examples/hello/greeting"
)

// readyTimeout bounds the start, which normally takes less than a second.
const readyTimeout = 30 * time.Second

// webhook is the running Manager.
type webhook struct {
	manager *eirinix.ExtensionManager
	url     string
	ended   chan error // holds the result of Run
}

// startWebhook starts the Manager, and returns once the API server sends pods to the extension. After an error nothing
// is left behind.
func startWebhook(ctx context.Context, c *cluster, logs *logs, out printer) (_ *webhook, err error) {
	start := time.Now()
	w := &webhook{ended: make(chan error, 1)}
	// A real program needs only this. The rest is for the demo.
	w.manager = eirinix.NewManager(eirinix.ManagerOptions{
		Namespace:           c.namespace,
		Host:                c.address.host,
		ListenAddress:       c.address.listen,
		RestConfig:          c.config,
		OperatorFingerprint: c.namespace, // so that several demos can run in one cluster
		UnregisterOnStop:    true,
		Logger:              logs.logger,
	})
	if err := w.manager.AddExtension(greeting.Extension{}); err != nil {
		return nil, err
	}
	// Not ctx: after an interrupt the Manager must still be able to unregister.
	go func() { w.ended <- w.manager.Run(context.WithoutCancel(ctx)) }()
	defer func() {
		if err != nil {
			err = errors.Join(err, w.stop())
		}
	}()

	select {
	case <-w.manager.Ready():
	case err := <-w.ended:
		w.ended <- nil // for stop, which must not return the error again
		return nil, errors.Join(err, errors.New("the Manager ended before it was ready"))
	case <-time.After(readyTimeout):
		return nil, fmt.Errorf("the Manager was not ready after %s", readyTimeout)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ready := time.Since(start)
	if w.url, err = registeredURL(ctx, c); err != nil {
		return nil, err
	}
	if err := c.awaitMutation(ctx); err != nil {
		return nil, w.explain(err)
	}
	out.fact("webhook", "%s (%s)", w.url, c.address.why)
	out.fact("", "certificates made, registered and ready in %s; the API server calls it after %s", round(ready), round(time.Since(start)))
	return w, nil
}

// awaitMutation waits until the API server sends pods to the webhook. The API server observes a registration only a
// moment after it has stored it.
func (c *cluster) awaitMutation(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("pods were still not mutated after %s", readyTimeout))
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, pollEvery/5, true, func(ctx context.Context) (bool, error) {
		pod, err := c.createPod(ctx, podName, dryRun)
		return err == nil && mutated(pod) == nil, err
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// explain adds a remedy to an error that means that the API server cannot reach the webhook.
func (w *webhook) explain(err error) error {
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "failed calling webhook") {
		return err
	}
	return fmt.Errorf("the API server does not reach this program at %s; give -host the name or IP address of this machine as the API server "+
		"sees it (one that runs in a container sees another 127.0.0.1), and let the port through the firewall: %w", w.url, err)
}

// stop ends the Manager, which first removes the webhook configuration.
func (w *webhook) stop() error {
	w.manager.Stop()
	return <-w.ended
}
