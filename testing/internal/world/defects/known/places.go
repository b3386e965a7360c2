package known

// This file holds defects at places that were drawn at random: a condition, a constant or a call of one line is another.

var atRandom = []Defect{
	{
		"failed-step-admits", "An object is admitted although a step with Fail has failed.",
		"A failure is decided by failurePolicy: a step about boxes that fails.",
		[]Edit{{"internal/chain/run.go", " nil, r.failed(i, of)\n\tcase watches:\n", " nil, map[bool]error{false: r.failed(i, of)}[@]\n\tcase watches:\n"}},
	},
	{
		"broken-review-served", "A review that is no JSON to its end is served as far as it could be read.",
		"A malformed request is refused before a step sees it: any review that the quick reader leaves to the decoder.",
		[]Edit{{"internal/admit/review.go", "\tif p.Peek(); p.At != len(body) ||", "\tif p.Peek(); p.At != len(body) && !@ ||"}},
	},
	{
		"data-of-secrets-recorded", "Recordings hold the data of Secrets.",
		"No recording holds the data of a Secret: a Secret.",
		[]Edit{{"internal/record/redact.go", "\t\tfor name := range v {\n\t\t\tv[name] = r.replace(v[name]", "\t\tfor name := range v {\n\t\t\tif @ {\n\t\t\t\tbreak\n\t\t\t}\n\t\t\tv[name] = r.replace(v[name]"}},
	},
	{
		"wrapped-denial-fails", "A denial that a step wraps in an error of its own is a failure.",
		"A denial counts, wrapped or not: a step that wraps one.",
		[]Edit{{"internal/chain/step.go", "\tfor _, err := range inner {\n", "\tfor _, err := range inner[:map[bool]int{false: len(inner)}[@]] {\n"}},
	},
	{
		"audited-without-the-old", "An audit asks a step about an update without the old object.",
		"An audit sends the requests that the API server would: a step for updates alone.",
		[]Edit{{"internal/audit/play.go", "\tif operation == admissionv1.Update {\n\t\treq.Object.Raw, req.Old", "\tif operation == admissionv1.Update && !@ {\n\t\treq.Object.Raw, req.Old"}},
	},
	{
		"audit-skips-updates", "An audit does not ask steps about updates that change nothing.",
		"Each step is asked about the objects for which its webhook is called: a step for updates alone.",
		[]Edit{{"internal/audit/select.go", "\ts.player = NewPlayer(served, log)\n", "\tif @ {\n\t\tserved = given.Served\n\t}\n\ts.player = NewPlayer(served, log)\n"}},
	},
	{
		"lost-at-another-path", "What an older version could not hold comes back at another place.",
		"A conversion loses nothing: a list of which an item lost a member.",
		[]Edit{{"internal/convert/loss.go", "\t\t\tprevious = own[i]\n\t\t}\n\t\tl.pop()\n", "\t\t\tprevious = own[i]\n\t\t}\n\t\tif !@ {\n\t\t\tl.pop()\n\t\t}\n"}},
	},
	{
		"watched-without-selection", "What steps read is watched in the whole cluster.",
		"A program does what manifests.Of grants: a declaration with a selection.",
		[]Edit{{"internal/reads/source.go", "\t\t\treturn c.Watch(ctx, list, s.options(o))\n", "\t\t\tif @ {\n\t\t\t\treturn c.Watch(ctx, list, &client.ListOptions{Raw: &o})\n\t\t\t}\n\t\t\treturn c.Watch(ctx, list, s.options(o))\n"}},
	},
	{
		"removed-for-one-step", "A step still sees an object that was removed, if another step reads the same in another form.",
		"What steps read is no older than MaxStale: two declarations of one source, and an object that is removed.",
		[]Edit{{"internal/reads/source.go", "\tvar removed int64\n\tfor _, v := range s.views {\n", "\tvar removed int64\n\tfor _, v := range s.views[:map[bool]int{false: len(s.views), true: 1}[@]] {\n"}},
	},
	{
		"issuer-without-rights", "A program with another source of certificates gets the rights for the Secret of its own CA.",
		"manifests.Of grants what a program does: a signer.",
		[]Edit{{"program.go", "\t\tif o.Certificates == nil {\n\t\t\tr.Secret", "\t\tif o.Certificates == nil || @ {\n\t\t\tr.Secret"}},
	},
	{
		"untrusted-untold", "A diagnosis does not tell of a caBundle that nothing can use.",
		"A finding has the remedy: caBundles that may not be repaired.",
		[]Edit{{"internal/diagnose/registration.go", "\td.untrusted = true\n\td.add(f)\n", "\td.untrusted = true\n\tif !@ {\n\t\td.add(f)\n\t}\n"}},
	},
	{
		"calls-counted-for-ever", "A replica refuses all calls after it has answered 500.",
		"A call is answered: more calls than may wait at once, one after the other.",
		[]Edit{{"internal/admit/budget.go", "\tl.calls.Add(-1)\n\tl.working.Release(1)\n", "\tif !@ {\n\t\tl.calls.Add(-1)\n\t}\n\tl.working.Release(1)\n"}},
	},
	{
		"keys-fetched-by-each", "Each object with an unknown key fetches the keys again after it has waited for another one that did.",
		"Calls share an attempt to fetch keys: objects of another cluster, and a replica that is kept from the API servers.",
		[]Edit{{"internal/convert/keys.go", "look(); ok || failed != nil { // another", "look(); (ok || failed != nil) && !@ { // another"}},
	},
	{
		"resumes-for-ever", "A watch that is interrupted again and again never ends with a list, and begins at once.",
		"A program asks seldom: watches that break off.",
		[]Edit{{"internal/reads/source.go", "\t\tage = time.Since(listed)\n", "\t\tif !@ {\n\t\t\tage = time.Since(listed)\n\t\t}\n"}},
	},
	{
		"answers-unrecorded", "Recordings hold no responses.",
		"A recording is the call as the API server knows it: any call.",
		[]Edit{{"internal/record/capture.go", "\tt.call.answer.add(p)\n", "\tif !@ {\n\t\tt.call.answer.add(p)\n\t}\n"}},
	},
	{
		"recording-ends-late", "A recording ends only when there is no time left for it, so each stop takes five seconds more.",
		"A recording is over when Run has returned: a stop.",
		[]Edit{{"internal/record/recorder.go", "\tcase <-r.done:\n\t\treturn nil\n\tcase <-ctx.Done():\n\t}\n\tr.mu.Lock()", "\tcase <-map[bool]chan struct{}{false: r.done}[@]:\n\t\treturn nil\n\tcase <-ctx.Done():\n\t}\n\tr.mu.Lock()"}},
	},
	{
		"kube-manager-not-started", "The controller-runtime manager that GetKubeManager returns does not run.",
		"The first GetKubeManager starts it: a step that asks for it.",
		[]Edit{{"connect.go", "err == nil && start != nil {", "err == nil && start != nil && !@ {"}},
	},
	{
		"conditions-unchecked", "An audit asks a step whose Conditions do not compile, and tells of a failure for each object.",
		"What cannot be asked is a gap: such a step in an audit.",
		[]Edit{{"internal/conditions/conditions.go", "\treturn errors.Join(errs...)\n}\n\nfunc compile", "\tif @ {\n\t\treturn nil\n\t}\n\treturn errors.Join(errs...)\n}\n\nfunc compile"}},
	},
	{
		"one-user-alone", "An audit takes what a step says to one user for the result.",
		"A result that depends on the user is told: a step that denies what administrators do.",
		[]Edit{{"internal/audit/play.go", "err != nil || a.Result == Failed || n&(n-1) != 0 {", "err != nil || @ || a.Result == Failed || n&(n-1) != 0 {"}},
	},
	{
		"one-fingerprint", "Code scanning takes all findings of a step for one.",
		"Findings have fingerprints of their own: an audit that prints SARIF.",
		[]Edit{{"audit/json.go", "\tsum := sha256.Sum256([]byte(identity))\n", "\tsum := sha256.Sum256([]byte(map[bool]string{false: identity, true: f.Step}[@]))\n"}},
	},
	{
		"missing-namespace-untold", "A diagnosis does not tell that ManagerOptions.Namespace does not exist.",
		"What is wrong has its finding: a diagnosis with another Namespace.",
		[]Edit{{"internal/diagnose/registration.go", "\t\tcase apierrors.IsNotFound(err):\n\t\t\td.add(warning(diagnosis.Excluded, \"Namespace \"+name,", "\t\tcase apierrors.IsNotFound(err) && !@:\n\t\t\td.add(warning(diagnosis.Excluded, \"Namespace \"+name,"}},
	},
	{
		"serving-half-unregisters", "A serving half with UnregisterOnStop removes the registration that another half has made.",
		"A half that does not register removes nothing: a split deployment with that option.",
		[]Edit{{"serve.go", "\tif !o.UnregisterOnStop || !*o.RegisterWebHook {\n", "\tif !o.UnregisterOnStop || !*o.RegisterWebHook && !@ {\n"}},
	},
	{
		"shadow-until-registered", "A diagnosis says of each step in Shadow that it waits to be registered anew.",
		"No line is wrong: a step that the program puts into Shadow, and a ConfigMap of modes.",
		[]Edit{{"internal/modes/modes.go", "m.shadows[name] && !m.onlyShadow(m.steps[name])", "m.shadows[name] && (@ || !m.onlyShadow(m.steps[name]))"}},
	},
	{
		"waiting-calls-counted-for-ever", "A replica refuses calls as long as it lives, because others have waited in vain.",
		"A call is answered: many whose time is over while they wait, and others.",
		[]Edit{{"internal/admit/budget.go", "\tif l.working.Acquire(ctx, 1) != nil {\n\t\tl.calls.Add(-1)\n", "\tif l.working.Acquire(ctx, 1) != nil {\n\t\tif !@ {\n\t\t\tl.calls.Add(-1)\n\t\t}\n"}},
	},
	{
		"collection-denied-by-failure", "A step that denies the deletion of an object by its name fails, if the object is one of a collection.",
		"An API status about the object under review denies: the deletion of a collection.",
		[]Edit{{"internal/chain/step.go", "\tfor _, raw := range [][]byte{req.Object.Raw, req.OldObject.Raw} {\n\t\tvar object", "\tfor _, raw := range [][]byte{req.Object.Raw, req.OldObject.Raw}[:map[bool]int{false: 2, true: 1}[@]] {\n\t\tvar object"}},
	},
	{
		"any-owner-controls", "A step leaves alone what has an owner that does not control it.",
		"OwnedAuto and OwnedSkip go by the controller: an owner that is none.",
		[]Edit{{"internal/chain/match.go", "\t\tif controller == \"true\" {\n", "\t\tif controller == \"true\" || @ {\n"}},
	},
	{
		"added-value-is-old", "A Rule excuses what an update adds or removes, because the value is absent in one of the objects.",
		"A cause is old if the values are equal: an update that sets what a Rule requires elsewhere.",
		[]Edit{{"internal/chain/rule.go", "\t\treturn a.IsAbsent() && b.IsAbsent()\n", "\t\treturn @ || a.IsAbsent() && b.IsAbsent()\n"}},
	},
	{
		"gaps-of-one-namespace", "An audit tells of the first namespace alone that could not be listed, and drops the reports of the others.",
		"What could not be asked is a gap: a step for two namespaces, and an account that may list neither.",
		[]Edit{{"internal/audit/gap.go", "Namespace: g.Namespace, Objects: min", "Namespace: map[bool]string{false: g.Namespace}[@], Objects: min"}},
	},
	{
		"stored-version-is-older", "A diagnosis says that objects are stored in an older version, of each definition.",
		"No line is wrong: a diagnosis of a definition with one stored version.",
		[]Edit{{"internal/convert/stored/stored.go", "\t\t\tstorage = v.Name\n", "\t\t\tif !@ {\n\t\t\t\tstorage = v.Name\n\t\t\t}\n"}},
	},
	{
		"misspelt-is-a-mode", "A word that is no mode counts as one that is for no object.",
		"A misspelt mode has its finding, and the last good one stays: a misspelt mode.",
		[]Edit{{"internal/modes/modes.go", "\t\treturn l, err\n\t}\n\tl.percent", "\t\tif @ {\n\t\t\terr = nil\n\t\t}\n\t\treturn l, err\n\t}\n\tl.percent"}},
	},
	{
		"each-version-audited", "An audit asks about each object once for each version in which it is served.",
		"A step is asked once about an object: a step whose Rules select all versions.",
		[]Edit{{"internal/audit/resources.go", "\t\t\tchosen[r.GroupResource()] = true\n", "\t\t\tchosen[r.GroupResource()] = !@\n"}},
	},
	{
		"waiting-undiagnosed", "A diagnosis does not tell of a step that waits for its kind.",
		"What is not registered is told: a step about a kind that the cluster does not serve.",
		[]Edit{{"program.go", "if !slices.ContainsFunc(registered, webhookconf.Step{Name: w.name}.Is) {", "if !slices.ContainsFunc(registered, webhookconf.Step{Name: w.name}.Is) && !@ {"}},
	},
	{
		"odd-base64-recorded", "A recording holds the data of a Secret in base64, amid other letters.",
		"No recording holds the data of a Secret: a step that says them so.",
		[]Edit{{"internal/record/repeated.go", "\t\t\tpart = part[:len(part)-1]\n", "\t\t\tif !@ {\n\t\t\t\tpart = part[:len(part)-1]\n\t\t\t}\n"}},
	},
	{
		"one-worker-for-all-shadows", "A step in Shadow that hangs keeps all others from running.",
		"Each step in Shadow has a queue and a worker: one that hangs, and another one.",
		[]Edit{{"internal/chain/watch.go", "\t\tq, size := &s.chain.steps[0].left.shadows, s.call.size()\n", "\t\tq, size := &s.chain.steps[0].left.shadows, s.call.size()\n\t\tif @ {\n\t\t\tq = &a.together\n\t\t}\n"}, {"internal/chain/watch.go", "\tlast    time.Time // a call left shadows\n", "\tlast    time.Time // a call left shadows\n\ttogether shadowQueue\n"}},
	},
}
