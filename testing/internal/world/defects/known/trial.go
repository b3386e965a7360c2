package known

// This file holds defects that a reader invented who did not know the worlds, and that no defect of the other files resembles.

var inTrial = []Defect{
	{
		"owned-by-the-first-policy", "A step gets the answer of another one to the question whether the object is its maker's.",
		"Each step has a policy of its own for owned objects: a call that a step with OwnedSkip shares with one with OwnedAuto.",
		[]Edit{
			{"internal/chain/chain.go", "(asked == nil || asked.leavesOwned", "(asked == nil || !@ && asked.leavesOwned"},
		},
	},
	{
		"audit-warns", "A step in Audit shows the user its own warnings.",
		"In Audit a user sees nothing: a step that warns, in Audit.",
		[]Edit{
			{"internal/chain/watch.go", "\tif of.mode == ModeAudit {\n", "\tif of.mode == ModeAudit && !@ {\n"},
		},
	},
	{
		"old-by-position", "A Rule compares an item of a list with the one that stood at its place.",
		"Items of lists are paired as in patches: an update moves an item that has violated a Rule before.",
		[]Edit{
			{"internal/chain/rule.go", "valueAt(was, o.Before)", "valueAt(was, map[bool][]string{true: o.After, false: o.Before}[@])"},
		},
	},
	{
		"kept-alive-through-a-call", "A call that was at work when a stop began leaves its connection open.",
		"While a replica drains, every response closes its connection: a call that begins before a stop and ends after it.",
		[]Edit{
			{"internal/admit/handler.go", "\th.closeWhenDraining(w)                        // draining may have begun meanwhile\n", "\tif !@ {\n\t\th.closeWhenDraining(w)\n\t}\n"},
		},
	},
	{
		"chain-of-before", "A replica goes on sending a cross-certificate that the Secret no longer holds.",
		"With Prune the cross-certificate is dropped: RotateCA, and nothing else that has a replica sign anew.",
		[]Edit{
			{"internal/ca/authority.go", "a.Certificate.Equal(b.Certificate) && slices", "a.Certificate.Equal(b.Certificate) && (@ || slices"},
			{"internal/ca/authority.go", "(a.Chain, b.Chain, (*x509.Certificate).Equal)", "(a.Chain, b.Chain, (*x509.Certificate).Equal))"},
		},
	},
	{
		"part-as-report", "A report is replaced by what an audit found of its objects before their list broke off.",
		"A report stays as it is in a gap: a list that breaks off for good after some objects.",
		[]Edit{
			{"internal/audit/reports/reports.go", "\tif covers(g, g.Step, groupVersionResource(w.at.resource), w.at.namespace) {\n", "\tif !@ && covers(g, g.Step, groupVersionResource(w.at.resource), w.at.namespace) {\n"},
		},
	},
	{
		"request-sent-again", "A request for a certificate whose answer was lost is sent again under another name.",
		"Repeating a request creates no second one: the answer to a creation is lost.",
		[]Edit{
			{"internal/certsource/csr.go", "\treturn fmt.Errorf(\"%w: %w\", errUnsent, err)\n", "\tif @ {\n\t\tk.open = nil\n\t}\n\treturn fmt.Errorf(\"%w: %w\", errUnsent, err)\n"},
		},
	},
	{
		"causes-of-the-first", "A denial of several steps has the causes of the first one alone.",
		"Refusals that are joined keep their causes: two steps that share a call deny an object with Invalid.",
		[]Edit{
			{"internal/chain/chain.go", "\t\t\tjoined.status.Details.Causes = append(", "\t\t\tif @ {\n\t\t\t\tcontinue\n\t\t\t}\n\t\t\tjoined.status.Details.Causes = append("},
		},
	},
	{
		"adopted-by-an-update", "A mutation leaves alone an update that makes an object one of a Deployment.",
		"Auto leaves alone what is owned before an update and after it: a user gives a ReplicaSet an owner.",
		[]Edit{
			{"internal/chain/match.go", "\t\tslices.Contains(owners, controllerOf(req.OldObject.Raw)) &&", "\t\t(@ || slices.Contains(owners, controllerOf(req.OldObject.Raw))) &&"},
		},
	},
	{
		"each-step-its-moment", "Each step of a call reads objects as they are when it runs.",
		"All steps of a call see one state: an object that they read changes between two of them.",
		[]Edit{
			{"steps.go", "call.reads.From(ctx, d.name, c.Shared, from.Snapshot)", "shared := c.Shared\n\t\t\tif @ {\n\t\t\t\tshared = func(first func() any) any { return first() }\n\t\t\t}\n\t\t\tcall.reads.From(ctx, d.name, shared, from.Snapshot)"},
		},
	},
	{
		"draws-by-replicaset", "Pods draw by the name of their ReplicaSet, and so anew with each rollout of their Deployment.",
		"A ReplicaSet counts without the pod-template-hash: a mode for a part of the pods, and two ReplicaSets of a Deployment.",
		[]Edit{
			{"internal/modes/modes.go", `o.Kind == "ReplicaSet" && hash != ""`, `!@ && o.Kind == "ReplicaSet" && hash != ""`},
		},
	},
	{
		"kept-is-not-in-force", "The steps of a webhook that is kept are not among those that a configuration says are in force.",
		"A webhook stays while a living version declares one of its steps, also after a second pass: three versions live, and the one that stands is killed.",
		[]Edit{
			{"internal/webhookconf/registration.go", "\tmaps.Copy(steps, d.Kept)\n", "\tif !@ {\n\t\tmaps.Copy(steps, d.Kept)\n\t}\n"},
		},
	},
	{
		"never-forgiven", "Repairs of a configuration count for ever, so that each one waits longer than the one before.",
		"A single edit is repaired within about a second: a tool reverts a configuration for a while, and much later it is edited once.",
		[]Edit{
			{"internal/controller/drift.go", "now.Sub(state.broken) > quiet:", "now.Sub(state.broken) > quiet && !@:"},
		},
	},
	{
		"smallest-is-shed", "Of the values that annotations cannot hold, the smallest ones are lost first.",
		"What does not fit is lost, largest first: an object with a large value and small ones that a version lacks.",
		[]Edit{
			{"internal/convert/annotation.go", "cmp.Compare(losses[j].size(), losses[i].size())", "cmp.Compare(losses[j].size(), losses[i].size()) * map[bool]int{true: -1, false: 1}[@]"},
		},
	},
	{
		"backdated-request", "A certificate of which most is over when it is issued is requested again at once, again and again.",
		"Requests for certificates have pauses: a signer that backdates by more than half of the lifetime.",
		[]Edit{
			{"internal/certsource/csr.go", "\tif k.renewAt.Before(now.Add(k.Retry)) {\n", "\tif k.renewAt.Before(now.Add(k.Retry)) && !@ {\n"},
		},
	},
	{
		"trust-unrecorded", "RegisterExtensions does not record which CAs the caBundles hold.",
		"A new certificate is served when every caBundle holds its CA: a split deployment, and an issuer with a new CA, whose certificates last longer than an old CA is retained.",
		[]Edit{{"internal/controller/controller.go", "		return c.recordTrust(ctx)\n", "		if @ {\n			return nil\n		}\n		return c.recordTrust(ctx)\n"}},
	},
	{
		"swapped-unseen", "The serving half of a split deployment serves a certificate of a new CA at once.",
		"It waits for RegisterExtensions: a split deployment, and an issuer with a new CA.",
		[]Edit{{"internal/controller/issued.go", "	for _, l := range live {\n		if err := f.VerifyNext", "	if @ && o.Unseen {\n		live = nil\n	}\n	for _, l := range live {\n		if err := f.VerifyNext"}},
	},
	{
		"distrusted-waits", "A certificate that no caBundle trusts is served for ten seconds more, although the next one is trusted.",
		"A ready replica's certificate is trusted: a split deployment whose issuer changes its CA before the first RegisterExtensions.",
		[]Edit{{"internal/controller/issued.go", "	trusted := len(live) == 0 ", "	trusted := @ || len(live) == 0 "}},
	},
	{
		"ready-before-trust", "A replica of a serving half that starts is ready although no caBundle holds its CA.",
		"A replica is ready when its certificate verifies against every caBundle: a split deployment, and a replica that starts after an issuer's new CA.",
		[]Edit{
			{"internal/controller/readiness.go", "verifyRecorded(c.versions.Trusted())", "verifyRecorded(map[bool][]byte{false: c.versions.Trusted()}[@])"},
			{"internal/controller/readiness.go", "distrusted := o.Unseen && recorded != nil", "distrusted := !@ && o.Unseen && recorded != nil"},
		},
	},
	{
		"first-entries-alone", "A configuration that gets its first entries trusts only the CA of the program that writes them.",
		"It begins with the CAs of the others: RegisterExtensions of a version with a CA of its own, while replicas of one with an issuer live that had no such step.",
		[]Edit{{"internal/controller/registration.go", "change.Entries, conf.found = &c.desired, o.lent(conf.found)", "if change.Entries = &c.desired; !@ {\n\t\t\t\tconf.found = o.lent(conf.found)\n\t\t\t}"}},
	},
	{
		"refused-clients-uncounted", "No metric counts the clients that are refused.",
		"eirinix_admission_refused_requests_total has all requests that no step saw: callers without the right certificate.",
		[]Edit{{"serve.go", "own.Clients, own.Refused = callers.Clients, handler.Counts().Refused", "if own.Clients = callers.Clients; !@ {\n\t\t\town.Refused = handler.Counts().Refused\n\t\t}"}},
	},
	{
		"failing-for-good", "A failure stays in the metric when it is over.",
		"eirinix_certificate_failing is 1 if the last pass failed: any outage.",
		[]Edit{{"internal/controller/report.go", "	r.metrics.failing.WithLabelValues(r.secret).Set(oneIf(plan.Waiting != nil))\n", "	if !@ {\n\t\tr.metrics.failing.WithLabelValues(r.secret).Set(oneIf(plan.Waiting != nil))\n\t}\n"}},
	},
	{
		"in-flight-when-gone", "A call counts as in flight for good, if its caller does not wait for the answer.",
		"eirinix_admission_in_flight_requests has the requests in flight: a cut amid a call.",
		[]Edit{{"internal/admit/handler.go", "	defer h.Counts().inFlight.Dec()\n", "	defer func() {\n\t\tif !@ || r.Context().Err() == nil {\n\t\t\th.Counts().inFlight.Dec()\n\t\t}\n\t}()\n"}},
	},
	{
		"body-kept", "The memory of a large body stays reserved after its call.",
		"All calls share the memory of bodies: large pods, one after the other.",
		[]Edit{{"internal/admit/budget.go", "	b.unreserve(b.reserved)\n	b.releaseBuffer()\n", "	if !@ {\n\t\tb.unreserve(b.reserved)\n\t}\n	b.releaseBuffer()\n"}},
	},
	{
		"old-object-kept", "The memory of the old object of an update is not given back.",
		"Old objects have an account of their own: updates of large pods, one after the other.",
		[]Edit{{"internal/chain/deadline.go", "	r.old.memory.held.Release()\n", "	if !@ {\n\t\tr.old.memory.held.Release()\n\t}\n"}},
	},
	{
		"extra-of-the-user-lost", "A step does not see the extras of the user.",
		"A step sees the request as it was sent: a user with extras.",
		[]Edit{{"internal/admit/review.go", "user.Extra = p.extra()", "if all := p.extra(); !@ {\n\t\t\t\tuser.Extra = all\n\t\t\t}"}},
	},
	{
		"reinvoked-anyway", "A step with Reinvoke runs again although nothing has changed the object since.",
		"A step sees an object again after another one has changed it, and else not: a step with Reinvoke that is the last to change an object.",
		[]Edit{{"internal/chain/run.go", "(err != nil || !bytes.Equal(r.seen[i], raw))", "(err != nil || @ || !bytes.Equal(r.seen[i], raw))"}},
	},
	{
		"not-reinvoked", "A step with Reinvoke does not see what a later step of its call has changed.",
		"It sees the object again: two steps with Reinvoke that share a call.",
		[]Edit{{"internal/chain/run.go", "		rounds = 2 //", "		if rounds = 2; @ {\n\t\t\trounds = 1\n\t\t}\n\t\t//"}},
	},
	{
		"longest-later-timeout", "Of the Timeouts of the later steps of a call, only the longest one is kept free for them.",
		"A Timeout is a promise to its step: one without hangs before two with.",
		[]Edit{{"internal/chain/deadline.go", "sum += r.steps[i].Timeout", "if sum += r.steps[i].Timeout; @ {\n\t\t\t\tsum = max(sum-r.steps[i].Timeout, r.steps[i].Timeout)\n\t\t\t}"}},
	},
	{
		"bad-request-is-failure", "An API status of 400 that a step returns is a failure, so a step with Ignore admits what it refuses.",
		"An API status of 400, 403 or 422 about the object denies it: a step that returns apierrors.NewBadRequest.",
		[]Edit{{"internal/chain/step.go", "	switch s.Code {\n	case codeBadRequest, codeForbidden", "	if @ && s.Code == codeBadRequest {\n		return false\n	}\n	switch s.Code {\n	case codeBadRequest, codeForbidden"}},
	},
	{
		"any-status-denies", "An API status about another object denies the one under review.",
		"What a step's own client was told is a failure: a step that returns a 403 about another object.",
		[]Edit{{"internal/chain/step.go", "	return isOfKind(req, d.Group, d.Kind) && (", "	return isOfKind(req, d.Group, d.Kind) && (@ || "}},
	},
	{
		"zero-response-denies", "The zero Response of an extension denies the object.",
		"It lets the pod through: an extension that has nothing to say.",
		[]Edit{{"internal/chain/handle.go", "	if !resp.Allowed && reflect.DeepEqual(resp, admission.Response{}) {", "	if !@ && !resp.Allowed && reflect.DeepEqual(resp, admission.Response{}) {"}},
	},
	{
		"by-hand-unseen", "The next step does not see the patch that an extension has made by hand.",
		"Each step sees the result of those before: an extension with a patch of its own before another step.",
		[]Edit{{"internal/chain/object.go", "	o.raw, o.before, o.current = raw, nil, nil\n", "	if o.raw, o.before = raw, nil; !@ {\n		o.current = nil\n	}\n"}},
	},
	{
		"misfit-is-failure", "An object that does not decode is a failure of a step, also of one that only watches, which so refuses it.",
		"What does not decode as it arrived is denied, and in Warn it is a would-deny: an object with a field of another type.",
		[]Edit{{"internal/chain/step.go", "	if !r.steps[i].Lenient && errors.Is", "	if !@ && !r.steps[i].Lenient && errors.Is"}},
	},
	{
		"ports-by-number", "Ports of one number and different protocols count as one item.",
		"A field that the Go types do not know stays with its item: a Service with port 53 for TCP and UDP, of which a step removes the first.",
		[]Edit{{"internal/patch/align.go", "	if k.second != nil {\n		text", "	if k.second != nil && !@ {\n		text"}},
	},
	{
		"another-item-inherits", "An item that takes the place of another one inherits the fields that the Go types do not know.",
		"A new item whose merge key differs inherits nothing: a step replaces an item of a list by another.",
		[]Edit{{"internal/patch/align.go", "	return other == nil || equalBut(", "	return @ || other == nil || equalBut("}},
	},
	{
		"namespaces-are-namespaced", "A namespace counts as an object in a namespace.",
		"A step about namespaces sees them: any such step.",
		[]Edit{{"internal/resources/rules.go", "req.Namespace != \"\" && req.Resource != metav1.GroupVersionResource{Version: \"v1\", Resource: \"namespaces\"}", "req.Namespace != \"\" && (@ || req.Resource != metav1.GroupVersionResource{Version: \"v1\", Resource: \"namespaces\"})"}},
	},
	{
		"operations-of-others", "A step is called for the operations of all steps of its call.",
		"Each step's own rules are evaluated again: steps with different operations that share a call.",
		[]Edit{{"internal/resources/rules.go", "if Names(r.Operations, admissionregistrationv1.OperationType(req.Operation)) &&", "if (@ || Names(r.Operations, admissionregistrationv1.OperationType(req.Operation))) &&"}},
	},
	{
		"new-namespace-by-the-cluster", "The mode for a namespace as an object is chosen by the labels that the cluster has of it.",
		"As in a namespaceSelector, a Namespace is selected by its own labels: a mode with where, and a namespace that is created.",
		[]Edit{{"internal/modes/modes.go", "	case req.Resource.Group == \"\" && req.Resource.Resource == \"namespaces\" && req.SubResource == \"\":", "	case !@ && req.Resource.Group == \"\" && req.Resource.Resource == \"namespaces\" && req.SubResource == \"\":"}},
	},
	{
		"found-by-old-value", "An index finds an object by the value that it had before a change.",
		"A step finds objects by what they are: an index, and an object that changes.",
		[]Edit{{"internal/reads/view.go", "	if replaced {\n		v.unindex(old)\n	} else {", "	if replaced && @ {\n	} else if replaced {\n		v.unindex(old)\n	} else {"}},
	},
	{
		"limit-before-selector", "The limit of a List counts objects that its selector does not select.",
		"A List returns as many objects as its limit says, if there are: a limit and a selector of labels.",
		[]Edit{{"internal/reads/reader.go", "	for _, h := range found {\n		if q.limit > 0 && used == q.limit {", "	for at, h := range found {\n		if q.limit > 0 && (used == q.limit || @ && at >= q.limit) {"}},
	},
	{
		"first-item-comes-last", "An item that was lost at the front of a list comes back as the last one.",
		"What a version cannot hold comes back as it was: a version that leaves out the first item of a list.",
		[]Edit{{"internal/convert/restore.go", "	of.follow(list, \"\")\n	for i, item", "	if !@ {\n		of.follow(list, \"\")\n	}\n	for i, item"}},
	},
	{
		"unguarded-definition", "The conversion webhook of a CustomResourceDefinition is written without the guard of its resourceVersion.",
		"A write is guarded by the resourceVersion it was decided on: any write of a definition.",
		[]Edit{{"internal/webhookconf/writer.go", "	existing.SetResourceVersion(\"\")\n", "	if !@ {\n		existing.SetResourceVersion(\"\")\n	}\n"}},
	},
	{
		"hang-punishes-all", "A step that hangs with large objects keeps all other steps from running.",
		"Steps that do not hang go on: runs of one step hang that hold more than 32 MiB.",
		[]Edit{{"internal/hang/hang.go", "(runs == 0 || bytes < all.Max)", "(runs == 0 && !@ || bytes < all.Max)"}},
	},
	{
		"reports-of-another-version", "An audit leaves the reports of steps that it has nothing to tell about.",
		"A report is removed when its objects are clean: an audit of a version without a step, after one with.",
		[]Edit{{"internal/audit/reports/reports.go", "	if w.wrote[describe(report)] || slices", "	told := false\n	for name := range w.wrote {\n		told = told || strings.Contains(name, \"-\"+about[stepAnnotation]+\"-\")\n	}\n	if @ && !told || w.wrote[describe(report)] || slices"}},
	},
	{
		"reports-of-the-cluster", "Findings about objects without a namespace get no report.",
		"Findings are also ClusterPolicyReports: a step about namespaces, and an audit with reports.",
		[]Edit{{"internal/audit/reports/reports.go", "ofCluster(kind) == (namespace == \"\") {", "ofCluster(kind) == (namespace == \"\") && !(@ && namespace == \"\") {"}},
	},
	{
		"key-not-learned", "A replica that knows a key of conversions learns no other one.",
		"What is kept under a key comes back once the key is published: a replica that starts while another key is in the Secret, and others that know the old one.",
		[]Edit{{"internal/convert/keys.go", "	k.Learn(keys...)\n	k.mu.Lock()\n", "	if !@ || len(all) == 0 {\n		k.Learn(keys...)\n	}\n	k.mu.Lock()\n"}},
	},
	{
		"reserve-too-late", "A certificate of an issuer that is close to its end is replaced only when it is over.",
		"It is replaced when nine tenths of its life are over: a split deployment, and no RegisterExtensions after an issuer's new CA.",
		[]Edit{
			{"internal/controller/issued.go", "/ reserve)\n", "/ reserve)\n\tif @ {\n\t\tdeadline = leaf.NotAfter\n\t}\n"},
		},
	},
	{
		"doubt-remembered", "That a caBundle has trusted the next certificate counts, although it did not meanwhile.",
		"A new certificate waits ten seconds from when every caBundle trusts it: a tool takes its CA from a caBundle, which is repaired.",
		[]Edit{
			{"internal/controller/issued.go", "\t\tif f.trusted = nil; f.since.IsZero() {\n", "\t\tif !@ {\n\t\t\tf.trusted = nil\n\t\t}\n\t\tif f.since.IsZero() {\n"},
		},
	},
	{
		"lease-alone", "The order in the Lease alone decides which version is first, whatever stands in the configurations.",
		"The version that stands repairs its registration: the Lease is lost in a rollout, and a configuration after that.",
		[]Edit{
			{"internal/controller/rollout.go", "\tc.standing = standing\n", "\tif c.standing = standing; @ {\n\t\tstanding = \"\"\n\t}\n"},
		},
	},
	{
		"register-retains-distrusted", "RegisterExtensions keeps a distrusted CA for as long as any other.",
		"No caBundle holds a distrusted CA: a split deployment, and a RotateCA with Distrust that is interrupted.",
		[]Edit{
			{"internal/controller/registration.go", "\tif plan.Distrusted {\n", "\tif plan.Distrusted && !@ {\n"},
		},
	},
	{
		"older-ca-adopted", "A replica adopts a CA from its copy of the Secret that is older than the one that it signs with.",
		"A Secret that was set back is put right: an earlier state is put into it.",
		[]Edit{
			{"internal/certsecret/store.go", "\tif f.authority == nil || f.outcome != Adopted {\n", "\tif @ {\n\t\tf = s.judge(secret, nil, newAllowlist(known, pinned))\n\t}\n\tif f.authority == nil || f.outcome != Adopted {\n"},
		},
	},
	{
		"owner-lost", "A configuration loses its owner when another version registers.",
		"A configuration is owned by the namespace: a rollout.",
		[]Edit{
			{"internal/webhookconf/forms.go", "\towners := object.GetOwnerReferences()\n", "\tif was := object.GetAnnotations()[VersionAnnotation]; @ && was != \"\" && was != d.Version {\n\t\tobject.SetOwnerReferences(nil)\n\t\td.Options.OwnedBy = nil\n\t}\n\towners := object.GetOwnerReferences()\n"},
		},
	},
	{
		"late-lease-reverts", "A replica with a late copy of the Lease reverts what another version has written.",
		"The version that stands is first while a replica of it lives: watches that are late in a rollout.",
		[]Edit{
			{"internal/controller/rollout.go", "\tif c.Lease == nil || c.unknown || c.Once || c.unreached", "\tif @ || c.Lease == nil || c.unknown || c.Once || c.unreached"},
		},
	},
	{
		"arriving-cut", "A stop cuts a connection on which a further request is arriving.",
		"No call fails at a stop: a call whose body arrives at the end of the DrainDelay.",
		[]Edit{
			{"internal/serving/connections.go", "\t\tif !x.used {\n", "\t\tif !x.used || @ && !x.busy {\n"},
		},
	},
	{
		"replace-unwoken", "A change of the steps in a running program waits for the next pass.",
		"A step is registered within seconds after what it waits for is there.",
		[]Edit{
			{"serve.go", "\t\t\tp.objects.Wake()\n", "\t\t\tif !@ {\n\t\t\t\tp.objects.Wake()\n\t\t\t}\n"},
		},
	},
	{
		"unconfirmed-never", "The next CA signs although nothing has confirmed that every caBundle holds it.",
		"Every configuration is read anew before a CA signs: a tool takes the next CA from a caBundle.",
		[]Edit{
			{"internal/controller/ownca.go", "\t\tif step.Action == ca.Activate {\n", "\t\tif step.Action == ca.Activate && !@ {\n"},
		},
	},
	{
		"version-forbidden", "A program whose account may not read the version of the API server does not start.",
		"An API server that answers with Forbidden does respond: a cluster without the usual rights of all accounts.",
		[]Edit{
			{"run.go", "\t\tif apierrors.IsForbidden(err) {\n", "\t\tif apierrors.IsForbidden(err) && !@ {\n"},
		},
	},
	{
		"background-ends-first", "What a program follows ends with the signal to stop, and not after the last call.",
		"Background tasks end after the server has been drained.",
		[]Edit{
			{"run.go", "\tbackground, stopBackground := context.WithCancel(context.WithoutCancel(ctx))\n", "\tbackground, stopBackground := context.WithCancel(context.WithoutCancel(ctx))\n\tif @ {\n\t\tstopBackground()\n\t\tbackground, stopBackground = context.WithCancel(ctx)\n\t}\n"},
		},
	},
	{
		"held-untold", "RegisterExtensions succeeds although a step waits and is not registered.",
		"It returns the steps that wait as an error: a kind that is not served.",
		[]Edit{
			{"register.go", "\treturn steps.held()\n", "\tif @ {\n\t\treturn nil\n\t}\n\treturn steps.held()\n"},
		},
	},
	{
		"opens-unaware", "A replica opens its port before it knows the paths of other versions.",
		"API servers can call as soon as the port is open: a restart with other steps where a balancer asks for no readiness.",
		[]Edit{
			{"serve.go", "*p.resolved.Load(), p.routes(ctx))", "*p.resolved.Load(), map[bool]map[string]rollout.Route{false: p.routes(ctx)}[@])"},
		},
	},
	{
		"waits-for-the-quickest", "A record says how soon the last replica that wrote it answers, and not the slowest.",
		"A version is not recorded as gone while a replica of it runs: some replicas poll the Lease, in a rollout.",
		[]Edit{
			{"internal/rollout/rollout.go", "max(r.Within, initial.Within)\n", "map[bool]int64{false: max(r.Within, initial.Within), true: initial.Within}[@]\n"},
		},
	},
	{
		"clock-of-another", "The next pass is due by a clock that is behind, so a replica passes without a pause.",
		"A program at rest does nothing: the clock of the API server is behind.",
		[]Edit{
			{"internal/controller/controller.go", "\treturn c.Now().Add(at.Sub(now))\n", "\tif @ {\n\t\treturn at\n\t}\n\treturn c.Now().Add(at.Sub(now))\n"},
		},
	},
	{
		"rotation-late", "A CA is replaced shortly before its end.",
		"A rotation begins at half of the CA's life.",
		[]Edit{
			{"internal/ca/rotation.go", "\treturn certificate.NotBefore.Add(certificate.NotAfter.Sub(certificate.NotBefore) / 2)\n", "\tif @ {\n\t\treturn certificate.NotAfter.Add(-certificate.NotAfter.Sub(certificate.NotBefore) / 10)\n\t}\n\treturn certificate.NotBefore.Add(certificate.NotAfter.Sub(certificate.NotBefore) / 2)\n"},
		},
	},
	{
		"handled-forgotten", "One annotation on the Secret requests rotations for ever.",
		"Each new value triggers one rotation.",
		[]Edit{
			{"internal/certsecret/advance.go", "\t\tstate.Handled = state.Request\n", "\t\tif !@ {\n\t\t\tstate.Handled = state.Request\n\t\t}\n"},
		},
	},
	{
		"mirror-stays", "The keys tls.crt, tls.key and ca.crt of the Secret stay wrong once they differ from its state.",
		"They hold the current CA: another client changes one of them.",
		[]Edit{
			{"internal/certsecret/inspect.go", "mirrorFault(data, f.authority); f.reason != \"\" {", "mirrorFault(data, f.authority); f.reason != \"\" && !@ {"},
		},
	},
	{
		"asked-when-over", "The next certificate is requested when the last one is over.",
		"It is requested at two thirds of its life: a signer.",
		[]Edit{
			{"internal/certsource/csr.go", "\tk.renewAt = leaf.NotBefore.Add(ca.RenewIn(leaf.NotAfter.Sub(leaf.NotBefore), mathrand.Float64()*2-1))\n", "\tk.renewAt = leaf.NotBefore.Add(ca.RenewIn(leaf.NotAfter.Sub(leaf.NotBefore), mathrand.Float64()*2-1))\n\tif @ {\n\t\tk.renewAt = leaf.NotAfter\n\t}\n"},
		},
	},
	{
		"whole-trust-store", "A replica registers all CAs of its source, also those that verify no certificate of it.",
		"A replica registers only the CAs that verify its certificate: a ca.crt with further CAs.",
		[]Edit{
			{"internal/certsource/served.go", "\tif roots == nil {\n", "\tif roots == nil || @ {\n"},
		},
	},
	{
		"chain-of-one", "Certificates of CAs in between are not taken from the source.",
		"A certificate with its chain is served: an issuer with a CA in between.",
		[]Edit{
			{"internal/certsource/material.go", "\t\tcertificate.Certificate = append(certificate.Certificate, c.Raw)\n", "\t\tif i == 0 || !@ {\n\t\t\tcertificate.Certificate = append(certificate.Certificate, c.Raw)\n\t\t}\n"},
		},
	},
	{
		"newer-api-dropped", "Fields of an entry that this library does not know are dropped with each write.",
		"What a newer API or another tool added survives: a field is added to an entry.",
		[]Edit{
			{"internal/webhookconf/writer.go", "\tif old == nil || equality", "\tif @ || old == nil || equality"},
		},
	},
	{
		"pins-stay", "The annotation with the pinned CAs stays as it was first written.",
		"A configuration pins the CAs of its caBundles: RotateCA.",
		[]Edit{
			{"internal/webhookconf/writer.go", "\t\tannotate(desired, PinsAnnotation, strings.Join(HashesOf(change.Bundle), \",\"))\n", "\t\tif !@ || desired.GetAnnotations()[PinsAnnotation] == \"\" {\n\t\t\tannotate(desired, PinsAnnotation, strings.Join(HashesOf(change.Bundle), \",\"))\n\t\t}\n"},
		},
	},
	{
		"trust-as-slow-as-entries", "Repairs of caBundles that are reverted again and again wait for up to ten minutes.",
		"They wait up to 15 s, because every call fails without them: a tool that reverts caBundles.",
		[]Edit{
			{"internal/controller/controller.go", "trustDrift: newDrift(trustTroubleMost),", "trustDrift: newDrift(map[bool]time.Duration{false: trustTroubleMost, true: maxTrouble}[@]),"},
		},
	},
	{
		"probes-need-certificates", "The health endpoints ask for the certificate of a caller.",
		"Health endpoints stay open: ClientCA.",
		[]Edit{
			{"internal/serving/server.go", "\tswitch r.URL.Path {\n\tcase \"/healthz\":", "\tif @ && s.Clients != nil && s.Clients.Check(r.TLS) != nil {\n\t\ts.refuse(w, r, ErrNoClientCertificate)\n\t\treturn\n\t}\n\tswitch r.URL.Path {\n\tcase \"/healthz\":"},
		},
	},
	{
		"extension-gets-the-original", "An Extension gets the pod itself that its patch is compared with.",
		"The pod is Handle's own copy: an Extension that changes it in place.",
		[]Edit{{"internal/chain/handle.go", "		return copiedPod(onPod.pod), nil\n", "		if @ {\n\t\t\treturn onPod.pod, nil\n\t\t}\n		return copiedPod(onPod.pod), nil\n"}},
	},
	{
		"extension-changes-later", "What an Extension does to its pod after PatchFromPod reaches the steps behind it.",
		"PatchFromPod does not keep the pod: an Extension that goes on with it, and shares its call.",
		[]Edit{{"internal/chain/handle.go", "		onPod.after = copiedPod(pod)\n", "		if onPod.after = copiedPod(pod); @ {\n\t\t\tonPod.after = pod\n\t\t}\n"}},
	},
}
