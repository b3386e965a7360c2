package webhookconf_test

// What Check refuses in steps, as an API server would refuse it in their webhooks, and the dangers that an API server
// accepts.

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

const fixMany = "join some of Settings.Conditions with &&; beside those of the library there can be "

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
	{because: "an operation beside all", change: rules(rule("", "v1", "pods", "*,CREATE")), remedy: fixRules, reasons: []string{`rules[0].operations: Invalid value: ["*","CREATE"]: if '*' is present, must not specify other operations`}},
	{because: "no groups", change: func(s *webhookconf.Step) { s.Rules[0].APIGroups = nil }, remedy: fixRules, reasons: []string{"rules[0].apiGroups: Required value"}},
	{because: "a group beside all", change: func(s *webhookconf.Step) { s.Rules[0].APIGroups = []string{"", "*"} }, remedy: fixRules, reasons: []string{`rules[0].apiGroups: Invalid value: ["","*"]: if '*' is present, must not specify other API groups`}},
	{because: "an empty version", change: rules(rule("", "", "pods", "CREATE")), remedy: fixRules, reasons: []string{"rules[0].apiVersions[0]: Required value"}},
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
	{because: "it fails for every resource and subresource of a group", change: rules(rule("", "v1", "*/*", "CREATE")), remedy: "name the resources", reasons: []string{"rules[0].resources: Forbidden"}, ours: true},
	{because: "nothing: it fails for every resource of one group", change: rules(rule("", "v1", "*", "CREATE"))},
	{because: "it takes in all that lies in no namespace", change: rules(clusterScoped(rule("", "v1", "*", "CREATE"))), remedy: "name the resources", reasons: []string{"rules[0].scope: Forbidden: a cluster needs its cluster-scoped objects"}, ours: true},
	{because: "it takes in all that lies in no namespace, though it ignores failures", change: func(s *webhookconf.Step) { rules(clusterScoped(rule("*", "*", "*", "CREATE")))(s); ignore(s) }, remedy: "set Settings.AllowClusterCritical", reasons: []string{"rules[0].scope: Forbidden"}, ours: true},
	{because: "nothing: it takes in all of its own group that lies in no namespace", change: rules(clusterScoped(rule("example.org", "v1", "*", "CREATE")))},
	{because: "nothing: it includes the named resources that lie in no namespace", change: rules(clusterScoped(rule("", "v1", "nodes,persistentvolumes/*", "CREATE")))},
	{because: "nothing: it only ignores failures for everything", change: func(s *webhookconf.Step) { rules(rule("*", "*", "*/*", "*"))(s); ignore(s) }},

	{because: "a namespace label that is none", change: namespaces(labels1("a b", "1")), remedy: "correct Settings.Namespaces", reasons: []string{`namespaceSelector.matchLabels: Invalid value: "a b": name part must consist of`}},
	{because: "an object label that is none", change: objects(labels1("a", "1 2")), remedy: "correct Settings.Objects", reasons: []string{`objectSelector.matchLabels: Invalid value: "1 2": a valid label must be`}},
	{because: "a namespace that is left out", change: namespaces(selector("kubernetes.io/metadata.name", "In", "own", "kube-system")), remedy: "set Settings.AllowClusterCritical", reasons: []string{"namespaceSelector: Forbidden: kube-system holds what a cluster"}, ours: true},
	{because: "nothing: it is asked for with its risk", change: func(s *webhookconf.Step) {
		namespaces(labels1("kubernetes.io/metadata.name", "kube-system"))(s)
		s.AllowClusterCritical = true
	}},
	{because: "labels of the options of a CONNECT", change: func(s *webhookconf.Step) {
		rules(rule("", "v1", "pods/exec", "CONNECT"))(s)
		objects(labels1("a", "1"))(s)
	}, remedy: "leave out Settings.Objects", reasons: []string{"objectSelector: Forbidden: the options of a CONNECT have no labels"}, ours: true},
	{because: "nothing: labels of what is connected to or changed", change: func(s *webhookconf.Step) {
		rules(rule("", "v1", "pods/exec", "CONNECT"), rule("", "v1", "pods", "CREATE"))(s)
		objects(labels1("a", "1"))(s)
	}},
	{because: "no key", change: objects(selector("", "Exists")), remedy: "correct Settings.Objects", reasons: []string{`objectSelector.matchExpressions[0].key: Invalid value: "": name part must be non-empty`, `Invalid value: "": name part must consist of`}},

	{because: "nothing: as many conditions as may be", change: manyConditions(64)},
	{because: "too many conditions", change: manyConditions(65), remedy: fixMany + "64", reasons: []string{"matchConditions: Too many: 65: must have at most 64 items"}},
	{because: "too many conditions beside that of a wildcard", change: func(s *webhookconf.Step) { manyConditions(64)(s); rules(rule("", "v1", "*", "CREATE"))(s) }, remedy: fixMany + "63", reasons: []string{"matchConditions: Too many: 65: must have at most 64 items"}},
	{because: "nothing: as many conditions as may be beside that of a wildcard", change: func(s *webhookconf.Step) { manyConditions(63)(s); rules(rule("", "v1", "*", "CREATE"))(s) }},
	{because: "too many conditions beside that of dying objects", change: func(s *webhookconf.Step) { manyConditions(64)(s); rules(rule("", "v1", "pods", "UPDATE"))(s) }, remedy: fixMany + "63", reasons: []string{"matchConditions: Too many: 65: must have at most 64 items"}},
	{because: "nothing: as many conditions as may be for every update", change: func(s *webhookconf.Step) {
		manyConditions(64)(s)
		updates(s)
		everyUpdate(s)
	}},
	{because: "a condition of the name of a wildcard's", change: func(s *webhookconf.Step) {
		conditions(condition(wildcardCondition, "true"))(s)
		rules(rule("", "v1", "*", "CREATE"))(s)
	}, remedy: fixConditions, reasons: []string{`matchConditions[1].name: Duplicate value: "eirinix.cloudfoundry.org/wildcard"`}},
	{because: "a condition without a name", change: conditions(condition("", "true")), remedy: fixConditions, reasons: []string{"matchConditions[0].name: Required value"}},
	{because: "a condition of a bad name", change: conditions(condition("a b", "true")), remedy: fixConditions, reasons: []string{`matchConditions[0].name: Invalid value: "a b": name part must consist of`}},
	{because: "two conditions of a name", change: conditions(condition("a", "true"), condition("a", "false")), remedy: fixConditions, reasons: []string{`matchConditions[1].name: Duplicate value: "a"`}},
	{because: "an empty condition", change: conditions(condition("a", "")), remedy: fixConditions, reasons: []string{"matchConditions[0].expression: Required value"}},
	{because: "a condition that does not parse", change: conditions(condition("a", "object.metadata.name ==")), theirs: true, remedy: fixConditions, reasons: []string{`matchConditions[0].expression: Invalid value: "object.metadata.name ==": compilation failed: ERROR: <input>:1:24: Syntax error`}},
	{because: "an unknown variable", change: conditions(condition("a", "true"), condition("b", " pod.name == 'x' ")), theirs: true, remedy: fixConditions, reasons: []string{`matchConditions[1].expression: Invalid value: "pod.name == 'x'": compilation failed: ERROR: <input>:1:1: undeclared reference to 'pod'`}},
	{because: "nothing: the libraries", change: conditions(
		condition("a", "quantity('1Gi').isGreaterThan(quantity('1Mi'))"), condition("b", "url('https://x').getScheme() == 'https'"),
		condition("c", "ip('10.0.0.1').family() == 4"), condition("d", "object.spec.containers.all(c, c.image.startsWith('x/'))"),
		condition("e", "semver('1.2.3').major() == 1"), condition("f", "[1, 2].isSorted() && 'a'.find('[a-z]') == 'a'"), condition("g", "sets.contains([1], [1])"),
	)},

	{because: "a timeout of less than nothing", change: func(s *webhookconf.Step) { s.Timeout = -time.Second }, remedy: fixTimeout, reasons: []string{"timeoutSeconds: Invalid value: -1"}},
	{because: "a timeout that is too long", change: func(s *webhookconf.Step) { s.Timeout = 31 * time.Second }, remedy: fixTimeout, reasons: []string{"timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds"}},
	{because: "a timeout of half a second too much", change: func(s *webhookconf.Step) { s.Timeout = 1500 * time.Millisecond }, remedy: fixTimeout, reasons: []string{`timeoutSeconds: Invalid value: "1.5s": the timeout value must be whole seconds`}, ours: true},

	{because: "an unknown mode", change: func(s *webhookconf.Step) { s.Mode = "Watch" }, remedy: "set Settings.Mode to one of these", reasons: []string{`mode: Unsupported value: "Watch"`}, ours: true},
	{because: "an unknown word about owned objects", change: func(s *webhookconf.Step) { s.Owned = "Never" }, remedy: "set Settings.Owned", reasons: []string{`owned: Unsupported value: "Never"`}, ours: true},
	{because: "it validates and sees all objects anyway", change: func(s *webhookconf.Step) { validating(s); s.Owned = webhookconf.OwnedSkip }, remedy: "leave out Settings.Owned", reasons: []string{"owned: Forbidden"}, ours: true},
	{because: "no failurePolicy", change: func(s *webhookconf.Step) { s.FailurePolicy = "" }, remedy: "set Settings.FailurePolicy", reasons: []string{`failurePolicy: Unsupported value: "": supported values: "Fail", "Ignore"`}},
	{because: "an unknown matchPolicy", change: func(s *webhookconf.Step) { s.MatchPolicy = "Roughly" }, remedy: "set Settings.MatchPolicy", reasons: []string{`matchPolicy: Unsupported value: "Roughly": supported values: "Equivalent", "Exact"`}},
	{because: "side effects", change: func(s *webhookconf.Step) { s.SideEffects = admissionregistrationv1.SideEffectClassSome }, remedy: "set Settings.SideEffects", reasons: []string{`sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"`}},
	{because: "an unknown reinvocationPolicy", change: func(s *webhookconf.Step) { s.Reinvoke = "Always" }, remedy: "set Settings.Reinvoke", reasons: []string{`reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"`}},
	{because: "it validates again", change: func(s *webhookconf.Step) { validating(s); ifNeeded(s) }, remedy: "leave out Settings.Reinvoke", reasons: []string{"reinvocationPolicy: Forbidden: a validating webhook is never called again"}, ours: true},
	{because: "nothing: it validates without a reinvocationPolicy", change: func(s *webhookconf.Step) { s.Validating, s.Reinvoke = true, "" }},

	{because: "it has no name", change: func(s *webhookconf.Step) { s.Name = "" }, remedy: "give it a name", reasons: []string{`name: Invalid value: ""`}, ours: true},
	{because: "its name has dots", change: func(s *webhookconf.Step) { s.Name = "a.b" }, remedy: "give it a name", reasons: []string{`name: Invalid value: "a.b"`}, ours: true},
	{because: "its name is too long", change: func(s *webhookconf.Step) { s.Name = strings.Repeat("a", 64) }, remedy: "give it a name", reasons: []string{"must be no more than 63"}, ours: true},
}

var _ = Describe("Check", func() {
	check := func(o webhookconf.Options, steps ...webhookconf.Step) error { return webhookconf.Check(steps, o) }
	each := func(err error) []error { return err.(interface{ Unwrap() []error }).Unwrap() }

	for _, f := range faults {
		It("refuses a step because of "+f.because, func() {
			s := step("volumes", f.change)
			prefix := fmt.Sprintf("eirinix: step %q: ", s.Name)
			err := check(urlOptions(), step("before"), s, step("after", validating))
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
			Expect(each(err)).To(HaveLen(len(f.reasons)), "%v", err)
			for i, reason := range f.reasons {
				Expect(each(err)[i]).To(MatchError(And(HavePrefix(prefix), ContainSubstring(f.remedy), ContainSubstring(reason))))
				_, ok := errors.AsType[*field.Error](each(err)[i])
				Expect(ok).To(BeTrue())
			}
		})
	}

	It("reports all faults of all steps at once", func() {
		Expect(check(urlOptions())).To(Succeed())
		Expect(each(check(urlOptions(), step("one", rules(), conditions(condition("a", ""))), step("two", validating, ifNeeded), step("three")))).To(HaveExactElements(
			MatchError(ContainSubstring(`"one": give at least one rule`)), MatchError(ContainSubstring("matchConditions[0].expression: Required value")),
			MatchError(ContainSubstring(`"two": leave out Settings.Reinvoke`)),
		))
	})

	It("refuses steps that ignore failures and can use up a request's time together", func() {
		slow := func(name string, changes ...change) webhookconf.Step {
			return step(name, append([]change{ignore, func(s *webhookconf.Step) { s.Timeout = 16 * time.Second }}, changes...)...)
		}
		all := rules(rule("", "v1", "pods", "*"))
		err := check(urlOptions(), slow("a", all), step("c", ignore, all), slow("b", all))
		Expect(err).To(MatchError(And(ContainSubstring(`steps "a" (16s), "c" (5s), "b" (16s)`), ContainSubstring("may take 37s"), ContainSubstring("to 30 s together"))))
		Expect(each(err)).To(HaveLen(1), "although they meet in four operations")
		for because, others := range map[string][]change{
			"it has calls of its own, with other policies": {isolated, ifNeeded, exact, dry},
			"it is for other operations too":               {rules(rule("", "v1", "pods", "UPDATE,CREATE"))},
			"it is for other resources too":                {rules(rule("", "v1", "secrets,pods", "CREATE")), kind("", "", "")},
			"it is for them in another rule":               {rules(rule("apps", "v1", "deployments", "CREATE"), rule("", "v1", "pods", "CREATE")), kind("", "", "")},
		} {
			Expect(check(urlOptions(), slow("a"), slow("b", others...))).To(MatchError(ContainSubstring("may take 32s")), because)
		}
		for because, others := range map[string][]change{
			"it is for these resources and operations, but not together": {rules(rule("", "v1", "pods", "DELETE"), rule("", "v1", "secrets", "CREATE")), kind("", "", "")},
			"its conditions may exclude each other":                      {conditions(condition("one", "request.name == 'one'"))},
			"it refuses, and ends the request":                           {func(s *webhookconf.Step) { s.FailurePolicy = admissionregistrationv1.Fail }},
			"validating ones are called at once":                         {validating},
			"a shadow answers at once":                                   {func(s *webhookconf.Step) { s.Mode = webhookconf.ModeShadow }},
			"a shadow of all modes answers at once":                      {func(s *webhookconf.Step) { s.Shadow = true }},
			"it selects other objects":                                   {objects(labels1("a", ""))},
			"30 s are not too long":                                      {func(s *webhookconf.Step) { s.Timeout = 14 * time.Second }},
		} {
			Expect(check(urlOptions(), slow("a"), slow("b", others...))).To(Succeed(), because)
		}
	})

	It("refuses two steps of one name and kind, and lets a mutating and a validating one have the same", func() {
		err := check(urlOptions(), step("a"), step("a", validating), step("a", ignore))
		Expect(each(err)).To(HaveExactElements(MatchError(And(ContainSubstring(`step "a": give it another name: names become webhook names and paths, and must be unique`), ContainSubstring(`Duplicate value: "a"`)))))
	})

	It("refuses a step that has the name of a group", func() {
		group := webhookconf.Group([]webhookconf.Step{step("a")})[0].Name
		Expect(check(urlOptions(), step(group, isolated), step("a"))).To(MatchError(ContainSubstring(`give it another name, because the webhook that "a" shares has this one`)))
		Expect(check(urlOptions(), step(group, isolated), step("a", validating))).To(Succeed())
		Expect(check(urlOptions(), step(group))).To(Succeed(), "it has no entry of its own")
	})

	It("refuses a step about Namespaces and others that would get the program's namespace", func() {
		both := rules(rule("", "v1", "namespaces/status,pods", "CREATE"))
		o := in(urlOptions(), "apps")
		Expect(check(o, step("a", both))).To(MatchError(And(
			ContainSubstring(`step "a": give Namespaces a step of their own, or set Settings.Namespaces`), ContainSubstring("leave out every Namespace but apps"))))
		Expect(check(urlOptions(), step("a", both))).To(Succeed())
		Expect(check(o, step("a", both, namespaces(labels1("a", ""))))).To(Succeed())
		Expect(check(o, step("a", rules(rule("", "v1", "namespaces", "CREATE"))))).To(Succeed())
	})

	It("refuses names that are too long together with the fingerprint", func() {
		o := urlOptions()
		o.Fingerprint = strings.Repeat("x.", 100) + "x"
		Expect(check(o, step("a"))).To(Succeed())
		Expect(check(o, step(strings.Repeat("a", 60)))).To(
			MatchError(And(ContainSubstring("shorten the name or ManagerOptions.OperatorFingerprint"), ContainSubstring("253"))))
	})
})
