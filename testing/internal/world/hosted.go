package world

// This file is programs with a controller-runtime manager of their own, which the library is a part of: it is started and stopped
// with that. In others a step asks for the manager that the library makes.

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr/funcr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"code.cloudfoundry.org/eirinix"
)

// hosted reports whether the program has such a manager.
func (p Plan) hosted() bool { return p.Seed%16 == 10 && !p.Converts }

// managed reports whether a step of the program asks for the manager that the library makes.
func (p Plan) managed() bool { return p.Seed%16 == 14 }

// runs returns an error unless the manager of the library runs, if a step asks for it.
func (r release) runs(c *eirinix.Call) error {
	if !r.managed || c.DryRun != nil && *c.DryRun { // an audit
		return nil
	}
	mgr := c.Manager.GetKubeManager()
	if mgr == nil {
		return errors.New("there is no manager")
	}
	select {
	case <-mgr.Elected():
		return nil
	default:
		return errors.New("the manager does not run")
	}
}

// hosts gives the options of a replica a manager of its own, with which it runs.
func (p *process) hosts(o *eirinix.ManagerOptions) {
	if !p.w.plan.hosted() {
		return
	}
	mgr, err := manager.New(p.wire.config(), manager.Options{
		Scheme: clientgoscheme.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", Logger: funcr.New(func(_, text string) { p.w.tell(p, "its manager says: %s", text) }, funcr.Options{}),
		GracefulShutdownTimeout: new(forEver),
	})
	if err != nil {
		p.w.violate("%s has no manager: %v", p, err)
		return
	}
	o.KubeManager, o.RestConfig = mgr, nil
	p.runs = mgr.Start
}

// forEver is how long such a manager waits for its parts.
const forEver = time.Duration(-1)

// run runs the replica until ctx ends.
func (p *process) run(ctx context.Context) error {
	if p.runs != nil {
		return p.runs(ctx)
	}
	return p.manager.Run(ctx)
}
