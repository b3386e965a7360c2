package eirinixtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"code.cloudfoundry.org/eirinix"
)

// callPatience bounds what an API server may take to notice what is registered.
const callPatience = 10 * time.Second

// managerPatience bounds what a slow machine may take to start a Manager, or to stop it.
const managerPatience = time.Minute

// StartManager runs a Manager for a test, and returns once a call of the API server has come through to it: from then
// on everything that its steps ask for is sent to them. When the test ends the Manager is stopped, and what it has
// registered is removed. A Manager that does not get there fails the test, with what stands in the way and how to mend it.
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
		return // it serves nothing
	}
	// An API server acts on a configuration some milliseconds after it took it.
	var report eirinix.Report
	_ = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, callPatience, true, func(context.Context) (bool, error) {
		report = m.Diagnose(ctx) // which the end of the poll must not cut short
		return report.Err() == nil, nil
	}) // what the last report says, counts
	if err := report.Err(); err != nil {
		t.Fatalf("eirinixtest: StartManager: the API server does not call the Manager: %v", err)
	}
}

// stopManager removes what was registered first, so that nothing is refused for want of a Manager.
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
