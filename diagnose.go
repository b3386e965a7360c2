package eirinix

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"

	"github.com/go-logr/logr"

	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/manifest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Report is what Diagnose has found, problems first. Err joins the problems, and String has a line for each finding.
type Report = diagnose.Report

// Finding is one sentence of a Report, with its remedy and a Code to look for. It is an error.
type Finding = diagnose.Finding

// Diagnose finds out whether the API server reaches this program, and why not. It has the API server call it for a
// ConfigMap that is created in a dry run, so that nothing is left of it, and looks at everything on the way: what is
// registered, certificate, Service, EndpointSlices, port. It changes nothing, takes some milliseconds where all is well
// and some seconds where something does not answer, and does with whatever rights there are: what it may not look at, it
// says.
//
// It may be called at any time: on a Manager that runs, or on one that is made for the purpose, with the options and
// extensions of another process, from a laptop. A Manager that runs calls it itself when it has become ready, and logs
// what it finds.
func (m *ExtensionManager) Diagnose(ctx context.Context) Report {
	config, err := m.diagnosis(ctx)
	if err != nil {
		return diagnose.Failed(prefixed(err))
	}
	config.Others = true
	return diagnose.Run(ctx, config)
}

// diagnosis is about the program that runs, or would.
func (m *ExtensionManager) diagnosis(ctx context.Context) (diagnose.Config, error) {
	if p := m.program.Load(); p != nil {
		return p.diagnosis(ctx, m.Addr().String()), nil
	}
	if err := m.Validate(); err != nil {
		return diagnose.Config{}, err
	}
	p, err := m.newProgram(nil, m.logr())
	if err != nil {
		return diagnose.Config{}, err
	}
	steps, err := m.resolveAll()
	if err != nil {
		return diagnose.Config{}, err
	}
	p.newController(steps, p.options(ctx, m.declaredPort(), false))
	config := p.diagnosis(ctx, "")
	if err := ctx.Err(); err != nil {
		return config, fmt.Errorf("eirinix: Diagnose: %w", context.Cause(ctx))
	}
	// This process can verify neither the certificate nor the identity of another one: the API server can.
	config.Verify = nil
	return config, nil
}

// newInstance is a name for this Manager, which tells those who look who has answered them.
func newInstance() string {
	host, _ := os.Hostname()
	return host + "/" + rand.Text()[:6]
}

// newCanary is the webhook that a diagnosis has the API server call.
func (m *ExtensionManager) newCanary(steps resolved) diagnose.Canary {
	return diagnose.Canary{
		Fingerprint: m.GetManagerOptions().OperatorFingerprint, Namespace: m.secretNamespace(), Prefix: m.pathPrefix(), Instance: m.instance,
		Validating: !slices.ContainsFunc(steps.entries, func(e webhookconf.Entry) bool { return !e.Validating }),
	}
}

// preflight asks which rights this process has, and logs the manifest that would grant what is missing: an operation that
// fails for lack of a right shows it. Programs that lack one may still do, with what stands in for it.
func (m *ExtensionManager) preflight(ctx context.Context, half manifest.Half, log logr.Logger) *diagnose.Preflight {
	clients, err := m.clients()
	if err != nil {
		return &diagnose.Preflight{} // reported by the caller that needs the clients
	}
	o, namespace := m.GetManagerOptions(), m.secretNamespace()
	o.Certificates = m.certificateSource()
	m.mu.Lock()
	definitions, watches := slices.Clone(m.steps), len(m.watchers) > 0
	m.mu.Unlock()
	var wanted []diagnose.Right
	for _, g := range o.rights(definitions, watches, namespace).Grants(half, namespace) {
		wanted = append(wanted, diagnose.RightsOf(g.Namespace, g.Rules)...)
	}
	p := diagnose.NewPreflight(ctx, clients, wanted)
	p.Log(ctx, clients, log, manifest.RoleName(o.OperatorFingerprint, half), diagnose.ServiceAccount(namespace, o.OperatorFingerprint))
	return p
}
