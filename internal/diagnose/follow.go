package diagnose

// This file keeps what is known of a process's rights: which objects it may follow, and the manifest that would grant
// those that are missing.

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

// Preflight is what is known of the rights of this process. The zero value knows nothing.
type Preflight struct {
	Grants string // the manifest that would grant those that are missing; empty when none is

	known  Access
	asked  []Right
	access func(context.Context, ...Right) (Access, error)
}

// NewPreflight asks for the rights that are wanted. Where that is not answered, nothing is known to be missing.
func NewPreflight(ctx context.Context, clients cluster.Clients, wanted []Right) *Preflight {
	p := &Preflight{asked: wanted, access: func(ctx context.Context, rights ...Right) (Access, error) {
		return Check(ctx, clients.AuthorizationV1().SelfSubjectAccessReviews(), rights)
	}}
	p.known, _ = p.access(ctx, wanted...)
	return p
}

// Log logs which rights are missing, with the manifest that grants them to this process, or to fallback where it cannot be
// known who that is.
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

// Events reports whether Events may be left.
func (p *Preflight) Events() bool {
	return !slices.ContainsFunc(p.known.Missing, func(r Right) bool { return r.Resource == "events" })
}

// Followed says of each object what may be done with it: at first as was asked at the start, and then asked anew.
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

// rightsOn are those to get, list and watch an object.
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

// WithGrants adds the manifest that would help to an error that is for lack of a right.
func (p *Preflight) WithGrants(err error) error {
	if p.Grants == "" || !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%w\nGrant what is missing with kubectl apply -f - and this:\n%s", err, strings.TrimSpace(p.Grants))
}
