package eirinix

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/manifest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Report is what Diagnose has found, problems first. Err joins the problems, and String has a line for each finding.
type Report = diagnose.Report

// Finding is one sentence of a Report, with its remedy and a Code to look for. It is an error.
type Finding = diagnose.Finding

const (
	// diagnoseFor is how long a start may take to come right, before what is wrong is logged: a Service has no endpoints
	// before the kubelet has seen that its pods are ready.
	diagnoseFor = 2 * time.Minute

	diagnoseEvery = 5 * time.Second
)

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
	return diagnose.Run(ctx, config)
}

// diagnosis is about what runs, or would.
func (m *ExtensionManager) diagnosis(ctx context.Context) (diagnose.Config, error) {
	m.mu.Lock()
	running := m.registration
	m.mu.Unlock()
	if running != nil {
		return running.diagnosis(m.Addr().String()), nil
	}
	if err := m.Validate(); err != nil {
		return diagnose.Config{}, err
	}
	log := m.logr()
	certs, err := m.newCertifier(log)
	if err != nil {
		return diagnose.Config{}, err
	}
	steps, err := m.resolveAll()
	if err != nil {
		return diagnose.Config{}, err
	}
	reg, err := m.newRegistration(certs, steps, m.declaredPort(), log)
	if err != nil {
		return diagnose.Config{}, err
	}
	config := reg.diagnosis("")
	if err := ctx.Err(); err != nil {
		return config, fmt.Errorf("eirinix: Diagnose: %w", context.Cause(ctx))
	}
	// What another process serves cannot be verified here, nor who it is: that is for the API server to say.
	config.Verify = nil
	return config, nil
}

// diagnosis is what a diagnosis of this registration is about. listen is where this process listens, if it does.
func (r *registration) diagnosis(listen string) diagnose.Config {
	return diagnose.Config{
		Clients: r.clients, Options: r.options, Entries: r.all(), Owner: r.certs.owner(), Canary: r.canary,
		Verify: r.certs.Verify, Listen: listen,
	}
}

// newInstance is a name for this Manager, which tells those who look who has answered them.
func newInstance() string {
	host, _ := os.Hostname()
	return host + "/" + rand.Text()[:6]
}

// newCanary is the webhook that a diagnosis has the API server call.
func (m *ExtensionManager) newCanary(steps []webhookconf.Step) diagnose.Canary {
	entries := webhookconf.Group(steps)
	text, _ := json.Marshal(setsOf(steps, entries)) // strings
	sum := sha256.Sum256(text)
	return diagnose.Canary{
		Fingerprint: m.GetManagerOptions().OperatorFingerprint, Namespace: m.secretNamespace(), Prefix: m.pathPrefix(),
		Instance: m.instance, Version: hex.EncodeToString(sum[:8]),
		Validating: !slices.ContainsFunc(entries, func(e webhookconf.Entry) bool { return !e.Validating }),
	}
}

// serveCanary answers the API server's call.
func serveCanary(handler *admit.Handler, canary diagnose.Canary) {
	entry := canary.Entry()
	handler.Serve(strings.TrimPrefix(entry.Path, canary.Prefix), admit.Chain{Validating: entry.Validating, Close: true, Steps: []admit.Step{{
		Name: diagnose.CanaryName, Ignore: true, Handle: canary.Answer,
	}}})
}

// diagnoseStart logs whether the API server calls this process, once that is clear.
func (r *registration) diagnoseStart(ctx context.Context, listen string) {
	report := diagnose.Await(ctx, r.diagnosis(listen), diagnoseFor, diagnoseEvery)
	if ctx.Err() != nil {
		return
	}
	if _, well := report.Find(diagnose.Well); well {
		r.log.Info("the API server calls this program")
	}
	report.Findings = slices.DeleteFunc(report.Findings, func(f Finding) bool {
		return f.Severity == diagnose.Note || f.Code == diagnose.CannotLook
	})
	report.Log(r.log)
}

// preflight asks which rights are missing, logs what would grant them, and gives that back: whoever fails for lack of one
// shows it. Programs that lack one may still do, with what stands in for it.
func (m *ExtensionManager) preflight(ctx context.Context, half manifest.Half, log logr.Logger) (grants string) {
	clients, err := m.clients()
	if err != nil {
		return "" // whoever needs them says so
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
	access, err := diagnose.Check(ctx, clients.AuthorizationV1().SelfSubjectAccessReviews(), wanted)
	if err != nil || access.Err() == nil {
		return ""
	}
	me := diagnose.WhoAmI(ctx, clients.AuthenticationV1().SelfSubjectReviews(), diagnose.ServiceAccount(namespace, o.OperatorFingerprint))
	grants, err = diagnose.Manifest(manifest.RoleName(o.OperatorFingerprint, half), me, access.Missing)
	if err != nil {
		return ""
	}
	log.Info("rights are missing; what needs them fails, or makes do without. The manifest grants them", "missing", access.Err().Error(), "manifest", grants)
	return grants
}

// withGrants adds what would help to an error that is for lack of a right.
func withGrants(err error, grants string) error {
	if grants == "" || !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%w\nGrant what is missing with kubectl apply -f - and this:\n%s", err, strings.TrimSpace(grants))
}
