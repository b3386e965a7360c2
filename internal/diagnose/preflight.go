package diagnose

// This file asks the API server which rights the process has, and keeps the answers.

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// reviewsAtOnce bounds the number of access reviews in flight.
const reviewsAtOnce = 16

// Access is the API server's answer to a list of rights. The zero Access has no answers, and allows everything.
type Access struct {
	Granted []diagnosis.Right
	Missing []diagnosis.Right
	Unknown []diagnosis.Right // the rights without an answer
	Reason  error             // why a right is unknown; nil if none is
}

// Allows reports whether the right was requested and is granted, or whether the API server did not answer. A right to
// create has no name: RBAC cannot restrict it to one.
func (a Access) Allows(r diagnosis.Right) bool {
	has := func(rights []diagnosis.Right) bool {
		return slices.ContainsFunc(rights, func(o diagnosis.Right) bool { return reviewed(o) == reviewed(r) })
	}
	if len(a.Granted)+len(a.Missing)+len(a.Unknown) == 0 {
		return true
	}
	return !has(a.Missing) && (has(a.Granted) || has(a.Unknown))
}

// Err returns nil if no right is known to be missing. An unknown right is not an error: the program finds out when it
// tries.
func (a Access) Err() error {
	if len(a.Missing) == 0 {
		return nil
	}
	return &MissingError{Rights: a.Missing}
}

// MissingError lists the missing rights. Manifest returns the objects that grant them.
type MissingError struct{ Rights []diagnosis.Right }

func (e *MissingError) Error() string { return "these rights are missing: " + sentence(e.Rights) }

// Check asks the API server which of the rights the caller has. Duplicate rights are requested once. Every user can ask
// unless the cluster's administrator has forbidden it, in which case all rights are unknown. The error is the cause of
// ctx, if ctx has ended.
func Check(ctx context.Context, reviews authorizationv1client.SelfSubjectAccessReviewInterface, rights []diagnosis.Right) (Access, error) {
	answers := map[diagnosis.Right]*answer{}
	var group errgroup.Group
	group.SetLimit(reviewsAtOnce)
	for _, right := range rights {
		question := reviewed(right)
		if answers[question] != nil {
			continue
		}
		a := &answer{}
		answers[question] = a
		group.Go(func() error {
			*a = ask(ctx, reviews, question)
			return nil
		})
	}
	_ = group.Wait() // the functions return nil
	if ctx.Err() != nil {
		return Access{}, fmt.Errorf("asking for rights: %w", context.Cause(ctx))
	}
	var a Access
	seen := map[diagnosis.Right]bool{}
	for _, right := range rights {
		if seen[right] {
			continue
		}
		seen[right] = true
		switch answer := answers[reviewed(right)]; {
		case answer.err != nil:
			a.Unknown, a.Reason = append(a.Unknown, right), answer.err
		case answer.allowed:
			a.Granted = append(a.Granted, right)
		default:
			a.Missing = append(a.Missing, right)
		}
	}
	return a, nil
}

type answer struct {
	allowed bool
	err     error
}

func ask(ctx context.Context, reviews authorizationv1client.SelfSubjectAccessReviewInterface, r diagnosis.Right) answer {
	if ctx.Err() != nil {
		return answer{err: context.Cause(ctx)}
	}
	resource, subresource, _ := strings.Cut(r.Resource, "/")
	attributes := &authorizationv1.ResourceAttributes{
		Group: r.Group, Resource: resource, Subresource: subresource, Verb: r.Verb, Namespace: r.Namespace, Name: r.Name,
	}
	review, err := reviews.Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes},
	}, metav1.CreateOptions{})
	if err != nil {
		return answer{err: err}
	}
	// An evaluationError in a denial comes from the authorizer. The request itself would be denied too.
	return answer{allowed: review.Status.Allowed}
}

// Preflight holds the known rights of this process. The zero value knows none.
type Preflight struct {
	Grants string // the manifest that would grant the missing rights; empty if none is missing

	known  Access
	asked  []diagnosis.Right
	access func(context.Context, ...diagnosis.Right) (Access, error)
}

// NewPreflight asks for the wanted rights. Without an answer, no right is known to be missing.
func NewPreflight(ctx context.Context, clients cluster.Clients, wanted []diagnosis.Right) *Preflight {
	p := &Preflight{asked: wanted, access: func(ctx context.Context, rights ...diagnosis.Right) (Access, error) {
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
	return !slices.ContainsFunc(p.known.Missing, func(r diagnosis.Right) bool { return r.Resource == "events" })
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
func rightsOn(o client.Object) []diagnosis.Right {
	r := diagnosis.Right{Namespace: o.GetNamespace(), Name: o.GetName()}
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
	var all []diagnosis.Right
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
