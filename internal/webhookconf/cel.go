package webhookconf

import (
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// maxConditions is how many matchConditions the API server takes per webhook.
const maxConditions = 64

// conditionVariables are those of webhooks: object, oldObject, request, namespaceObject and the authorizer.
var conditionVariables = plugincel.OptionalVariableDeclarations{HasAuthorizer: true}

// compiler is the API server's own, for expressions that are new to it. The version is that of the library
// less one, as in an API server: so far back an upgrade may have to be undone. It takes some milliseconds to
// make, so whoever has no conditions does without. It is safe for concurrent use.
var compiler = sync.OnceValue(func() plugincel.Compiler {
	return plugincel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
})

// checkConditions tells what the API server would say of the matchConditions of a webhook.
func checkConditions(conditions []admissionregistrationv1.MatchCondition, path *field.Path) field.ErrorList {
	var all field.ErrorList
	if len(conditions) > maxConditions {
		all = append(all, field.TooMany(path, len(conditions), maxConditions))
	}
	seen := map[string]bool{}
	for i, c := range conditions {
		name, expression := path.Index(i).Child("name"), path.Index(i).Child("expression")
		if text := strings.TrimSpace(c.Expression); text == "" {
			all = append(all, field.Required(expression, ""))
		} else if err := compileCondition(text, expression); err != nil {
			all = append(all, err)
		}
		if c.Name == "" {
			all = append(all, field.Required(name, ""))
			continue
		}
		for _, why := range validation.IsQualifiedName(c.Name) {
			all = append(all, field.Invalid(name, c.Name, why))
		}
		if seen[c.Name] {
			all = append(all, field.Duplicate(name, c.Name))
		}
		seen[c.Name] = true
	}
	return all
}

func compileCondition(expression string, path *field.Path) *field.Error {
	result := compiler().CompileCELExpression(&matchconditions.MatchCondition{Expression: expression}, conditionVariables, environment.NewExpressions)
	if result.Error == nil {
		return nil
	}
	if result.Error.Type == cel.ErrorTypeInvalid {
		return field.Invalid(path, expression, result.Error.Detail)
	}
	return field.InternalError(path, result.Error)
}
