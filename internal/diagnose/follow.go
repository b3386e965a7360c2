package diagnose

// This file keeps the known rights of a process: which objects it can follow, and the manifest that would grant the
// missing rights.

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Preflight holds the known rights of this process. The zero value knows none.
type Preflight struct {
	Grants string // the manifest that would grant the missing rights; empty if none is missing

	known  Access
	asked  []Right
	access func(context.Context, ...Right) (Access, error)
}

// NewPreflight asks for the wanted rights. Without an answer, no right is known to be missing.
func NewPreflight(ctx context.Context, clients cluster.Clients, wanted []Right) *Preflight {
	p := &Preflight{asked: wanted, access: func(ctx context.Context, rights ...Right) (Access, error) {
		return Check(ctx, clients.AuthorizationV1().SelfSubjectAccessReviews(), rights)
	}}
	p.known, _ = p.access(ctx, wanted...)
	return p
}

// Log logs the missing rights, with the manifest that grants them to this process, or to fallback if the identity of
// this process is unknown.
func (p *Preflight) Log(ctx context.Context, clients cluster.Clients, log logr.Logger, role string, fallback rbacv1.Subject) {
	err := p.known.Err()
	if err == nil {
		return
	}
	me := WhoAmI(ctx, clients.AuthenticationV1().SelfSubjectReviews(), fallback)
	if p.Grants, err = Manifest(role, me, p.known.Missing); err == nil {
		log.Info("rights are missing; what needs them fails, or makes do without. The manifest grants them", "missing", p.known.Err().Error(), "manifest", p.Grants)
	}
}

// Events reports whether this process can create Events.
func (p *Preflight) Events() bool {
	return !slices.ContainsFunc(p.known.Missing, func(r Right) bool { return r.Resource == "events" })
}

// Followed returns the objects, each with a function that returns its rights: first from the answer at the start, then
// from a new request each time.
func (p *Preflight) Followed(objects ...client.Object) (all []cluster.Followed) {
	for _, o := range objects {
		rights, first := rightsOn(o), true
		all = append(all, cluster.Followed{Object: o, Access: func(ctx context.Context) (cluster.Access, error) {
			known := p.known
			if !first || !slices.Contains(p.asked, rights[0]) || !slices.Contains(p.asked, rights[2]) {
				var err error
				if known, err = p.access(ctx, rights...); err != nil {
					return cluster.Access{}, err
				}
			}
			first = false
			return cluster.Access{Get: known.Allows(rights[0]), Watch: known.Allows(rights[1]) && known.Allows(rights[2])}, nil
		}})
	}
	return all
}

// rightsOn returns the rights to get, list and watch an object.
func rightsOn(o client.Object) []Right {
	r := Right{Namespace: o.GetNamespace(), Name: o.GetName()}
	switch o.(type) {
	case *coordinationv1.Lease:
		r.Group, r.Resource = coordinationv1.GroupName, "leases"
	case *corev1.Secret:
		r.Resource = "secrets"
	case *corev1.ConfigMap:
		r.Resource = "configmaps"
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		r.Group, r.Resource = admissionregistrationv1.GroupName, webhookconf.Mutating.Resource
	default:
		r.Group, r.Resource = admissionregistrationv1.GroupName, webhookconf.Validating.Resource
	}
	var all []Right
	for _, verb := range []string{"get", "list", "watch"} {
		r.Verb = verb
		all = append(all, r)
	}
	return all
}

// WithGrants adds the manifest of the missing rights to an error that is due to a missing right.
func (p *Preflight) WithGrants(err error) error {
	if p.Grants == "" || !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%w\nGrant what is missing with kubectl apply -f - and this:\n%s", err, strings.TrimSpace(p.Grants))
}
