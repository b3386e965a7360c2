package webhookconf

// This file finds the errors that the API server would report in a step, its rules and its matchConditions, without a
// request. It does not compile expressions. internal/conditions does, for programs that import an API server's code
// anyway.

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"code.cloudfoundry.org/eirinix/internal/list"
)

// Check returns every error for which the API server would reject the configurations of the steps, with the API
// server's own reasons, and every dangerous setting. Only the expressions of conditions are left to the API server. The
// result joins one error per fault. Each names the step and the remedy. Check sends no request.
func Check(steps []Step, o Options) error {
	var errs []error
	paths := map[string]bool{}
	for _, s := range steps {
		c := &checker{step: s.Name}
		c.name(s, o, paths)
		c.rules(s, o)
		c.selectors(s, o)
		c.policies(s)
		c.conditions(s)
		errs = append(errs, c.errs...)
	}
	return errors.Join(slices.Concat(errs, checkEntryNames(steps), checkTime(steps))...)
}

// checkTime finds mutating steps that ignore failures and are called for the same objects, but together can take longer
// than the API server has for a request. If they hang, the request fails, although their failures should be ignored.
// Steps whose selectors or conditions differ can be for different objects, and are left to a diagnosis.
func checkTime(steps []Step) (errs []error) {
	same := map[string][]Step{}
	for _, s := range steps {
		if s.Validating || !s.ignores() || s.Shadow || s.Mode == ModeShadow {
			continue
		}
		for _, key := range s.matchKeys() {
			same[key] = append(same[key], s)
		}
	}
	told := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(same)) {
		names := list.Of(same[key], func(s Step) string { return fmt.Sprintf("%q (%s)", s.Name, cmp.Or(s.Timeout, ShareTimeout)) })
		all, sum := strings.Join(names, ", "), timeoutOf(same[key])
		if sum > RequestSeconds*time.Second && !told[all] {
			told[all] = true
			errs = append(errs, fmt.Errorf("eirinix: steps %s: they are called one after another for the same objects, and may take %s, but the API server "+
				"has %d s for a request, and refuses it then although their failurePolicy is Ignore; lower Settings.Timeout to %d s together",
				all, sum, RequestSeconds, RequestSeconds))
		}
	}
	return errs
}

// matchKeys returns a key for each operation and resource that the step is called for. Steps with a key in common are
// called for the same objects, in one call or in several.
func (s Step) matchKeys() (keys []string) {
	k := s.groupKey()
	k.Kind, k.Resources = "", nil
	k.MatchPolicy, k.SideEffects, k.Reinvoke, k.EveryUpdate = "", "", "", false // they make calls of their own, but for the same objects
	for _, r := range s.Rules {
		operations := r.Operations
		if slices.Contains(operations, admissionregistrationv1.OperationAll) {
			operations = operationOrder
		}
		for _, operation := range operations {
			for _, resource := range resourcesOf([]admissionregistrationv1.RuleWithOperations{r}) {
				keys = append(keys, string(operation)+" "+resource+" "+k.String())
			}
		}
	}
	return sorted(keys)
}

// checkEntryNames finds steps whose own entry would have the name of a group's entry.
func checkEntryNames(steps []Step) []error {
	groups := map[string]string{} // the first step of each, by path
	entries := Group(steps)
	for _, e := range entries {
		if first := e.Steps[0]; first.groupable() {
			groups[e.Path] = first.Name
		}
	}
	var errs []error
	for _, e := range entries {
		member, taken := groups[e.Path]
		if taken && !e.Steps[0].groupable() {
			errs = append(errs, fmt.Errorf("step %q: give it another name, because the webhook that %q shares has this one", e.Name, member))
		}
	}
	return errs
}

// checker collects the faults of one step.
type checker struct {
	step string
	errs []error
}

func (c *checker) report(remedy string, faults ...*field.Error) {
	for _, fault := range faults {
		c.errs = append(c.errs, fmt.Errorf("eirinix: step %q: %s: %w", c.step, remedy, fault))
	}
}

func (c *checker) name(s Step, o Options, paths map[string]bool) {
	path := field.NewPath("name")
	if problems := validation.IsDNS1123Label(s.Name); len(problems) > 0 {
		c.report("give it a name that can stand in a path and in the webhook's name", field.Invalid(path, s.Name, problems[0]))
	} else if faults := validation.IsFullyQualifiedName(path, o.WebhookName(s.Name)); len(faults) > 0 && len(validation.IsDNS1123Subdomain(o.Fingerprint)) == 0 {
		c.report("shorten the name or ManagerOptions.OperatorFingerprint", faults...)
	}
	called := PathOf(s.Validating, s.Name)
	if paths[called] {
		c.report("give it another name: names become webhook names and paths, and must be unique", field.Duplicate(path, s.Name))
	}
	paths[called] = true
}

func (c *checker) rules(s Step, o Options) {
	path := field.NewPath("rules")
	if len(s.Rules) == 0 {
		c.report("give at least one rule in Settings.Rules", field.Required(path, ""))
	}
	if namespaces, others := aboutNamespaces(s.Rules); namespaces && others && o.Namespace != "" && isEmpty(s.Namespaces) {
		c.report("give Namespaces a step of their own, or set Settings.Namespaces",
			field.Forbidden(path, "Namespaces beside other resources: ManagerOptions.Namespace would leave out every Namespace but "+o.Namespace))
	}
	for i, r := range s.Rules {
		c.report("correct Settings.Rules", checkRule(r, path.Index(i))...)
		if unbounded(r) && scopeOf(r) == admissionregistrationv1.ClusterScope && !s.AllowClusterCritical { // wildcards would be limited to nothing
			c.report("name the resources in Settings.Rules, or set Settings.AllowClusterCritical to accept the risk",
				field.Forbidden(path.Index(i).Child("scope"), "a cluster needs its cluster-scoped objects to start and to recover, and a wildcard would match them all"))
		}
		if everything(r) && !s.ignores() && !s.AllowClusterCritical {
			c.report("name the resources in Settings.Rules, or set Settings.FailurePolicy to Ignore, or set Settings.AllowClusterCritical to accept the risk",
				field.Forbidden(path.Index(i).Child("resources"), "a webhook that fails for every resource stops the cluster, and its own repair, when it is down"))
		}
	}
}

// everything reports whether the rule matches all existing resources.
func everything(r admissionregistrationv1.RuleWithOperations) bool {
	return slices.Contains(r.Resources, "*/*") || slices.Contains(r.Resources, "*") && slices.Contains(r.APIGroups, "*")
}

// selectors also reports selectors that select nothing: a namespace that is excluded, or labels of objects that have none.
func (c *checker) selectors(s Step, o Options) {
	namespaces, objects := field.NewPath("namespaceSelector"), field.NewPath("objectSelector")
	c.report("correct Settings.Namespaces", checkSelector(s.Namespaces, namespaces)...)
	c.report("correct Settings.Objects", checkSelector(s.Objects, objects)...)
	for _, name := range namesIn(orEmpty(s.Namespaces)) {
		if slices.Contains(o.excluded(s.Settings), name) {
			c.report("leave the namespace out of Settings.Namespaces, or set Settings.AllowClusterCritical to accept the risk",
				field.Forbidden(namespaces, name+" holds what a cluster or this program needs to start, and no webhook is called for it"))
		}
	}
	others := func(r admissionregistrationv1.RuleWithOperations) bool {
		return !slices.Equal(r.Operations, []admissionregistrationv1.OperationType{admissionregistrationv1.Connect})
	}
	if !isEmpty(s.Objects) && len(s.Rules) > 0 && !slices.ContainsFunc(s.Rules, others) {
		c.report("leave out Settings.Objects", field.Forbidden(objects, "the options of a CONNECT have no labels, so it selects none"))
	}
}

func checkSelector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	faults := metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
	// Labels come in the order of a map.
	slices.SortStableFunc(faults, func(a, b *field.Error) int { return cmp.Compare(a.Error(), b.Error()) })
	return faults
}

func (c *checker) policies(s Step) {
	oneOf(c, "failurePolicy", "Settings.FailurePolicy", s.FailurePolicy, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
	oneOf(c, "matchPolicy", "Settings.MatchPolicy", s.MatchPolicy, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)
	oneOf(c, "sideEffects", "Settings.SideEffects", s.SideEffects, admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun)
	if s.Mode != "" {
		oneOf(c, "mode", "Settings.Mode", s.Mode, ModeDeny, ModeWarn, ModeAudit, ModeShadow)
	}
	switch {
	case s.Owned == OwnedAuto:
	case s.Validating:
		c.report("leave out Settings.Owned", field.Forbidden(field.NewPath("owned"), "a step that only validates sees all objects"))
	default:
		oneOf(c, "owned", "Settings.Owned", s.Owned, OwnedSkip, OwnedSee)
	}
	path := field.NewPath("reinvocationPolicy")
	switch {
	case !s.Validating:
		oneOf(c, "reinvocationPolicy", "Settings.Reinvoke", s.Reinvoke, admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
	case s.Reinvoke != "" && s.Reinvoke != admissionregistrationv1.NeverReinvocationPolicy:
		c.report("leave out Settings.Reinvoke", field.Forbidden(path, "a validating webhook is never called again"))
	}
	seconds, timeout := int32(s.Timeout/time.Second), field.NewPath("timeoutSeconds")
	const remedy = "set Settings.Timeout to whole seconds, from 1 to 30"
	switch {
	case s.Timeout == 0:
	case s.Timeout < time.Second || s.Timeout >= 31*time.Second:
		c.report(remedy, field.Invalid(timeout, seconds, "the timeout value must be between 1 and 30 seconds"))
	case s.Timeout%time.Second != 0:
		c.report(remedy, field.Invalid(timeout, s.Timeout.String(), "the timeout value must be whole seconds"))
	}
}

// oneOf reports a value that the API server does not accept. supported is in the order in which it lists the others.
func oneOf[T ~string](c *checker, name, option string, value T, supported ...T) {
	if !slices.Contains(supported, value) {
		c.report("set "+option+" to one of these", field.NotSupported(field.NewPath(name), value, supported))
	}
}

var (
	operations = []admissionregistrationv1.OperationType{"*", admissionregistrationv1.Connect, admissionregistrationv1.Create, admissionregistrationv1.Delete, admissionregistrationv1.Update}
	scopes     = []admissionregistrationv1.ScopeType{admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope}
)

// checkRule returns the faults that the API server would find in the rule.
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
		if !slices.Contains(operations, o) {
			all = append(all, field.NotSupported(path.Child("operations").Index(i), o, operations))
		}
	}
	// A group can be "", that of pods.
	alone("apiGroups", "API groups", len(r.APIGroups), slices.Contains(r.APIGroups, "*"), r.APIGroups)
	alone("apiVersions", "API versions", len(r.APIVersions), slices.Contains(r.APIVersions, "*"), r.APIVersions)
	for i, v := range r.APIVersions {
		if v == "" {
			all = append(all, field.Required(path.Child("apiVersions").Index(i), ""))
		}
	}
	all = append(all, checkResources(r.Resources, path.Child("resources"))...)
	if r.Scope != nil && !slices.Contains(scopes, *r.Scope) {
		all = append(all, field.NotSupported(path.Child("scope"), *r.Scope, scopes))
	}
	return all
}

// checkResources finds resources that another one already covers, by the API server's algorithm. It goes through them
// once, so "pods/*" can follow "pods/status" but not precede it.
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

// maxConditions is the number of matchConditions that the API server accepts per webhook.
const maxConditions = 64

func (c *checker) conditions(s Step) {
	path, all := field.NewPath("matchConditions"), conditionsFor(s.Settings)
	if len(all) > maxConditions {
		tooMany := field.TooMany(path, len(all), maxConditions)
		c.report(fmt.Sprintf("join some of Settings.Conditions with &&; beside those of the library there can be %d", maxConditions-len(all)+len(s.Conditions)), tooMany)
	}
	c.report("correct Settings.Conditions", checkConditions(all, path)...)
}

// checkConditions returns the faults that the API server would find in the matchConditions of a webhook before it
// compiles them. The code that compiles them adds 7 MB to a program.
func checkConditions(conditions []admissionregistrationv1.MatchCondition, path *field.Path) field.ErrorList {
	var all field.ErrorList
	seen := map[string]bool{}
	for i, c := range conditions {
		name, expression := path.Index(i).Child("name"), path.Index(i).Child("expression")
		if strings.TrimSpace(c.Expression) == "" {
			all = append(all, field.Required(expression, ""))
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
