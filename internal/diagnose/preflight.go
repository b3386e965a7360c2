package diagnose

// This file asks the API server which rights the caller has.

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// reviewsAtOnce bounds the number of access reviews in flight.
const reviewsAtOnce = 16

// Access is the API server's answer to a list of rights. The zero Access has no answers, and allows everything.
type Access struct {
	Granted []Right
	Missing []Right
	Unknown []Right // the rights without an answer
	Reason  error   // why a right is unknown; nil if none is
}

// Allows reports whether the right was requested and is granted, or whether the API server did not answer. A right to
// create has no name: RBAC cannot restrict it to one.
func (a Access) Allows(r Right) bool {
	has := func(rights []Right) bool {
		return slices.ContainsFunc(rights, func(o Right) bool { return o.reviewed() == r.reviewed() })
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
type MissingError struct{ Rights []Right }

func (e *MissingError) Error() string { return "these rights are missing: " + sentence(e.Rights) }

// Check asks the API server which of the rights the caller has. Duplicate rights are requested once. Every user can ask
// unless the cluster's administrator has forbidden it, in which case all rights are unknown. The error is the cause of
// ctx, if ctx has ended.
func Check(ctx context.Context, reviews authorizationv1client.SelfSubjectAccessReviewInterface, rights []Right) (Access, error) {
	answers := map[Right]*answer{}
	var group errgroup.Group
	group.SetLimit(reviewsAtOnce)
	for _, right := range rights {
		question := right.reviewed()
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
	seen := map[Right]bool{}
	for _, right := range rights {
		if seen[right] {
			continue
		}
		seen[right] = true
		switch answer := answers[right.reviewed()]; {
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

func ask(ctx context.Context, reviews authorizationv1client.SelfSubjectAccessReviewInterface, r Right) answer {
	if ctx.Err() != nil {
		return answer{err: context.Cause(ctx)}
	}
	attributes := &authorizationv1.ResourceAttributes{
		Group: r.Group, Resource: r.Resource, Subresource: r.Subresource, Verb: r.Verb, Namespace: r.Namespace, Name: r.Name,
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
