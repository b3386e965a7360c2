package load

// This file runs replicas.

import (
	"context"
	"errors"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix"
)

// Replica is a Manager that runs.
type Replica struct {
	*eirinix.ExtensionManager
	Name  string
	ended chan struct{}
	err   error
}

// Start runs a Manager until the spec ends, and waits until it is ready.
func Start(ctx context.Context, name string, m *eirinix.ExtensionManager) *Replica {
	GinkgoHelper()
	r := &Replica{ExtensionManager: m, Name: name, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = r.Run(context.WithoutCancel(ctx))
	}()
	DeferCleanup(r.Stop)
	Eventually(func() error {
		select {
		case <-r.Ready():
			return nil
		case <-r.ended:
			return StopTrying(fmt.Sprintf("Run returned before Ready: %v", r.err))
		default:
			return errors.New("not ready")
		}
	}).WithContext(ctx).WithTimeout(Patience).Should(Succeed(), name)
	return r
}

// ExpectEnd waits until replicas that were told to stop have ended cleanly.
func ExpectEnd(ctx context.Context, replicas ...*Replica) {
	GinkgoHelper()
	for _, r := range replicas {
		Eventually(r.ended).WithContext(ctx).WithTimeout(Patience).Should(BeClosed(), r.Name)
		Expect(r.err).NotTo(HaveOccurred(), r.Name)
	}
}
