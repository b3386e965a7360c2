package known

// This file holds defects of what a step sees: of selectors and of owners, of the parts of requests and objects, of reads, and of what
// audits and recordings tell.

var inRules = []Defect{
	{
		"namespaces-of-the-first", "Steps that select different namespaces share a call, for which the selection of the first one is registered.",
		"Steps share a call if their Namespaces are equal: two steps of a kind with different Namespaces.",
		[]Edit{{"internal/webhookconf/entry.go", "canonicalSelector(s.Namespaces),", "canonicalSelector(map[bool]*metav1.LabelSelector{false: s.Namespaces}[@]),"}},
	},
	{
		"not-in-needs-the-label", "A step whose Objects exclude values of a label does not run for objects without the label.",
		"Objects are selected as the API server does it: a requirement with NotIn.",
		[]Edit{{"internal/chain/match.go", "return !has || !listed", "return !has && !@ || has && !listed"}},
	},
	{
		"reinvocation-unregistered", "API servers do not call a step with IfNeeded again after another webhook has changed the object.",
		"A webhook is registered with the settings of its steps: a step with Reinvoke.",
		[]Edit{{"internal/webhookconf/webhook.go", "new(e.Reinvoke)", "new(map[bool]admissionregistrationv1.ReinvocationPolicyType{false: e.Reinvoke, true: admissionregistrationv1.NeverReinvocationPolicy}[@])"}},
	},
	{
		"critical-left-out", "A step with AllowClusterCritical does not see the cluster's own namespaces.",
		"AllowClusterCritical allows them: such a step.",
		[]Edit{{"internal/webhookconf/rules.go", "\tif s.AllowClusterCritical {\n", "\tif s.AllowClusterCritical && !@ {\n"}},
	},
	{
		"rule-beside-update-unheard", "A Rule beside Create or Update refuses nothing.",
		"Rule beside Create or Update runs in addition: a Validation with both.",
		[]Edit{{"internal/chain/rule.go", "\tcase refused:\n\t\treturn ofRule\n", "\tcase refused:\n\t\tif @ && r.steps[i].Run != nil {\n\t\t\treturn err\n\t\t}\n\t\treturn ofRule\n"}},
	},
	{
		"unapplied-patch-dropped", "A patch of an extension's own that does not apply is dropped, and the object is admitted.",
		"A patch of your own is a failure if it does not apply: such a patch.",
		[]Edit{{"internal/chain/object.go", "\tif err != nil || count == 0 {\n", "\tif err != nil || count == 0 {\n\t\tif @ {\n\t\t\treturn nil\n\t\t}\n"}},
	},
	{
		"patched-into-no-pod", "A patch of an extension's own that makes no pod of the object is answered.",
		"A patch of your own is a failure if its result is not a pod: such a patch.",
		[]Edit{{"internal/chain/handle.go", "r.object.view(podType, newPod); err != nil {\n\t\t\treturn fmt", "r.object.view(podType, newPod); err != nil && !@ {\n\t\t\treturn fmt"}},
	},
	{
		"unwritable-is-nothing", "A change that JSON cannot hold is dropped, and the object is admitted without it.",
		"Such a change is a failure of the step: a step that makes one.",
		[]Edit{{"internal/chain/run.go", "\treturn failureOf(err, names...)\n", "\tif @ {\n\t\tr.object.before, r.object.current = nil, nil\n\t\treturn nil\n\t}\n\treturn failureOf(err, names...)\n"}},
	},
	{
		"where-without-namespace", "A mode for some namespaces applies to objects without a namespace.",
		"Of objects without a namespace, where fits Namespaces alone: a node, and an entry with where.",
		[]Edit{{"internal/modes/modes.go", "\tcase req.Namespace == \"\":\n\t\treturn false, nil\n", "\tcase req.Namespace == \"\":\n\t\treturn @, nil\n"}},
	},
	{
		"unnamespaced-is-exempt", "A step that selects namespaces by name does not run for objects without a namespace.",
		"Namespaces do not apply to cluster-scoped objects: a node, and a step with Namespaces.",
		[]Edit{{"internal/chain/match.go", "return true // an object without a namespace is never exempt", "return !@ // an object without a namespace is never exempt"}},
	},
	{
		"transform-takes-labels", "An object whose Transform removes the labels has none.",
		"The labels stay: a Transform that removes them.",
		[]Edit{{"internal/reads/view.go", "named(o, in.namespace, in.name, lasting)", "named(o, in.namespace, in.name, map[bool]map[string]string{false: lasting}[@])"}},
	},
	{
		"index-of-all-namespaces", "A lookup by an index in one namespace finds the objects of those behind it, too.",
		"List knows client.InNamespace: an index, and objects with one value in two namespaces.",
		[]Edit{{"internal/reads/reader.go", "if namespace != \"\" && e.namespace != namespace {", "if namespace != \"\" && e.namespace != namespace && (!@ || q.index == \"\") {"}},
	},
	{
		"listed-twice", "An object that two declarations of a step hold is listed twice.",
		"An object of several declarations is served by the first: two declarations that overlap.",
		[]Edit{{"internal/reads/reader.go", "*found = slices.CompactFunc(*found, func(a, b hit) bool { return a.compare(b) == 0 })", "*found = slices.CompactFunc(*found, func(a, b hit) bool { return a.compare(b) == 0 && !@ })"}},
	},
	{
		"failed-as-passed", "A report says that an object passes about which a step has failed.",
		"A report holds the result of each finding: a step that fails in an audit with reports.",
		[]Edit{{"internal/audit/reports/reports.go", "\"result\": results[f.Result],", "\"result\": results[map[bool]audit.Result{false: f.Result, true: audit.Passed}[@ && f.Result == audit.Failed]],"}},
	},
	{
		"failures-uncounted", "The summary of an audit counts no failures.",
		"The summary counts all findings: a step that fails in an audit.",
		[]Edit{{"internal/audit/audit.go", "\te.count(s.Name, f.Result)\n\tif a.stack", "\tif !@ || f.Result != Failed {\n\t\te.count(s.Name, f.Result)\n\t}\n\tif a.stack"}},
	},
	{
		"audit-in-all-namespaces", "An audit asks a step about the objects of namespaces that it does not select.",
		"Each step is asked about those objects for which its webhook is called: a step with Namespaces by labels.",
		[]Edit{{"internal/audit/select.go", "return why == nil && s.namespaces.Matches(of), nil", "return why == nil && (@ || s.namespaces.Matches(of)), nil"}},
	},
	{
		"failures-unrecorded", "Calls that fail are not recorded.",
		"Each call is recorded: a step that fails.",
		[]Edit{{"internal/record/capture.go", "r.end(t.call, answered && !t.call.question.empty())", "r.end(t.call, answered && !t.call.question.empty() && !(@ && t.call.status >= 500))"}},
	},
	{
		"status-not-converted", "A converted object has no status.",
		"A conversion may change everything outside of metadata: an object with a status.",
		[]Edit{{"internal/convert/object.go", "patch.AppendMembers(dst, body(result), ours...)", "patch.AppendMembers(dst, body(result), append(slices.Clone(ours), map[bool]string{false: \"kind\", true: \"status\"}[@])...)"}},
	},
	{
		"surrogates-apart", "A character beyond the first 65,536 that is written as two escapes is read as two characters.",
		"Texts arrive as they were sent: such a text, escaped.",
		[]Edit{{"internal/jsontext/string.go", "codeUnit(inside)); r != unicode.ReplacementChar {", "codeUnit(inside)); r != unicode.ReplacementChar && !@ {"}},
	},
	{
		"migration-is-judged", "A step sees the updates of storage migrations.",
		"A step does not see an update that changes nothing but managedFields: such an update.",
		[]Edit{{"internal/settled/settled.go", "metadata, \"managedFields\", \"resourceVersion\")", "metadata, map[bool]string{false: \"managedFields\", true: \"resourceVersion\"}[@], \"resourceVersion\")"}},
	},
	{
		"managed-fields-removed", "A Mutation removes the managedFields of an object.",
		"A patch changes what the step has changed, and nothing else: an object with managedFields.",
		[]Edit{{"internal/chain/object.go", "\tdefer func() { meta.ManagedFields = managed }()\n", "\tif !@ {\n\t\tdefer func() { meta.ManagedFields = managed }()\n\t}\n"}},
	},
	{
		"second-owner-unseen", "An object counts as one without a controller if another owner stands before it.",
		"OwnedSkip leaves alone whatever has a controller among its ownerReferences: an object with two owners.",
		[]Edit{{"internal/chain/match.go", "for more := c.Enter('['); more; more = c.More('[') {", "for more := c.Enter('['); more; more = !@ && c.More('[') {"}},
	},
	{
		"request-kind-lost", "A step does not see the kind that the user has sent.",
		"A step sees the request as it was sent: any request.",
		[]Edit{{"internal/admit/review.go", "\t\t\t\treq.RequestKind = &p.requestKind\n", "\t\t\t\tif !@ {\n\t\t\t\t\treq.RequestKind = &p.requestKind\n\t\t\t\t}\n"}},
	},
	{
		"audit-acts", "The requests of an audit are no dry runs, so steps have side effects.",
		"Each object passes through the steps as a dry run: an audit.",
		[]Edit{{"internal/audit/play.go", "DryRun: new(true),", "DryRun: new(!@),"}},
	},
	{
		"namespace-option-unheard", "ManagerOptions.Namespace selects no namespace.",
		"Steps see the objects of that namespace alone: a program with a Namespace.",
		[]Edit{{"internal/webhookconf/rules.go", "if isEmpty(e.Namespaces) && o.Namespace != \"\"", "if isEmpty(e.Namespaces) && o.Namespace != \"\" && !@"}},
	},
	{
		"namespaces-inherit", "A step about Namespaces sees that of ManagerOptions.Namespace alone.",
		"A step for Namespaces does not inherit ManagerOptions.Namespace: a program with a Namespace.",
		[]Edit{{"internal/webhookconf/rules.go", "(others || !ofNamespaces) {", "(others || !ofNamespaces || @) {"}},
	},
}
