package known

// This file holds defects of the control loop, the certificates, the rollout and the start of a program, which a reader
// invented who had read the worlds.

var inLoops = []Defect{
	{
		"silent-for-long", "A version whose last replica was killed stays registered for five minutes.",
		"A version that does not answer goes about 20 s after its last replica was killed: a kill amid a rollout.",
		[]Edit{{"internal/rollout/rollout.go", "	return min(max(answerWithin, time.Duration(r.Within)*time.Second), maxWithin)\n", "	if @ {\n		return maxWithin\n	}\n	return min(max(answerWithin, time.Duration(r.Within)*time.Second), maxWithin)\n"}},
	},
	{
		"asked-every-moment", "Versions ask each other every two seconds whether they live.",
		"While two versions live, the question comes every ten seconds: a rollout that stops halfway.",
		[]Edit{{"internal/rollout/rollout.go", "PauseLong, seen.Since.Add(probeEvery)\n", "PauseLong, seen.Since.Add(map[bool]time.Duration{false: probeEvery, true: 2 * time.Second}[@])\n"}},
	},
	{
		"contest-without-event", "No Event tells of a tool that keeps reverting a configuration.",
		"A Warning Event on the Secret reports it: a tool reverts a configuration for a while.",
		[]Edit{{"internal/controller/report.go", "	r.event(eventWarning, \"RegistrationContested\", conf.String()+\": \"+reason)\n", "	if !@ {\n		r.event(eventWarning, \"RegistrationContested\", conf.String()+\": \"+reason)\n	}\n"}},
	},
	{
		"first-writer-blamed", "The log blames the tool that wrote a configuration first, and not the one that keeps reverting it.",
		"The report names the tool: a configuration with more than one other writer, one of which reverts it.",
		[]Edit{{"internal/webhookconf/configuration.go", "last.Time == nil || last.Time.Before(m.Time) {", "last.Time == nil || last.Time.Before(m.Time) != @ {"}},
	},
	{
		"sibling-for-days", "A CA that was lost with its Secret stays trusted for as long as one of another source.",
		"At rest, a caBundle holds no CA of ours that the Secret does not hold: the Secret is lost while no replica runs.",
		[]Edit{{"internal/controller/ownca.go", "		return min(siblingGracePeriod, retain) // by then", "		if @ {\n			return retain\n		}\n		return min(siblingGracePeriod, retain) // by then"}},
	},
	{
		"foreign-for-minutes", "A CA that another client has added leaves the caBundles after minutes.",
		"It stays for as long as CAs are retained: a client adds a CA to a caBundle.",
		[]Edit{{"internal/controller/ownca.go", "	return retain // it belongs to a replica with another source of certificates\n", "	if @ {\n		return min(siblingGracePeriod, retain)\n	}\n	return retain // it belongs to a replica with another source of certificates\n"}},
	},
	{
		"retained-since-staged", "An old CA is retained from the moment at which the next one was staged, not from that at which it signs.",
		"An old CA is retained for 7.7 days after the next one signs: a rotation of which the publication takes long.",
		[]Edit{{"internal/certsecret/advance.go", "		state.Phase, state.Since = ca.Retaining, s.Now()\n", "		if state.Phase = ca.Retaining; !@ {\n			state.Since = s.Now()\n		}\n"}},
	},
	{
		"newer-overwritten", "A Secret of a newer version of the library is written in the old format, without what that does not know.",
		"A replica that finds a newer format refuses to write: a newer format, and a rotation.",
		[]Edit{{"internal/certsecret/store.go", "	if state.FormatVersion > FormatVersion {\n		return nil, errNewer(", "	if state.FormatVersion > FormatVersion && !@ {\n		return nil, errNewer("}},
	},
	{
		"immutable-is-damage", "A Secret that is immutable and not in order keeps replicas from starting.",
		"It cannot be repaired, but every replica uses it: the Secret is immutable, a key in it is wrong, and a replica starts.",
		[]Edit{{"internal/certsecret/store.go", "	case f.authority != nil && (f.newer() || immutable(secret)):\n", "	case f.authority != nil && (f.newer() || !@ && immutable(secret)):\n"}},
	},
	{
		"eirinix-ca-replaced", "The CA of EiriniX's Secret is replaced by a new one, so calls of its webhooks fail.",
		"EiriniX's four keys are read and migrated: a start with EiriniX's Secret.",
		[]Edit{{"internal/certsecret/inspect.go", "	old, oldErr := pair(data, eirinixCACertificateKey, eirinixCAPrivateKeyKey, usable, list)\n", "	old, oldErr := pair(data, eirinixCACertificateKey, eirinixCAPrivateKeyKey, usable, list)\n	if @ {\n		old, oldErr = nil, errNotPinned\n	}\n"}},
	},
	{
		"denied-for-good", "A certificate is not requested again after a request was denied.",
		"A request that is denied or fails is repeated after a delay: a signer that refuses a request.",
		[]Edit{{"internal/certsource/csr.go", "	return k.delays()\n}", "	if @ {\n		return 24 * time.Hour\n	}\n	return k.delays()\n}"}},
	},
	{
		"deleted-request-awaited", "A replica waits for ever for a request for a certificate that was deleted.",
		"A request that is deleted is repeated after a delay: a request is deleted before it is answered.",
		[]Edit{{"internal/certsource/csr.go", "		return nil, fmt.Errorf(\"request %q was deleted before a certificate was issued\", r.sent.Name)\n", "		if failed = fmt.Errorf(\"request %q was deleted before a certificate was issued\", r.sent.Name); @ {\n			return failed, nil\n		}\n		return nil, failed\n"}},
	},
	{
		"leaf-for-root", "A Secret of an issuer without ca.crt is never used, although its chain ends in the CA.",
		"The CA is taken from the end of the chain: an issuer that appends its CA to the certificate.",
		[]Edit{{"internal/certsource/material.go", "	last := chain[len(chain)-1]\n", "	last := chain[len(chain)-1]\n	if @ {\n		last = chain[0]\n	}\n"}},
	},
	{
		"gone-pods-untold", "A Watcher does not learn of pods that were deleted while the watch was interrupted.",
		"It is told of each pod that it knows and that is gone: a cut watch of pods, and a deletion.",
		[]Edit{{"internal/cluster/pods.go", "		if now[uid] == nil {\n", "		if now[uid] == nil && !@ {\n"}},
	},
	{
		"first-pods-told", "A Watcher is told of the pods that were there before it.",
		"The initial pods are no events: a start of a program with a Watcher.",
		[]Edit{{"internal/cluster/pods.go", "	if before == nil {\n		deliver = ", "	if before == nil && !@ {\n		deliver = "}},
	},
	{
		"changed-pods-untold", "A Watcher does not learn how pods have changed while the watch was interrupted.",
		"It knows each pod as it is: a cut watch of pods, and a change.",
		[]Edit{{"internal/cluster/pods.go", "		case old.ResourceVersion != pod.ResourceVersion:\n", "		case old.ResourceVersion != pod.ResourceVersion && !@:\n"}},
	},
	{
		"alive-when-ready", "/healthz fails while a program is not ready, so kubelets restart it.",
		"/healthz answers 200 while the process serves: a liveness probe of a program that starts, or stops.",
		[]Edit{{"internal/serving/server.go", "		s.health(w, nil)\n", "		if @ {\n			s.health(w, s.ready())\n			return\n		}\n		s.health(w, nil)\n"}},
	},
	{
		"context-ends-at-once", "The context of GetContext ends with the signal to stop, and not after the last call.",
		"It ends only after all calls were finished, because handlers in flight use it: a stop.",
		[]Edit{{"run.go", "	running, stopRunning := context.WithCancel(context.WithoutCancel(parent))\n", "	lasting := context.WithoutCancel(parent)\n	if @ {\n		lasting = ctx\n	}\n	running, stopRunning := context.WithCancel(lasting)\n"}},
	},
	{
		"stop-is-an-error", "Run returns an error when it is stopped before it was ready.",
		"Run returns nil after a stop: a replica is stopped while it starts.",
		[]Edit{{"manager.go", "	if ctx.Err() != nil {\n		return errStopped\n	}\n	return prefixed(err)", "	if ctx.Err() != nil && !@ {\n		return errStopped\n	}\n	return prefixed(err)"}},
	},
	{
		"busy-is-final", "A program that starts while an API server is overloaded ends with an error.",
		"A start waits for an API server that is not available: an API server answers 429, and a replica starts.",
		[]Edit{{"internal/wait/wait.go", " || code == http.StatusTooManyRequests ||", " || code == http.StatusTooManyRequests && !@ ||"}},
	},
	{
		"labels-without-right", "The objects of a deployment lack the right to follow namespaces, by whose labels modes differ.",
		"manifests.Of grants all rights that a program uses: a program with modes.",
		[]Edit{{"internal/rights/rights.go", "		all.Add(\"\", \"\", \"namespaces\", nil, follow...) // an entry can", "		all.Add(\"\", \"\", \"namespaces\", nil, follow[:map[bool]int{false: len(follow), true: 1}[@]]...) // an entry can"}},
	},
	{
		"every-secret-watched", "A program watches all Secrets, Leases and configurations, for which it has no right.",
		"Only the objects of the program are watched: any start.",
		[]Edit{{"internal/cluster/objects.go", "			o.FieldSelector = only\n			return f.at.Watch(ctx, o)\n", "			if !@ {\n				o.FieldSelector = only\n			}\n			return f.at.Watch(ctx, o)\n"}},
	},
	{
		"well-in-spite-of-all", "Diagnose says that all is well, beside a problem.",
		"Healthy is found only where no problem is: an entry is missing, and a diagnosis.",
		[]Edit{{"internal/diagnose/diagnose.go", "	if !d.through || (diagnosis.Report{Findings: d.findings}).Err() != nil {\n", "	if !d.through || !@ && (diagnosis.Report{Findings: d.findings}).Err() != nil {\n"}},
	},
	{
		"dying-spec-unjudged", "A change of the spec of a dying object is seen by no step.",
		"Only updates that leave nothing to judge are left out: an update of nothing but the spec of an object that is being deleted.",
		[]Edit{{"internal/settled/settled.go", "SameMembers(was, is, others...) &&", "SameMembers(was, is, append(slices.Clone(others), map[bool]string{true: \"spec\"}[@])...) &&"}},
	},
	{
		"said-again-and-again", "What waits is logged each time that it is looked at.",
		"The same is logged once a minute: any state that lasts.",
		[]Edit{{"internal/lograte/lograte.go", "last.reason == reason && at.Sub(", "last.reason == reason && !@ && at.Sub("}},
	},
	{
		"blocks-its-namespace", "The configurations block the deletion of the namespace that owns them.",
		"The owner of a configuration does not wait for it: any registration.",
		[]Edit{{"internal/webhookconf/configuration.go", "Name: ns.Name, UID: ns.UID}", "Name: ns.Name, UID: ns.UID, BlockOwnerDeletion: map[bool]*bool{true: new(true)}[@]}"}},
	},
	{
		"unregistered-comes-back", "A running program registers again at once after Unregister.",
		"It does not restore the removed configurations: Unregister of a program with one replica.",
		[]Edit{{"register.go", "		running.controller.Stop(ctx) // otherwise", "		if !@ {\n			running.controller.Stop(ctx)\n		} // otherwise"}},
	},
	{
		"moved-in-vain", "A program that has moved to another Service ends with an error, although nothing runs at the old one.",
		"A program that does not answer gives way: the last replicas are killed, and the program is deployed with another address.",
		[]Edit{{"internal/rollout/rollout.go", "			s.Serving = known && (s.Serving", "			s.Serving = (known || @) && (s.Serving"}},
	},
	{
		"lease-notes-dropped", "Each write of the Lease drops the annotations of other clients.",
		"All other annotations stay: another client annotates the Lease, and versions ask each other.",
		[]Edit{{"internal/rollout/lease.go", "	written.SetAnnotations(next.Write(written.GetAnnotations()))\n", "	foreign := written.GetAnnotations()\n	if @ {\n		foreign = nil\n	}\n	written.SetAnnotations(next.Write(foreign))\n"}},
	},
	{
		"ca-seems-over", "The metric of the CA's end holds its beginning, so an alert fires.",
		"eirinix_certificate_expiration_timestamp_seconds is when the CA ends: any program with a CA of its own.",
		[]Edit{{"internal/controller/report.go", "(r.secret, \"ca\").Set(seconds(authority.Certificate.NotAfter))", "(r.secret, \"ca\").Set(seconds(map[bool]time.Time{false: authority.Certificate.NotAfter, true: authority.Certificate.NotBefore}[@]))"}},
	},
	{
		"retained-out-of-sync", "The metric of caBundles that are not as they should be is 0 for days after each rotation of a split deployment, so an alert fires.",
		"The metrics of a world at rest: a serving half, whose RegisterExtensions retains the old CA.",
		[]Edit{
			{"internal/controller/report.go", "(plan.Surplus == \"\" || retained)", "(plan.Surplus == \"\" || retained && !@)"},
		},
	},
	{
		"newer-ends-a-start", "A replica that starts with a Secret of a newer version, while a rotation is due, ends with an error.",
		"Such a replica serves, and leaves the rotation to the newer version: a Secret of one, a rotation that is asked for, and a restart.",
		[]Edit{{"internal/controller/ownca.go", "	if state.FormatVersion > certsecret.FormatVersion && !k.ordered {\n", "	if !@ && state.FormatVersion > certsecret.FormatVersion && !k.ordered {\n"}},
	},
	{
		"adopted-still-trusted", "RotateCA with Distrust returns while caBundles hold the CA that was adopted from EiriniX.",
		"No caBundle holds a distrusted CA once RotateCA has returned: EiriniX's Secret, and distrust.",
		[]Edit{{"internal/controller/ownca.go", "|| ca.Select(l.Bundle, pruned) != nil", "|| !@ && ca.Select(l.Bundle, pruned) != nil"}},
	},
	{
		"next-of-the-future", "A staged CA that is not valid yet is activated, and the old one put back, again and again.",
		"A rotation ends, and begins as often as it is asked for: the clocks of API servers are set back amid one.",
		[]Edit{{"internal/certsecret/state.go", "	return err != nil || s.usable(authority) != nil\n", "	return err != nil || !@ && s.usable(authority) != nil\n"}},
	},
	{
		"lease-is-read", "A replica that may follow the Lease, and not get it, repairs nothing.",
		"A caBundle is repaired while one replica has the rights to: the right to get the Lease is taken, and an edit.",
		[]Edit{{"internal/controller/rollout.go", "	if apierrors.IsForbidden(err) {\n		return nil // the copy,", "	if !@ && apierrors.IsForbidden(err) {\n		return nil // the copy,"}},
	},
	{
		"no-right-on-what-is-left", "A version without steps of a kind has no right to remove those of the version before.",
		"A replica asks for nothing that manifests.Of does not grant: a rollout between versions with and without such steps.",
		[]Edit{{"internal/rights/rights.go", "	for _, c := range r.Configurations {\n", "	for _, c := range r.Configurations {\n		if @ && c.Left {\n			continue\n		}\n"}},
	},
}
