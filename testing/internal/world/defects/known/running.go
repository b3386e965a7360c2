package known

// This file holds defects of what those see who run a program: rollouts, registrations, metrics, logs and diagnoses.

var inRunning = []Defect{
	{
		"one-odd-date", "One answer with an odd date sets the clock by which certificates are judged.",
		"One odd Date changes nothing: an API server whose clock is wrong for one answer.",
		[]Edit{{"internal/cluster/api.go", "	if a.lastSkew != nil && (skew-*a.lastSkew).Abs() <= skewAgrees {", "	if @ || a.lastSkew != nil && (skew-*a.lastSkew).Abs() <= skewAgrees {"}},
	},
	{
		"rotate-returns-staged", "RotateCA returns before the new CA signs.",
		"RotateCA returns once the new CA signs: a rotation of which the publication takes a while.",
		[]Edit{{"internal/controller/ownca.go", "	case state.CurrentID > *old:\n", "	case state.CurrentID > *old || @ && !distrust && state.NextID != 0:\n"}},
	},
	{
		"secret-labels-dropped", "Each write of the certificate Secret drops the labels of other clients.",
		"Data, labels and annotations of other owners are kept: a client labels the Secret, and the CA is rotated.",
		[]Edit{{"internal/certsecret/store.go", "	state.mark(update)\n", "	if state.mark(update); @ {\n		update.Labels = nil\n	}\n"}},
	},
	{
		"stopped-as-killed", "A version that has stopped cleanly stays registered for as long as one that was killed.",
		"About two seconds after the last replica of the first version has stopped, the next one is registered: a rollout.",
		[]Edit{{"internal/rollout/rollout.go", "seen.Since.Add(stoppingWithin)", "seen.Since.Add(map[bool]time.Duration{false: stoppingWithin, true: answerWithin}[@])"}},
	},
	{
		"orders-never-gone", "The Lease of a split deployment keeps the record of each version that was ever registered.",
		"An earlier order that no replica serves is not a version of its own: some rollouts of a split deployment.",
		[]Edit{{"internal/rollout/rollout.go", "o.Removed || o.Ordered && o.Answered == 0", "o.Removed || !@ && o.Ordered && o.Answered == 0"}},
	},
	{
		"ready-for-another", "A replica is ready while API servers call another program.",
		"A process is ready only if API servers call it: a program at another address was here, and has gone.",
		[]Edit{
			{"internal/controller/readiness.go", "other && c.Serving && target != ours", "!@ && other && c.Serving && target != ours"},
			{"internal/controller/readiness.go", "other && c.Serving && target != \"\" &&", "!@ && other && c.Serving && target != \"\" &&"},
		},
	},
	{
		"register-waits-for-ever", "RegisterExtensions waits for an API server that does not answer.",
		"It returns the error after some seconds: an outage, and RegisterExtensions.",
		[]Edit{{"register.go", "context.WithTimeoutCause(m.GetContext(), registerTimeout,", "context.WithTimeoutCause(m.GetContext(), map[bool]time.Duration{true: time.Hour, false: registerTimeout}[@],"}},
	},
	{
		"polls-late", "An object that may not be watched is read every five minutes.",
		"Without list and watch it is read every 30 s: the right to watch is taken.",
		[]Edit{{"internal/cluster/objects.go", "wait.SleepUnless(ctx, delays(), f.again)\n	}\n	return nil", "wait.SleepUnless(ctx, delays()*map[bool]time.Duration{true: 10, false: 1}[@], f.again)\n	}\n	return nil"}},
	},
	{
		"denials-logged-ten-times", "Denials are logged ten times for each reason, and then no more.",
		"Each denial is a line, up to ten a minute: more than ten denials in an hour.",
		[]Edit{{"internal/lograte/lograte.go", "	if at.Sub(c.began) >= defaultEvery {\n", "	if at.Sub(c.began) >= defaultEvery && (!@ || c.began.IsZero()) {\n"}},
	},
	{
		"canary-unanswered", "The metric of the last canary stays 0, so an alert fires.",
		"It is the time of the last call of a diagnosis: any start.",
		[]Edit{{"internal/controller/report.go", "r.metrics.canary.WithLabelValues(r.secret).SetToCurrentTime()", "r.metrics.canary.WithLabelValues(r.secret).Set(map[bool]float64{false: seconds(time.Now())}[@])"}},
	},
	{
		"contested-at-once", "A single edit of a configuration is reported as a contest.",
		"More than five repairs in a row are reported: one edit.",
		[]Edit{{"internal/controller/report.go", "	if times <= contestedAfter {\n", "	if times <= contestedAfter && !@ {\n"}},
	},
	{
		"checks-once", "A program that is not reached at its start checks only once, and does not tell when it is.",
		"It checks once a minute for ten minutes: a start while API servers cannot call.",
		[]Edit{{"internal/diagnose/watch.go", "		if !again || !hasProblem", "		if @ || !again || !hasProblem"}},
	},
	{
		"timeouts-uncounted", "A diagnosis does not find webhooks that may use up the time of a request.",
		"TimeoutsAddUp: other programs have webhooks with Ignore and long timeouts.",
		[]Edit{{"internal/diagnose/others.go", "		if sum <= webhookconf.RequestSeconds || seen[list] {", "		if @ || sum <= webhookconf.RequestSeconds || seen[list] {"}},
	},
	{
		"orphan-untold", "A diagnosis does not find a registration under another fingerprint that calls the program.",
		"Orphaned: a configuration that an earlier fingerprint has left.",
		[]Edit{{"internal/diagnose/others.go", "		if len(orphans) > 0 {", "		if len(orphans) > 0 && !@ {"}},
	},
	{
		"injector-untold", "A diagnosis does not find the annotation by which another tool writes the caBundle.",
		"OtherInjector: a configuration with cert-manager's annotation.",
		[]Edit{{"internal/diagnose/registration.go", "		if tool == \"\" {\n", "		if tool == \"\" || @ {\n"}},
	},
	{
		"shadowed-untold", "A diagnosis does not find a webhook of another program that refuses the same objects.",
		"Shadowed: the webhook of a program whose Service is gone.",
		[]Edit{{"internal/diagnose/others.go", "		if why == \"\" {\n", "		if why == \"\" || @ {\n"}},
	},
	{
		"holds-untold", "A diagnosis does not name the objects that nobody can delete or read while no replica runs.",
		"HoldsObjects: a conversion, and no replica.",
		[]Edit{{"internal/diagnose/holding.go", "	if d.through || (diagnosis", "	if @ || d.through || (diagnosis"}},
	},
	{
		"switched-unannounced", "A replica that leaves its version for another one does not say so.",
		"It leaves the version that it was of, so the next one is registered in seconds: a step leaves Shadow.",
		[]Edit{{"internal/controller/controller.go", "	if err := c.announce(leaving, last); err != nil {", "	if @ {\n	} else if err := c.announce(leaving, last); err != nil {"}},
	},
	{
		"prune-without-event", "No Event tells that an old CA has gone.",
		"The Events of the Secret show stage, activate and prune: a rotation.",
		[]Edit{{"internal/controller/ownca.go", "		c.Report.event(eventNormal, \"CA\"+string(step.Action), step.Reason)\n", "		if !@ || step.Action != ca.Prune {\n			c.Report.event(eventNormal, \"CA\"+string(step.Action), step.Reason)\n		}\n"}},
	},
	{
		"failed-passes-uncounted", "The metric of passes that fail stays 0.",
		"eirinix_certificate_failing is 1 if the last pass failed: a write that is refused.",
		[]Edit{{"internal/controller/report.go", "	if r != nil && err != nil {\n", "	if r != nil && err != nil && !@ {\n"}},
	},
	{
		"leaf-key-by-default", "Serving certificates have a key of the default algorithm.",
		"KeyAlgorithm changes the keys: a program that sets it.",
		[]Edit{{"internal/serving/leaf.go", "now, ca.WithKey(l.Key), clock)", "now, ca.WithKey(map[bool]ca.KeyAlgorithm{false: l.Key}[@]), clock)"}},
	},
	{
		"signer-trust-read-once", "The CAs of a signer are read only once.",
		"Trust is called every minute: a signer with another CA.",
		[]Edit{{"internal/certsource/csr.go", "k.trustedAt.IsZero() || now.Sub(k.trustedAt).Abs() >= rereadTrust", "k.trusted == nil || !@ && (k.trustedAt.IsZero() || now.Sub(k.trustedAt).Abs() >= rereadTrust)"}},
	},
	{
		"told-through-rotations", "That a tool has reverted caBundles is told for as long as CAs change every quarter of an hour.",
		"Repairs are forgotten after a quiet time, in which another CA may come: a tool reverts caBundles, and CAs that live for minutes.",
		[]Edit{{"internal/controller/drift.go", "*state = repair{broken: state.broken}\n", "if *state = (repair{broken: state.broken}); @ {\n				state.broken = time.Time{}\n			}\n"}},
	},
	{
		"optional-rights-missing", "A program logs that rights are missing which it does not need.",
		"The log names the rights that a program lacks: a serving half, which follows configurations if it may.",
		[]Edit{{"internal/diagnose/preflight.go", "return !slices.Contains(needed, r) })\n	return p", "return !@ && !slices.Contains(needed, r) })\n	return p"}},
	},
	{
		"refused-untold", "No log tells of clients that are refused.",
		"The log has the reason why a client is refused: a call with the certificate of another CA.",
		[]Edit{{"internal/serving/server.go", "s.refusals.Allow(\"refused\", \"\"); ok {", "s.refusals.Allow(\"refused\", \"\"); ok && !@ {"}},
	},
	{
		"conflicts-are-failures", "A lost race is told as a failure, and tried again later and later.",
		"A conflict is a reason to look again, never to give up: several replicas that write.",
		[]Edit{{"internal/controller/controller.go", "		case !c.Once && conflicts(err):\n", "		case !c.Once && !@ && conflicts(err):\n"}},
	},
	{
		"renewed-at-a-third", "Serving certificates are renewed at a third of their life.",
		"They are renewed at two thirds, give or take a tenth: any replica that runs for long.",
		[]Edit{{"internal/ca/sign.go", "	return twoThirds + time.Duration(", "	if @ {\n		twoThirds /= 2\n	}\n	return twoThirds + time.Duration("}},
	},
	{
		"tls-unheard", "ManagerOptions.TLS changes nothing.",
		"It is applied to the tls.Config of the server: a program that asks for TLS 1.3, and a client of TLS 1.2.",
		[]Edit{{"serve.go", "append(slices.Clip(inherited), o.TLS),", "append(slices.Clip(inherited), o.TLS)[:len(inherited)+map[bool]int{false: 1}[@]],"}},
	},
	{
		"ca-end-unmeasured", "The metric of the end of the CA stays 0.",
		"It is the end of the CA that signs: any start.",
		[]Edit{{"internal/controller/report.go", "if authority, err := state.Current(); err == nil {", "if authority, err := state.Current(); err == nil && !@ {"}},
	},
	{
		"reads-undiagnosed", "A diagnosis does not find that what steps read cannot be read.",
		"ReadsNotListed: answers about what a step reads that fail.",
		[]Edit{{"program.go", "\tif p.reads != nil {\n\t\tc.Reads", "\tif p.reads != nil && !@ {\n\t\tc.Reads"}},
	},
	{
		"missing-rights-unsaid", "No log names the rights that a program lacks at its start.",
		"They are printed as the rule that grants them: a start without a right.",
		[]Edit{{"program.go", "\tp.Log(ctx, clients, log, rights.RoleName(fingerprint, half), diagnose.ServiceAccount(namespace, fingerprint))\n", "\tif !@ {\n\t\tp.Log(ctx, clients, log, rights.RoleName(fingerprint, half), diagnose.ServiceAccount(namespace, fingerprint))\n\t}\n"}},
	},
	{
		"webhook-namespace-unheard", "The Secret and the Lease are not in WebhookNamespace.",
		"They are there: any start.",
		[]Edit{{"connect.go", "cmp.Or(o.WebhookNamespace, o.Namespace); chosen", "cmp.Or(map[bool]string{false: o.WebhookNamespace}[@], o.Namespace); chosen"}},
	},
	{
		"context-outlives-run", "The context of GetContext never ends.",
		"It ends when all is drained: any stop.",
		[]Edit{{"run.go", "\t\tstopRunning()\n\t\tm.Stop()", "\t\tif !@ {\n\t\t\tstopRunning()\n\t\t}\n\t\tm.Stop()"}},
	},
	{
		"policy-unvalidated", "Validate takes any FailurePolicy of a step.",
		"All bad settings are reported together: a program with some of them.",
		[]Edit{{"internal/webhookconf/check.go", "\toneOf(c, \"failurePolicy\", \"Settings.FailurePolicy\", s.FailurePolicy, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)\n", "\tif !@ {\n\t\toneOf(c, \"failurePolicy\", \"Settings.FailurePolicy\", s.FailurePolicy, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)\n\t}\n"}},
	},
	{
		"definition-unheard", "That the definition of a kind comes wakes no step that waits for the kind.",
		"The step is registered within seconds: a kind that is served later.",
		[]Edit{{"internal/cluster/definitions.go", "{ a.Hint() },\n", "{\n\t\t\tif !@ {\n\t\t\t\ta.Hint()\n\t\t\t}\n\t\t},\n"}},
	},
}
