package eirinix

// This file diagnoses whether the API server can call the program, and checks the program's rights.

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"

	"github.com/go-logr/logr"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/manifest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Report is the result of Diagnose: its Findings, problems first. Err joins the problems, Find returns the finding with a
// code, and String has one line for each finding.
type Report = diagnosis.Report

// Finding is one fact about the path from the API server to this program: its Code, Severity, Object, Message, Remedy
// and Evidence. It is an error. Package diagnosis lists the codes.
type Finding = diagnosis.Finding

// Diagnose checks whether the API server can call this program, and why not. It creates a ConfigMap in a dry run, for
// which the API server has to call the program; a dry run stores nothing. It also checks everything in between:
// registration, certificate, Service, EndpointSlices and port.
//
// Diagnose changes nothing. It takes some milliseconds if all is well, and some seconds if a component does not answer.
// It works with any set of rights, and reports the checks that it lacks the rights for.
//
// It can be called at any time, on a running Manager or on one made only for the diagnosis. The latter can have the
// options and extensions of another process and run on a laptop. A running Manager calls it itself once it is ready,
// and logs the findings.
func (m *ExtensionManager) Diagnose(ctx context.Context) Report {
	config, err := m.diagnosis(ctx)
	if err != nil {
		return diagnose.Failed(prefixed(err))
	}
	config.Others = true
	return diagnose.Run(ctx, config)
}

// diagnosis returns the configuration of a diagnosis of the running program, or of a program with these options if none
// runs.
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
	// This process can verify neither the certificate nor the identity of another process. The API server can.
	config.Verify = nil
	return config, nil
}

// newInstance returns a unique name for this Manager, which distinguishes its answer to a diagnosis from those of other
// replicas.
func newInstance() string {
	host, _ := os.Hostname()
	return host + "/" + rand.Text()[:6]
}

// newCanary returns the webhook that a diagnosis makes the API server call.
func (m *ExtensionManager) newCanary(steps resolved) diagnose.Canary {
	return diagnose.Canary{
		Fingerprint: m.GetManagerOptions().OperatorFingerprint, Namespace: m.secretNamespace(), Prefix: m.pathPrefix(), Instance: m.instance,
		Validating: !slices.ContainsFunc(steps.entries, func(e webhookconf.Entry) bool { return !e.Validating }),
	}
}

// preflight checks the rights of this process, and logs a manifest that grants the missing ones. A missing right is not
// an error here: the operation that needs it fails later, or falls back to one that does without.
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
	var wanted []diagnosis.Right
	for _, g := range o.rights(definitions, watches, namespace).Grants(half, namespace) {
		wanted = append(wanted, diagnose.RightsOf(g.Namespace, g.Rules)...)
	}
	p := diagnose.NewPreflight(ctx, clients, wanted)
	p.Log(ctx, clients, log, manifest.RoleName(o.OperatorFingerprint, half), diagnose.ServiceAccount(namespace, o.OperatorFingerprint))
	return p
}
