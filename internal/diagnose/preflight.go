package diagnose

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// reviewsAtOnce bounds how many rights are asked for at the same time.
const reviewsAtOnce = 4

// Access is what the API server says of a list of rights.
type Access struct {
	Missing []Right
	Unknown []Right // what the API server would not tell
	Reason  error   // why something is unknown; nil when nothing is
}

// Err is nil when nothing is known to be missing. What is unknown is no error: the program finds out when it tries.
func (a Access) Err() error {
	if len(a.Missing) == 0 {
		return nil
	}
	return &MissingError{Rights: a.Missing}
}

// MissingError says which rights are missing. Manifest makes the objects that grant them.
type MissingError struct{ Rights []Right }

func (e *MissingError) Error() string { return "these rights are missing: " + sentence(e.Rights) }

// Check asks the API server which of the rights the caller has. Every user may ask that unless the cluster's
// administrator has decided otherwise; then everything is unknown. The error is the cause of ctx, if it has ended.
func Check(ctx context.Context, reviews authorizationv1client.SelfSubjectAccessReviewInterface, rights []Right) (Access, error) {
	answers := make([]answer, len(rights))
	var group errgroup.Group
	group.SetLimit(reviewsAtOnce)
	for i, right := range rights {
		group.Go(func() error {
			answers[i] = ask(ctx, reviews, right)
			return nil
		})
	}
	_ = group.Wait() // of functions that return nil
	if ctx.Err() != nil {
		return Access{}, fmt.Errorf("asking for rights: %w", context.Cause(ctx))
	}
	var a Access
	for i, answer := range answers {
		switch {
		case answer.err != nil:
			a.Unknown, a.Reason = append(a.Unknown, rights[i]), answer.err
		case !answer.allowed:
			a.Missing = append(a.Missing, rights[i])
		}
	}
	return a, nil
}

type answer struct {
	allowed bool
	err     error
}

func ask(ctx context.Context, reviews authorizationv1client.SelfSubjectAccessReviewInterface, r Right) answer {
	if ctx.Err() != nil {
		return answer{err: context.Cause(ctx)}
	}
	attributes := &authorizationv1.ResourceAttributes{
		Group: r.Group, Resource: r.Resource, Subresource: r.Subresource, Verb: r.Verb, Namespace: r.Namespace,
	}
	if r.byName() {
		attributes.Name = r.Name
	}
	review, err := reviews.Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes},
	}, metav1.CreateOptions{})
	if err != nil {
		return answer{err: err}
	}
	// An evaluationError with a refusal is what the authorizer stumbled over on the way; the request would be refused too.
	return answer{allowed: review.Status.Allowed}
}
