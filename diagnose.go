package eirinix

// This file diagnoses whether the API server can call the program.

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/go-logr/logr"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
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
	config.Others, config.ListsAll = true, true
	return diagnose.Run(ctx, config)
}

// diagnosis returns the configuration of a diagnosis of the running program, or of a program with these options if none
// runs.
func (m *ExtensionManager) diagnosis(ctx context.Context) (diagnose.Config, error) {
	if p := m.program.Load(); p != nil {
		return p.diagnosis(m.Addr().String()), nil
	}
	if err := m.Validate(); err != nil {
		return diagnose.Config{}, err
	}
	p, err := m.newProgram(nil, m.given().log())
	if err != nil {
		return diagnose.Config{}, err
	}
	unread := p.readModes(ctx)
	steps, err := m.given().resolveAll(p.modes, nil)
	if err != nil {
		return diagnose.Config{}, err
	}
	r, err := m.registration(steps, m.GetManagerOptions().webhookOptions(m.declaredPort()), p.modes)
	if err != nil {
		return diagnose.Config{}, err
	}
	p.newController(steps, r)
	config := p.diagnosis("")
	if unread != nil {
		config.Modes = func() (entries, problems []string) { return nil, []string{unread.Error()} }
	}
	if err := ctx.Err(); err != nil {
		return config, fmt.Errorf("eirinix: Diagnose: %w", context.Cause(ctx))
	}
	// This process can verify neither the certificate nor the identity of another process. The API server can.
	config.Verify = nil
	return config, nil
}

// warnOfOwnPod logs a warning if the program's own pod is sent to the program itself. That is the case if its namespace
// is not excluded as a whole and the pod lacks the label. A webhook that is down would then be called for the pod that
// is to restart it. Outside of a pod, or without the right to read it, there is no warning.
func (m *ExtensionManager) warnOfOwnPod(ctx context.Context, log logr.Logger) {
	own := podNamespace()
	name, unnamed := os.Hostname()
	_, clients, err := m.given().own()
	if own == "" || errors.Join(unnamed, err) != nil {
		return
	}
	if o := m.GetManagerOptions(); o.calledFor(own) && diagnose.Unmarked(ctx, clients, o.OperatorFingerprint, own, name) {
		log.Info("this program is called for its own pod, which can therefore not start while all replicas are down; set the label in the pod template, as manifests.Of does",
			"label", webhookconf.FingerprintLabel+"="+o.OperatorFingerprint, "pod", name)
	}
}

// calledFor reports whether steps that select no namespaces are called for the objects of a namespace.
func (o ManagerOptions) calledFor(namespace string) bool {
	if o.Namespace != "" {
		return o.Namespace == namespace
	}
	return !o.serviceMode() || o.WebhookNamespace != namespace
}
