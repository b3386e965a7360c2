package eirinixtest

// This file runs a Manager for the duration of a test.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"code.cloudfoundry.org/eirinix"
)

// callPatience bounds the time that an API server takes to notice a registration.
const callPatience = 10 * time.Second

// managerPatience bounds the time that a slow machine takes to start a Manager, or to stop it.
const managerPatience = time.Minute

// StartManager runs a Manager for a test. It returns once the API server has called the Manager successfully. From
// then on, the API server sends the Manager every request that matches its steps. When the test ends, the Manager is
// stopped and its registrations are removed. If the API server does not reach the Manager, the test fails with the
// obstacle and its remedy.
//
//	cluster := eirinixtest.StartControlPlane(t)
//	m := eirinix.NewManager(eirinix.ManagerOptions{
//		RestConfig: cluster.Config(), Namespace: "default", Host: "127.0.0.1", ListenAddress: "127.0.0.1:0",
//	})
//	m.AddExtension(&MyExtension{})
//	eirinixtest.StartManager(t, m)
func StartManager(t TB, m *eirinix.ExtensionManager) {
	t.Helper()
	ran := make(chan error, 1)
	go func() { ran <- m.Run(context.Background()) }()
	t.Cleanup(func() { stopManager(t, m, ran) })

	ctx, cancel := context.WithTimeout(context.Background(), managerPatience)
	defer cancel()
	select {
	case <-m.Ready():
	case err := <-ran:
		ran <- err
		t.Fatalf("eirinixtest: StartManager: Run returned before the Manager was ready: %v", err)
		return
	case <-ctx.Done():
		t.Fatalf("eirinixtest: StartManager: not ready after %s; %v", managerPatience, m.Diagnose(context.Background()))
		return
	}
	if len(m.ListWatchers())+len(m.ListReconcilers()) > 0 && m.Addr() == nil {
		return // it has no webhooks
	}
	// An API server acts on a configuration some milliseconds after accepting it.
	var report eirinix.Report
	_ = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, callPatience, true, func(context.Context) (bool, error) {
		report = m.Diagnose(ctx) // with the outer context, so that the end of the poll does not cut it short
		return report.Err() == nil, nil
	}) // the last report decides
	if err := report.Err(); err != nil {
		t.Fatalf("eirinixtest: StartManager: the API server does not call the Manager: %v", err)
	}
}

// stopManager unregisters before it stops the Manager, so that no request is refused because the Manager is gone.
func stopManager(t TB, m *eirinix.ExtensionManager, ran chan error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), managerPatience)
	defer cancel()
	err := m.Unregister(ctx)
	m.Stop()
	select {
	case ended := <-ran:
		err = errors.Join(err, ended)
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("it did not stop within %s", managerPatience))
	}
	if err != nil {
		t.Logf("eirinixtest: StartManager: %v", err)
	}
}
