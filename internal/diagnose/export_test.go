package diagnose

import (
	"context"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/rights"
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

// WatchWith watches with looks of the spec's own.
func WatchWith(ctx context.Context, log logr.Logger, look func() Look) {
	watch(ctx, Config{}, log, func(_ context.Context, d *diagnostic) {
		l := look()
		d.Config = calledBy(l.Service)
		if d.findings = l.Slowly; l.Slowly != nil {
			d.slow()
		}
		d.findings, d.through, d.blind, d.inconclusive = l.Findings, l.Through, l.Blind, "spec"
	})
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

// RightsOf returns the rights that the rules of a grant hold.
func RightsOf(g rights.Grant) (all []diagnosis.Right) {
	for _, rule := range g.Rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						all = append(all, diagnosis.Right{
							Group: group, Resource: resource, Verb: verb, Namespace: g.Namespace, Name: name,
						})
					}
				}
			}
		}
	}
	return all
}

// Objects returns roles with these rights and their bindings.
func Objects(name string, subject rbacv1.Subject, wanted []diagnosis.Right) (objects []client.Object) {
	backwards := func(a, b rights.Grant) int { return strings.Compare(b.Namespace, a.Namespace) } // the ClusterRole comes last
	for _, g := range slices.SortedFunc(slices.Values(Granting(wanted...)), backwards) {
		objects = append(objects, rights.Bind(metav1.ObjectMeta{Namespace: g.Namespace, Name: name}, subject, g.Rules)...)
	}
	return objects
}

// Manifest returns Objects as YAML.
func Manifest(name string, subject rbacv1.Subject, wanted []diagnosis.Right) (string, error) {
	return rights.YAML(Objects(name, subject, wanted)), nil
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
