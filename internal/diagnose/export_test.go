package diagnose

import (
	"context"
	"slices"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/version"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/rights"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// The inside, for the specs.
var (
	Classify = classify
	Grants   = grants
)

// Blamed is the result of parseFailure.
func Blamed(text string) (webhook string, denied bool, reason string, ok bool) {
	f, ok := parseFailure(text)
	return f.webhook, f.denied, f.reason, ok
}

// BrokenPath is the finding about a call that failed for that reason.
func BrokenPath(ctx context.Context, c Config, reason string) diagnosis.Finding {
	return newDiagnostic(c).brokenPath(ctx, classify(reason), reason)
}

// Propagates is true of a problem that may pass by itself.
func Propagates(c diagnosis.Code, service bool) bool {
	return newDiagnostic(calledBy(service)).propagates(c)
}

// calledBy returns the configuration of a program that is called through a Service or by a URL.
func calledBy(service bool) (c Config) {
	if service {
		c.Options.Target.Service = "hooks"
	}
	return c
}

// Look is a look of a watch.
type Look struct {
	Findings       []diagnosis.Finding
	Slowly         []diagnosis.Finding // those that are known before the API server has answered
	Through, Blind bool
	Service        bool
}

// WatchWith watches with looks of the spec's own. It returns how many configurations they had.
func WatchWith(ctx context.Context, log logr.Logger, look func() Look) (configurations int) {
	watch(ctx, func() Config { configurations++; return Config{} }, log, func(_ context.Context, d *diagnostic) {
		l := look()
		d.Config = calledBy(l.Service)
		if d.findings = l.Slowly; l.Slowly != nil {
			d.slow()
		}
		d.findings, d.through, d.blind, d.inconclusive = l.Findings, l.Through, l.Blind, "spec"
	})
	return configurations
}

// OfVersions are the findings about these versions.
func OfVersions(versions ...VersionInfo) []diagnosis.Finding {
	d := newDiagnostic(Config{Versions: func() []VersionInfo { return versions }})
	d.checkVersions()
	return d.findings
}

// Granting returns grants of these rights and no others.
func Granting(wanted ...diagnosis.Right) (all []rights.Grant) {
	for _, r := range wanted {
		i := slices.IndexFunc(all, func(g rights.Grant) bool { return g.Namespace == r.Namespace })
		if i < 0 {
			i, all = len(all), append(all, rights.Grant{Namespace: r.Namespace})
		}
		rule := rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: []string{r.Verb}}
		if name := reviewed(r).Name; name != "" {
			rule.ResourceNames = []string{name}
		}
		all[i].Rules = append(all[i].Rules, rule)
		all[i].Rights = append(all[i].Rights, reviewed(r))
	}
	return all
}

// Compared returns the findings about the entry of a configuration that differs from the wanted one. waits is true while
// another version is registered.
func Compared(c Config, live admissionregistrationv1.MutatingWebhook, wanted webhookconf.Entry, waits bool) []diagnosis.Finding {
	d := newDiagnostic(c)
	d.waits = waits
	k := configuration{webhookconf.Mutating, webhookconf.Mutating.ConfigurationName(c.Options.Fingerprint)}
	d.compareEntry(hook{configuration: k, MutatingWebhook: live}, wanted)
	return d.findings
}

// Old is true of an API server that is too old.
func Old(major, minor string) bool { return old(version.Info{Major: major, Minor: minor}) }

// Fold folds the findings of a diagnosis.
func Fold(c Config, findings []diagnosis.Finding) []diagnosis.Finding {
	d := &diagnostic{Config: c, findings: findings}
	d.mergeSymptoms()
	return d.findings
}

// JudgePorts returns the findings of a failed call with these ports behind the Service, and the port that had to be open.
func JudgePorts(c Config, service *corev1.Service, slices []discoveryv1.EndpointSlice, symptom diagnosis.Finding) (findings []diagnosis.Finding, open int32) {
	d := &diagnostic{Config: c, backend: backend{service: *service}, findings: []diagnosis.Finding{symptom}}
	d.backend.follow(c.Options.Target.Port, slices)
	d.judgePorts()
	return d.findings[1:], d.openPort()
}

// Held returns the findings about objects that a webhook and a conversion hold while no call comes through.
func Held(c Config, through bool, live admissionregistrationv1.MutatingWebhook, converting ...string) []diagnosis.Finding {
	d := newDiagnostic(c)
	d.through, d.converting = through, converting
	d.add(problem(diagnosis.ConnectionRefused, "", "down", ""))
	d.live["/"] = hook{configuration: configuration{webhookconf.Mutating, "x"}, MutatingWebhook: live}
	d.checkHolding()
	return d.findings[1:]
}
