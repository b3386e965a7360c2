// Package conditions compiles the matchConditions of webhooks with the API server's own code. That code adds 7 MB to a
// program's memory and 7 MB to its binary, so only packages that play the API server's part import it. The others
// register their conditions unchecked, and the API server refuses those that do not compile.
package conditions

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// variables are the variables of webhooks: object, oldObject, request, namespaceObject and the authorizer.
var variables = plugincel.OptionalVariableDeclarations{HasAuthorizer: true}

// environments returns the CEL environments. Their version is that of the library minus one, as in an API server,
// because an upgrade may have to be undone that far. Creating them takes some milliseconds, so they are only created
// for webhooks that have conditions. The function is safe for concurrent use.
var environments = sync.OnceValue(func() *environment.EnvSet {
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
})

// compiler returns the API server's own compiler.
var compiler = sync.OnceValue(func() plugincel.Compiler { return plugincel.NewCompiler(environments()) })

// Check returns the reasons for which an API server would refuse to register these conditions, if they are new to it.
// The error joins one error per fault. Each of them names the webhook and the remedy, and holds a *field.Error.
// webhookconf.Check checks the names and the number of conditions.
func Check(webhook string, conditions []admissionregistrationv1.MatchCondition) error {
	var errs []error
	for i, c := range conditions {
		if fault := compile(strings.TrimSpace(c.Expression), field.NewPath("matchConditions").Index(i).Child("expression")); fault != nil {
			errs = append(errs, fmt.Errorf("webhook %q: correct Settings.Conditions: %w", webhook, fault))
		}
	}
	return errors.Join(errs...)
}

func compile(expression string, path *field.Path) *field.Error {
	result := compiler().CompileCELExpression(&matchconditions.MatchCondition{Expression: expression}, variables, environment.NewExpressions)
	switch {
	case result.Error == nil:
		return nil
	case result.Error.Type == cel.ErrorTypeInvalid:
		return field.Invalid(path, expression, result.Error.Detail)
	}
	return field.InternalError(path, result.Error)
}

// Matcher returns the API server's own evaluator of a webhook's conditions, which an API server has already accepted.
func Matcher(w admissionregistrationv1.MutatingWebhook) matchconditions.Matcher {
	expressions := make([]plugincel.ExpressionAccessor, 0, len(w.MatchConditions))
	for _, c := range w.MatchConditions {
		expressions = append(expressions, &matchconditions.MatchCondition{Name: c.Name, Expression: c.Expression})
	}
	evaluator := plugincel.NewConditionCompiler(environments()).CompileCondition(expressions, variables, environment.StoredExpressions)
	return matchconditions.NewMatcher(evaluator, w.FailurePolicy, "webhook", "admit", w.Name)
}
