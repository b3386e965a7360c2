package diagnose

// This file asks the API server which rights the process has, and keeps the answers: for the manifest that grants the
// missing rights, and for the objects that the process can follow.

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Preflight holds the known rights of this process. The zero value knows none.
type Preflight struct {
	Grants string // the manifest that would grant the missing rights; empty if none is missing

	asked, denied []diagnosis.Right
	missing       []diagnosis.Right // those of denied that are wanted
	reviews       accessReviews
}

// NewPreflight asks for the wanted rights, and with them for those on the objects to follow, because a later question
// would delay the start. Without an answer, no right is known to be missing.
func NewPreflight(ctx context.Context, clients cluster.Clients, wanted []diagnosis.Right, follow ...client.Object) *Preflight {
	p := &Preflight{asked: slices.Clone(wanted), reviews: clients.AuthorizationV1().SelfSubjectAccessReviews()}
	for _, o := range follow {
		p.asked = append(p.asked, rightsOn(o)...)
	}
	p.denied, _ = Check(ctx, p.reviews, p.asked)
	for _, r := range p.denied {
		if slices.Contains(wanted, r) {
			p.missing = append(p.missing, r)
		}
	}
	return p
}

// Log logs the missing rights, with the manifest that grants them to this process, or to fallback if the identity of
// this process is unknown.
func (p *Preflight) Log(
	ctx context.Context, clients cluster.Clients, log logr.Logger, role string, fallback rbacv1.Subject,
) {
	if len(p.missing) == 0 {
		return
	}
	me := WhoAmI(ctx, clients.AuthenticationV1().SelfSubjectReviews(), fallback)
	var err error
	if p.Grants, err = Manifest(role, me, p.missing); err == nil {
		log.Info("rights are missing: operations that need them fail or use a fallback. The manifest grants them",
			"missing", sentence(p.missing), "manifest", p.Grants)
	}
}

// Events reports whether this process can create Events.
func (p *Preflight) Events() bool {
	return !slices.ContainsFunc(p.missing, func(r diagnosis.Right) bool { return r.Resource == "events" })
}

// WithGrants adds the manifest of the missing rights to an error that is due to a missing right.
func (p *Preflight) WithGrants(err error) error {
	if p.Grants == "" || !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%w\nGrant the missing rights with kubectl apply -f - and this manifest:\n%s",
		err, strings.TrimSpace(p.Grants))
}

// Followed returns the objects, each with a function that returns its rights: first from the answer at the start, then
// from a new request each time.
func (p *Preflight) Followed(objects ...client.Object) (all []cluster.Followed) {
	for _, o := range objects {
		rights := rightsOn(o)
		known := !slices.ContainsFunc(rights, func(r diagnosis.Right) bool { return !slices.Contains(p.asked, r) })
		all = append(all, cluster.Followed{Object: o, Access: func(ctx context.Context) (cluster.Access, error) {
			denied := p.denied
			if !known {
				var err error
				if denied, err = Check(ctx, p.reviews, rights); err != nil {
					return cluster.Access{}, err
				}
			}
			known = false
			has := func(i int) bool { return !slices.Contains(denied, rights[i]) }
			return cluster.Access{Get: has(0), Watch: has(1) && has(2)}, nil
		}})
	}
	return all
}

// rightsOn returns the rights to get, list and watch an object.
func rightsOn(o client.Object) (all []diagnosis.Right) {
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
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		r.Group, r.Resource = admissionregistrationv1.GroupName, webhookconf.Validating.Resource
	default:
		r.Group, r.Resource = webhookconf.CRDKind.Group, webhookconf.CRDResource
	}
	for _, r.Verb = range []string{"get", "list", "watch"} {
		all = append(all, r)
	}
	return all
}

// reviewsAtOnce bounds the number of access reviews in flight.
const reviewsAtOnce = 16

// accessReviews creates access reviews of the caller.
type accessReviews = authorizationv1client.SelfSubjectAccessReviewInterface

// Check returns the rights that the caller lacks, as the API server says. It asks for each right once. A right without
// an answer is not missing: the program finds out when it tries. Every user can ask unless the cluster's administrator
// has forbidden it. The error is the cause of ctx, if ctx has ended.
func Check(ctx context.Context, reviews accessReviews, rights []diagnosis.Right) ([]diagnosis.Right, error) {
	denied := map[diagnosis.Right]*bool{}
	var group errgroup.Group
	group.SetLimit(reviewsAtOnce)
	for _, right := range rights {
		question := reviewed(right)
		if denied[question] != nil {
			continue
		}
		answer := new(bool)
		denied[question] = answer
		group.Go(func() error {
			*answer = isDenied(ctx, reviews, question)
			return nil
		})
	}
	_ = group.Wait() // the functions return nil
	if ctx.Err() != nil {
		return nil, fmt.Errorf("asking for rights: %w", context.Cause(ctx))
	}
	var missing []diagnosis.Right
	for _, right := range rights {
		if *denied[reviewed(right)] && !slices.Contains(missing, right) {
			missing = append(missing, right)
		}
	}
	return missing, nil
}

func isDenied(ctx context.Context, reviews accessReviews, r diagnosis.Right) bool {
	resource, subresource, _ := strings.Cut(r.Resource, "/")
	review, err := reviews.Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: r.Group, Resource: resource, Subresource: subresource, Verb: r.Verb,
			Namespace: r.Namespace, Name: r.Name,
		}},
	}, metav1.CreateOptions{})
	// An evaluationError in a denial comes from the authorizer. The request itself would be denied too.
	return err == nil && !review.Status.Allowed
}

// WhoAmI asks the API server for the caller's identity, and returns it as the subject of a binding. If the API server
// does not answer, it returns the fallback instead of an error.
func WhoAmI(
	ctx context.Context, reviews authenticationv1client.SelfSubjectReviewInterface, fallback rbacv1.Subject,
) rbacv1.Subject {
	review, err := reviews.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username == "" {
		return fallback
	}
	return SubjectOf(review.Status.UserInfo.Username)
}
