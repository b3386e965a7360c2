package webhookconf

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	operations = []string{"*", string(admissionregistrationv1.Connect), string(admissionregistrationv1.Create), string(admissionregistrationv1.Delete), string(admissionregistrationv1.Update)}
	scopes     = []string{string(admissionregistrationv1.AllScopes), string(admissionregistrationv1.ClusterScope), string(admissionregistrationv1.NamespacedScope)}
)

// checkRule tells what the API server would say of the rule.
func checkRule(r admissionregistrationv1.RuleWithOperations, path *field.Path) field.ErrorList {
	var all field.ErrorList
	alone := func(name, what string, count int, wild bool, value any) {
		switch {
		case count == 0:
			all = append(all, field.Required(path.Child(name), ""))
		case count > 1 && wild:
			all = append(all, field.Invalid(path.Child(name), value, fmt.Sprintf("if '*' is present, must not specify other %s", what)))
		}
	}
	alone("operations", "operations", len(r.Operations), slices.Contains(r.Operations, admissionregistrationv1.OperationAll), r.Operations)
	for i, o := range r.Operations {
		if !slices.Contains(operations, string(o)) {
			all = append(all, field.NotSupported(path.Child("operations").Index(i), o, operations))
		}
	}
	// A group may be "", that of pods.
	alone("apiGroups", "API groups", len(r.APIGroups), slices.Contains(r.APIGroups, "*"), r.APIGroups)
	alone("apiVersions", "API versions", len(r.APIVersions), slices.Contains(r.APIVersions, "*"), r.APIVersions)
	for i, v := range r.APIVersions {
		if v == "" {
			all = append(all, field.Required(path.Child("apiVersions").Index(i), ""))
		}
	}
	all = append(all, checkResources(r.Resources, path.Child("resources"))...)
	if r.Scope != nil && !slices.Contains(scopes, string(*r.Scope)) {
		all = append(all, field.NotSupported(path.Child("scope"), *r.Scope, scopes))
	}
	return all
}

// checkResources tells which resources are taken in by another one already, by the API server's reading: it
// goes through them once, so "pods/*" may follow "pods/status" but not come before it.
func checkResources(resources []string, path *field.Path) field.ErrorList {
	var all field.ErrorList
	if len(resources) == 0 {
		all = append(all, field.Required(path, ""))
	}
	everyBelow, belowEvery := map[string]bool{}, map[string]bool{} // x/*, */x
	plain := false
	for i, resource := range resources {
		if resource == "" {
			all = append(all, field.Required(path.Index(i), ""))
			continue
		}
		name, below, found := strings.Cut(resource, "/")
		if !found {
			plain = resource != "*" // the last one counts
			continue
		}
		if everyBelow[name] {
			all = append(all, field.Invalid(path.Index(i), resource, fmt.Sprintf("if '%s/*' is present, must not specify %s", name, resource)))
		}
		if belowEvery[below] {
			all = append(all, field.Invalid(path.Index(i), resource, fmt.Sprintf("if '*/%s' is present, must not specify %s", below, resource)))
		}
		everyBelow[name] = everyBelow[name] || below == "*"
		belowEvery[below] = belowEvery[below] || name == "*"
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		all = append(all, field.Invalid(path, resources, "if '*/*' is present, must not specify other resources"))
	}
	if slices.Contains(resources, "*") && plain {
		all = append(all, field.Invalid(path, resources, "if '*' is present, must not specify other resources without subresources"))
	}
	return all
}
