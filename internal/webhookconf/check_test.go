package webhookconf_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	compiler "code.cloudfoundry.org/eirinix/internal/conditions"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// fault is a step and its faults. The fields are the API's, so that the API server can be asked the
// same: it has to find the same in the webhook that is built of the step.
type fault struct {
	because string
	change  change
	reasons []string // "field: reason"; none where nothing is wrong
	remedy  string
	ours    bool // we refuse it, the API server does not
	theirs  bool // Check leaves it to the API server, and internal/conditions finds it
}

func selector(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

func condition(name, expression string) admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{Name: name, Expression: expression}
}

func manyConditions(n int) change {
	return func(s *webhookconf.Step) {
		for i := range n {
			s.Conditions = append(s.Conditions, condition(fmt.Sprint("c", i), "true"))
		}
	}
}

const fixRules, fixConditions, fixTimeout = "correct Settings.Rules", "correct Settings.Conditions", "set Settings.Timeout to whole seconds, from 1 to 30"

var faults = []fault{
	{because: "nothing", change: none},
	{because: "nothing, validating", change: validating},
	{because: "nothing, with all there is", change: func(s *webhookconf.Step) {
		*s = step(s.Name, critical, ifNeeded, rules(rule("*", "*", "*/*", "*")), objects(selector("a", "Exists")), namespaces(labels1("a", "")), conditions(condition("example.org/Yes_1", "true")))
		s.Timeout, s.SideEffects, s.MatchPolicy = 30*time.Second, admissionregistrationv1.SideEffectClassNoneOnDryRun, admissionregistrationv1.Exact
	}},

	{because: "it has no rules", change: rules(), reasons: []string{"rules: Required value"}, remedy: "give at least one rule", ours: true},
	{because: "no operations", change: func(s *webhookconf.Step) { s.Rules[0].Operations = nil }, reasons: []string{"rules[0].operations: Required value"}, remedy: fixRules},
	{because: "an unknown operation", change: rules(rule("", "v1", "pods", "CREATE,PATCH")), remedy: fixRules, reasons: []string{`rules[0].operations[1]: Unsupported value: "PATCH": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"`}},
	{because: "an operation in lower case", change: rules(rule("", "v1", "pods", "create")), remedy: fixRules, reasons: []string{`rules[0].operations[0]: Unsupported value: "create"`}},
	{because: "an operation beside all", change: rules(rule("", "v1", "pods", "*,CREATE")), remedy: fixRules, reasons: []string{`rules[0].operations: Invalid value: ["*","CREATE"]: if '*' is present, must not specify other operations`}},
	{because: "no groups", change: func(s *webhookconf.Step) { s.Rules[0].APIGroups = nil }, remedy: fixRules, reasons: []string{"rules[0].apiGroups: Required value"}},
	{because: "a group beside all", change: func(s *webhookconf.Step) { s.Rules[0].APIGroups = []string{"", "*"} }, remedy: fixRules, reasons: []string{`rules[0].apiGroups: Invalid value: ["","*"]: if '*' is present, must not specify other API groups`}},
	{because: "no versions", change: func(s *webhookconf.Step) { s.Rules[0].APIVersions = nil }, remedy: fixRules, reasons: []string{"rules[0].apiVersions: Required value"}},
	{because: "an empty version", change: rules(rule("", "", "pods", "CREATE")), remedy: fixRules, reasons: []string{"rules[0].apiVersions[0]: Required value"}},
	{because: "a version beside all", change: func(s *webhookconf.Step) { s.Rules[0].APIVersions = []string{"*", "v1"} }, remedy: fixRules, reasons: []string{`rules[0].apiVersions: Invalid value: ["*","v1"]: if '*' is present, must not specify other API versions`}},
	{because: "empty rules", change: rules(admissionregistrationv1.RuleWithOperations{}), remedy: fixRules, reasons: []string{
		"rules[0].operations: Required value", "rules[0].apiGroups: Required value", "rules[0].apiVersions: Required value", "rules[0].resources: Required value",
	}},
	{because: "no resources", change: func(s *webhookconf.Step) { s.Rules[0].Resources = nil }, remedy: fixRules, reasons: []string{"rules[0].resources: Required value"}},
	{because: "an empty resource", change: rules(rule("", "v1", "pods,", "CREATE")), remedy: fixRules, reasons: []string{"rules[0].resources[1]: Required value"}},
	{because: "a resource beside all", change: rules(rule("", "v1", "*,pods", "CREATE")), remedy: fixRules, reasons: []string{"rules[0].resources: Invalid value: [\"*\",\"pods\"]: if '*' is present, must not specify other resources without subresources"}},
	{because: "nothing: a resource before all is overlooked", change: rules(rule("", "v1", "pods,*", "CREATE"))},
	{because: "nothing: a subresource beside all resources", change: rules(rule("", "v1", "*,pods/exec", "CREATE"))},
	{because: "a resource beside all with subresources", change: func(s *webhookconf.Step) { rules(rule("", "v1", "pods,*/*", "CREATE"))(s); ignore(s) }, remedy: fixRules, reasons: []string{"rules[0].resources: Invalid value: [\"pods\",\"*/*\"]: if '*/*' is present, must not specify other resources"}},
	{because: "a subresource beside all of them", change: rules(rule("", "v1", "pods/*,pods/exec", "CREATE")), remedy: fixRules, reasons: []string{"rules[0].resources[1]: Invalid value: \"pods/exec\": if 'pods/*' is present, must not specify pods/exec"}},
	{because: "nothing: a subresource before all of them is overlooked", change: rules(rule("", "v1", "pods/exec,pods/*", "CREATE"))},
	{because: "a subresource beside that of all resources", change: rules(rule("", "v1", "*/scale,pods/scale", "CREATE")), remedy: fixRules, reasons: []string{"rules[0].resources[1]: Invalid value: \"pods/scale\": if '*/scale' is present, must not specify pods/scale"}},
	{because: "an unknown scope", change: func(s *webhookconf.Step) {
		s.Rules[0].Scope = new(admissionregistrationv1.ScopeType("Galaxy"))
	}, remedy: fixRules, reasons: []string{`rules[0].scope: Unsupported value: "Galaxy": supported values: "*", "Cluster", "Namespaced"`}},
	{because: "faults in the second rule", change: rules(rule("", "v1", "pods", "CREATE"), rule("", "", "", "X")), remedy: fixRules, reasons: []string{
		`rules[1].operations[0]: Unsupported value: "X"`, "rules[1].apiVersions[0]: Required value", "rules[1].resources[0]: Required value",
	}},

	{because: "it fails for everything", change: rules(rule("*", "*", "*/*", "*")), remedy: "set Settings.AllowClusterCritical", reasons: []string{"rules[0].resources: Forbidden"}, ours: true},
	{because: "it fails for every resource of every group", change: rules(rule("*", "*", "*", "CREATE")), remedy: "set Settings.FailurePolicy to Ignore", reasons: []string{"rules[0].resources: Forbidden"}, ours: true},
	{because: "it fails for every resource and subresource of a group", change: rules(rule("", "v1", "*/*", "CREATE")), remedy: "name the resources", reasons: []string{"rules[0].resources: Forbidden"}, ours: true},
	{because: "nothing: it fails for every resource of one group", change: rules(rule("", "v1", "*", "CREATE"))},
	{because: "it takes in all that lies in no namespace", change: rules(clusterScoped(rule("", "v1", "*", "CREATE"))), remedy: "name the resources", reasons: []string{"rules[0].scope: Forbidden: a cluster needs its cluster-scoped objects"}, ours: true},
	{because: "it takes in all that lies in no namespace, though it ignores failures", change: func(s *webhookconf.Step) { rules(clusterScoped(rule("*", "*", "*", "CREATE")))(s); ignore(s) }, remedy: "set Settings.AllowClusterCritical", reasons: []string{"rules[0].scope: Forbidden"}, ours: true},
	{because: "nothing: it takes in all of its own group that lies in no namespace", change: rules(clusterScoped(rule("example.org", "v1", "*", "CREATE")))},
	{because: "nothing: it includes the named resources that lie in no namespace", change: rules(clusterScoped(rule("", "v1", "nodes,persistentvolumes/*", "CREATE")))},
	{because: "nothing: it only ignores failures for everything", change: func(s *webhookconf.Step) { rules(rule("*", "*", "*/*", "*"))(s); ignore(s) }},

	{because: "a namespace label that is none", change: namespaces(labels1("a b", "1")), remedy: "correct Settings.Namespaces", reasons: []string{`namespaceSelector.matchLabels: Invalid value: "a b": name part must consist of`}},
	{because: "an object label that is none", change: objects(labels1("a", "1 2")), remedy: "correct Settings.Objects", reasons: []string{`objectSelector.matchLabels: Invalid value: "1 2": a valid label must be`}},
	{because: "an unknown operator", change: objects(selector("a", "in", "1")), remedy: "correct Settings.Objects", reasons: []string{`objectSelector.matchExpressions[0].operator: Invalid value: "in": not a valid selector operator`}},
	{because: "In nothing", change: objects(selector("a", "In")), remedy: "correct Settings.Objects", reasons: []string{"objectSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"}},
	{because: "Exists with values", change: namespaces(selector("a", "Exists", "1")), remedy: "correct Settings.Namespaces", reasons: []string{"namespaceSelector.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"}},
	{because: "a value that is none", change: namespaces(selector("a", "NotIn", "!")), remedy: "correct Settings.Namespaces", reasons: []string{`namespaceSelector.matchExpressions[0].values[0]: Invalid value: "!"`}},
	{because: "no key", change: objects(selector("", "Exists")), remedy: "correct Settings.Objects", reasons: []string{`objectSelector.matchExpressions[0].key: Invalid value: "": name part must be non-empty`, `Invalid value: "": name part must consist of`}},

	{because: "nothing: as many conditions as may be", change: manyConditions(64)},
	{because: "too many conditions", change: manyConditions(65), remedy: fixConditions, reasons: []string{"matchConditions: Too many: 65: must have at most 64 items"}},
	{because: "too many conditions beside that of a wildcard", change: func(s *webhookconf.Step) { manyConditions(64)(s); rules(rule("", "v1", "*", "CREATE"))(s) }, remedy: fixConditions, reasons: []string{"matchConditions: Too many: 65: must have at most 64 items"}},
	{because: "nothing: as many conditions as may be beside that of a wildcard", change: func(s *webhookconf.Step) { manyConditions(63)(s); rules(rule("", "v1", "*", "CREATE"))(s) }},
	{because: "a condition of the name of a wildcard's", change: func(s *webhookconf.Step) {
		conditions(condition(wildcardCondition, "true"))(s)
		rules(rule("", "v1", "*", "CREATE"))(s)
	}, remedy: fixConditions, reasons: []string{`matchConditions[1].name: Duplicate value: "eirinix.cloudfoundry.org/wildcard"`}},
	{because: "a condition without a name", change: conditions(condition("", "true")), remedy: fixConditions, reasons: []string{"matchConditions[0].name: Required value"}},
	{because: "a condition of a bad name", change: conditions(condition("a b", "true")), remedy: fixConditions, reasons: []string{`matchConditions[0].name: Invalid value: "a b": name part must consist of`}},
	{because: "two conditions of a name", change: conditions(condition("a", "true"), condition("a", "false")), remedy: fixConditions, reasons: []string{`matchConditions[1].name: Duplicate value: "a"`}},
	{because: "an empty condition", change: conditions(condition("a", "")), remedy: fixConditions, reasons: []string{"matchConditions[0].expression: Required value"}},
	{because: "a blank condition", change: conditions(condition("a", " \n")), remedy: fixConditions, reasons: []string{"matchConditions[0].expression: Required value"}},
	{because: "a condition that does not parse", change: conditions(condition("a", "object.metadata.name ==")), theirs: true, remedy: fixConditions, reasons: []string{`matchConditions[0].expression: Invalid value: "object.metadata.name ==": compilation failed: ERROR: <input>:1:24: Syntax error`}},
	{because: "an unknown variable", change: conditions(condition("a", "true"), condition("b", " pod.name == 'x' ")), theirs: true, remedy: fixConditions, reasons: []string{`matchConditions[1].expression: Invalid value: "pod.name == 'x'": compilation failed: ERROR: <input>:1:1: undeclared reference to 'pod'`}},
	{because: "variables of policies", change: conditions(condition("a", "params.x == variables.y")), theirs: true, remedy: fixConditions, reasons: []string{"undeclared reference to 'params'"}},
	{because: "an unknown field of the request", change: conditions(condition("a", "request.uid == 'x'")), theirs: true, remedy: fixConditions, reasons: []string{"compilation failed: ERROR: <input>:1:8: undefined field 'uid'"}},
	{because: "an unknown function", change: conditions(condition("a", "object.metadata.name.shout()")), theirs: true, remedy: fixConditions, reasons: []string{"undeclared reference to 'shout'"}},
	{because: "a condition that is no yes or no", change: conditions(condition("a", "request.name")), theirs: true, remedy: fixConditions, reasons: []string{`matchConditions[0].expression: Invalid value: "request.name": must evaluate to bool but got string`}},
	{because: "a condition that may be no yes or no", change: conditions(condition("a", "object.spec")), theirs: true, remedy: fixConditions, reasons: []string{"must evaluate to bool but got dyn"}},
	{because: "a bad regular expression", change: conditions(condition("a", "object.metadata.name.matches('[')")), theirs: true, remedy: fixConditions, reasons: []string{"compilation failed"}},
	{because: "nothing: every variable", change: conditions(
		condition("a", "object.metadata.name == oldObject.metadata.name"), condition("b", "request.userInfo.username != 'system:kube-scheduler'"),
		condition("c", "authorizer.group('').resource('pods').check('create').allowed()"), condition("d", "authorizer.requestResource.check('update').allowed()"),
		condition("e", "namespaceObject.metadata.name != 'x'"), condition("f", "has(object.spec) && object.?spec.hostNetwork.orValue(false)"),
	)},
	{because: "nothing: the libraries", change: conditions(
		condition("a", "quantity('1Gi').isGreaterThan(quantity('1Mi'))"), condition("b", "url('https://x').getScheme() == 'https'"),
		condition("c", "ip('10.0.0.1').family() == 4"), condition("d", "object.spec.containers.all(c, c.image.startsWith('x/'))"),
		condition("e", "semver('1.2.3').major() == 1"), condition("f", "[1, 2].isSorted() && 'a'.find('[a-z]') == 'a'"), condition("g", "sets.contains([1], [1])"),
	)},

	{because: "a timeout of less than nothing", change: func(s *webhookconf.Step) { s.Timeout = -time.Second }, remedy: fixTimeout, reasons: []string{"timeoutSeconds: Invalid value: -1"}},
	{because: "a timeout that is too long", change: func(s *webhookconf.Step) { s.Timeout = 31 * time.Second }, remedy: fixTimeout, reasons: []string{"timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds"}},
	{because: "a timeout of some milliseconds", change: func(s *webhookconf.Step) { s.Timeout = 300 * time.Millisecond }, remedy: fixTimeout, reasons: []string{"timeoutSeconds: Invalid value: 0: the timeout value must be between 1 and 30 seconds"}},
	{because: "a timeout of half a second too much", change: func(s *webhookconf.Step) { s.Timeout = 1500 * time.Millisecond }, remedy: fixTimeout, reasons: []string{`timeoutSeconds: Invalid value: "1.5s": the timeout value must be whole seconds`}, ours: true},

	{because: "no failurePolicy", change: func(s *webhookconf.Step) { s.FailurePolicy = "" }, remedy: "set Settings.FailurePolicy", reasons: []string{`failurePolicy: Unsupported value: "": supported values: "Fail", "Ignore"`}},
	{because: "an unknown failurePolicy", change: func(s *webhookconf.Step) { s.FailurePolicy = "ignore" }, remedy: "set Settings.FailurePolicy", reasons: []string{`failurePolicy: Unsupported value: "ignore": supported values: "Fail", "Ignore"`}},
	{because: "an unknown matchPolicy", change: func(s *webhookconf.Step) { s.MatchPolicy = "Roughly" }, remedy: "set Settings.MatchPolicy", reasons: []string{`matchPolicy: Unsupported value: "Roughly": supported values: "Equivalent", "Exact"`}},
	{because: "side effects", change: func(s *webhookconf.Step) { s.SideEffects = admissionregistrationv1.SideEffectClassSome }, remedy: "set Settings.SideEffects", reasons: []string{`sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"`}},
	{because: "unknown side effects", change: func(s *webhookconf.Step) { s.SideEffects = admissionregistrationv1.SideEffectClassUnknown }, remedy: "set Settings.SideEffects", reasons: []string{`sideEffects: Unsupported value: "Unknown"`}},
	{because: "an unknown reinvocationPolicy", change: func(s *webhookconf.Step) { s.Reinvoke = "Always" }, remedy: "set Settings.Reinvoke", reasons: []string{`reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"`}},
	{because: "it validates again", change: func(s *webhookconf.Step) { validating(s); ifNeeded(s) }, remedy: "leave out Settings.Reinvoke", reasons: []string{"reinvocationPolicy: Forbidden: a validating webhook is never called again"}, ours: true},
	{because: "nothing: it validates without a reinvocationPolicy", change: func(s *webhookconf.Step) { s.Validating, s.Reinvoke = true, "" }},

	{because: "it has no name", change: func(s *webhookconf.Step) { s.Name = "" }, remedy: "give it a name", reasons: []string{`name: Invalid value: ""`}, ours: true},
	{because: "its name is no label", change: func(s *webhookconf.Step) { s.Name = "Volumes" }, remedy: "give it a name", reasons: []string{`name: Invalid value: "Volumes": a lowercase RFC 1123 label`}, ours: true},
	{because: "its name has dots", change: func(s *webhookconf.Step) { s.Name = "a.b" }, remedy: "give it a name", reasons: []string{`name: Invalid value: "a.b"`}, ours: true},
	{because: "its name is too long", change: func(s *webhookconf.Step) { s.Name = strings.Repeat("a", 64) }, remedy: "give it a name", reasons: []string{"must be no more than 63"}, ours: true},
}

var _ = Describe("Check", func() {
	tree := func() []any {
		var entries []any
		for _, f := range faults {
			entries = append(entries, Entry(f.because, f))
		}
		return entries
	}

	DescribeTable("refuses a step because of", append([]any{func(f fault) {
		s := step("volumes", f.change)
		prefix := fmt.Sprintf("eirinix: step %q: ", s.Name)
		err := webhookconf.Check([]webhookconf.Step{step("before"), s, step("after", validating)}, urlOptions())
		if len(f.reasons) == 0 || f.theirs {
			Expect(err).NotTo(HaveOccurred())
			for _, w := range buildAll(urlOptions(), s) {
				prefix, err = fmt.Sprintf("webhook %q: ", w.Name), compiler.Check(w.Name, w.MatchConditions)
			}
		}
		if len(f.reasons) == 0 {
			Expect(err).NotTo(HaveOccurred())
			return
		}
		Expect(f.remedy).NotTo(BeEmpty())
		all := err.(interface{ Unwrap() []error }).Unwrap()
		Expect(all).To(HaveLen(len(f.reasons)), "%v", err)
		for i, reason := range f.reasons {
			Expect(all[i].Error()).To(And(HavePrefix(prefix), ContainSubstring(f.remedy), ContainSubstring(reason)))
			_, ok := errors.AsType[*field.Error](all[i])
			Expect(ok).To(BeTrue())
		}
	}}, tree()...)...)

	It("finds nothing wrong with nothing", func() {
		Expect(webhookconf.Check(nil, urlOptions())).To(Succeed())
	})

	It("reports all faults of all steps at once", func() {
		err := webhookconf.Check([]webhookconf.Step{
			step("one", rules(), conditions(condition("a", ""))), step("two", validating, ifNeeded), step("three"),
		}, urlOptions())
		Expect(err.(interface{ Unwrap() []error }).Unwrap()).To(HaveExactElements(
			MatchError(ContainSubstring(`"one": give at least one rule`)), MatchError(ContainSubstring("matchConditions[0].expression: Required value")),
			MatchError(ContainSubstring(`"two": leave out Settings.Reinvoke`)),
		))
	})

	It("refuses steps that ignore failures and can use up a request's time together", func() {
		slow := func(name string, changes ...change) webhookconf.Step {
			return step(name, append([]change{ignore, func(s *webhookconf.Step) { s.Timeout = 16 * time.Second }}, changes...)...)
		}
		all := rules(rule("", "v1", "pods", "*"))
		err := webhookconf.Check([]webhookconf.Step{slow("a", all), step("c", ignore, all), slow("b", all)}, urlOptions())
		Expect(err).To(MatchError(And(ContainSubstring(`steps "a" (16s), "c" (5s), "b" (16s)`), ContainSubstring("may take 37s"), ContainSubstring("to 30 s together"))))
		Expect(err.(interface{ Unwrap() []error }).Unwrap()).To(HaveLen(1), "although they meet in four operations")
		for because, others := range map[string][]change{
			"it has calls of its own":        {isolated},
			"it is called again":             {ifNeeded},
			"it is for exact versions":       {exact},
			"it has other side effects":      {dry},
			"it is for other operations too": {rules(rule("", "v1", "pods", "UPDATE,CREATE"))},
			"it is for other resources too":  {rules(rule("", "v1", "secrets,pods", "CREATE")), kind("", "", "")},
			"it is for them in another rule": {rules(rule("apps", "v1", "deployments", "CREATE"), rule("", "v1", "pods", "CREATE")), kind("", "", "")},
		} {
			Expect(webhookconf.Check([]webhookconf.Step{slow("a"), slow("b", others...)}, urlOptions())).To(MatchError(ContainSubstring("may take 32s")), because)
		}
		for because, others := range map[string][]change{
			"it is for these resources and operations, but not together": {rules(rule("", "v1", "pods", "DELETE"), rule("", "v1", "secrets", "CREATE")), kind("", "", "")},
			"its conditions may exclude each other":                      {conditions(admissionregistrationv1.MatchCondition{Name: "one", Expression: "request.name == 'one'"})},
			"it refuses, and ends the request":                           {func(s *webhookconf.Step) { s.FailurePolicy = admissionregistrationv1.Fail }},
			"validating ones are called at once":                         {validating},
			"shadows answer at once":                                     {func(s *webhookconf.Step) { s.Mode = webhookconf.ModeShadow }},
			"it is for other operations":                                 {rules(rule("", "v1", "pods", "DELETE"))},
			"it is for other objects":                                    {rules(rule("", "v1", "secrets", "CREATE"))},
			"it selects other objects":                                   {objects(labels1("a", ""))},
			"30 s are not too long":                                      {func(s *webhookconf.Step) { s.Timeout = 14 * time.Second }},
		} {
			Expect(webhookconf.Check([]webhookconf.Step{slow("a"), slow("b", others...)}, urlOptions())).To(Succeed(), because)
		}
	})

	It("refuses two steps of one name and kind, and lets a mutating and a validating one have the same", func() {
		err := webhookconf.Check([]webhookconf.Step{step("a"), step("a", validating), step("a", ignore)}, urlOptions())
		Expect(err).To(MatchError(And(ContainSubstring(`step "a": give it another name: names become webhook names and paths, and must be unique`), ContainSubstring(`Duplicate value: "a"`))))
		Expect(err.(interface{ Unwrap() []error }).Unwrap()).To(HaveLen(1))
	})

	It("refuses a step that has the name of a group", func() {
		group := webhookconf.Group([]webhookconf.Step{step("a")})[0].Name
		Expect(webhookconf.Check([]webhookconf.Step{step(group, isolated), step("a")}, urlOptions())).To(
			MatchError(ContainSubstring("give it another name, because the webhook that %q shares has this one", "a")))
		Expect(webhookconf.Check([]webhookconf.Step{step(group, isolated), step("a", validating)}, urlOptions())).To(Succeed())
		Expect(webhookconf.Check([]webhookconf.Step{step(group)}, urlOptions())).To(Succeed(), "it has no entry of its own")
	})

	It("refuses a step about Namespaces and others that would get the program's namespace", func() {
		both := rules(rule("", "v1", "namespaces,pods", "CREATE"))
		o := urlOptions()
		Expect(webhookconf.Check([]webhookconf.Step{step("a", both)}, o)).To(Succeed())
		o.Namespace = "apps"
		Expect(webhookconf.Check([]webhookconf.Step{step("a", both)}, o)).To(MatchError(And(
			ContainSubstring(`step "a": give Namespaces a step of their own, or set Settings.Namespaces`), ContainSubstring("leave out every Namespace but apps"))))
		Expect(webhookconf.Check([]webhookconf.Step{step("a", both, namespaces(labels1("a", "")))}, o)).To(Succeed())
		Expect(webhookconf.Check([]webhookconf.Step{step("a", rules(rule("", "v1", "namespaces", "CREATE")))}, o)).To(Succeed())
	})

	It("refuses names that are too long together with the fingerprint", func() {
		o := urlOptions()
		o.Fingerprint = strings.Repeat("x.", 100) + "x"
		Expect(webhookconf.Check([]webhookconf.Step{step("a")}, o)).To(Succeed())
		Expect(webhookconf.Check([]webhookconf.Step{step(strings.Repeat("a", 60))}, o)).To(
			MatchError(And(ContainSubstring("shorten the name or ManagerOptions.OperatorFingerprint"), ContainSubstring("253"))))
	})
})
