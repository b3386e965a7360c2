// Package webhook turns the defaulters and validators that kubebuilder scaffolds into steps of the library. It is the
// only package that a project gains when it moves; the functions with the rules stay as they are.
package webhook

import (
	"context"
	"errors"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
)

// Defaulting returns the step of a defaulter.
func Defaulting[T client.Object](d admission.Defaulter[T], s eirinix.Settings) eirinix.Mutation[T] {
	return eirinix.Mutation[T]{Settings: s, Apply: func(ctx context.Context, c *eirinix.Call, obj T) error {
		return refusal(d.Default(with(ctx, c), obj))
	}}
}

// Judging returns the step of a validator whose ValidateCreate and ValidateUpdate judge the new object alike: ValidateCreate
// becomes the Rule, so that an object that is older than the rule can still be edited elsewhere. It is not called for DELETE.
func Judging[T client.Object](v admission.Validator[T], s eirinix.Settings) eirinix.Validation[T] {
	return eirinix.Validation[T]{Settings: s, Rule: func(ctx context.Context, c *eirinix.Call, obj T) error {
		warnings, err := v.ValidateCreate(with(ctx, c), obj)
		return answer(c, warnings, err)
	}}
}

// Validating returns the step of any other validator. Without Operations and Rules it is called for CREATE and UPDATE, as
// kubebuilder scaffolds its marker, and not for DELETE.
func Validating[T client.Object](v admission.Validator[T], s eirinix.Settings) eirinix.Validation[T] {
	if len(s.Operations) == 0 && len(s.Rules) == 0 {
		s.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
	}
	return eirinix.Validation[T]{
		Settings: s,
		Create: func(ctx context.Context, c *eirinix.Call, obj T) error {
			warnings, err := v.ValidateCreate(with(ctx, c), obj)
			return answer(c, warnings, err)
		},
		Update: func(ctx context.Context, c *eirinix.Call, oldObj, newObj T) error {
			warnings, err := v.ValidateUpdate(with(ctx, c), oldObj, newObj)
			return answer(c, warnings, err)
		},
		Delete: func(ctx context.Context, c *eirinix.Call, obj T) error {
			warnings, err := v.ValidateDelete(with(ctx, c), obj)
			return answer(c, warnings, err)
		},
	}
}

// with returns a context in which admission.RequestFromContext finds the request.
func with(ctx context.Context, c *eirinix.Call) context.Context {
	return admission.NewContextWithRequest(ctx, c.Request)
}

func answer(c *eirinix.Call, warnings admission.Warnings, err error) error {
	for _, w := range warnings {
		c.Warn("%s", w)
	}
	return refusal(err)
}

// refusal makes a plain error refuse the object, as controller-runtime does. The library would take it for a failure,
// about which failurePolicy decides. It knows an API status about the object, and the end of ctx, by itself.
func refusal(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	return eirinix.Deny("%s", err)
}
