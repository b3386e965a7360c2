package known

// This file holds defects of the control loop, the rollout, the certificates and the registration, of which most show where two
// of these meet.

var inCrossings = []Defect{
	{
		"forbidden-write-skipped", "A configuration that must not be written is left out, and nothing tells it.",
		"A right that is missing has its line, and RegisterExtensions fails without it: the right to update a configuration is taken.",
		[]Edit{{"internal/controller/registration.go", "		if apierrors.IsForbidden(err) && !conf.holds {\n", "		if apierrors.IsForbidden(err) && (@ || !conf.holds) {\n"}},
	},
	{
		"half-stays", "A program that may create one configuration alone ends, and leaves it to API servers, which refuse all pods.",
		"Half of a registration is taken back: the right to create one of two is missing at a first start.",
		[]Edit{{"internal/controller/registration.go", "			for _, half := range created { // half", "			for _, half := range created[:map[bool]int{false: len(created)}[@]] { // half"}},
	},
	{
		"failed-is-unready", "A pass that fails makes a replica unready.",
		"An outage of API servers takes no endpoint away: an API server that errs.",
		[]Edit{{"internal/controller/readiness.go", "c.wasReady && err != nil && !ends {", "c.wasReady && err != nil && !ends && !@ {"}},
	},
	{
		"blind-for-ever", "A replica that could not read the Lease for a while does not look into it again before it writes, nor says that it leaves.",
		"Every write is decided on the Lease as it is: rights on it are taken and given back, and then a rollout.",
		[]Edit{{"internal/controller/rollout.go", "	c.unknown, c.sawLease = false, now\n", "	c.unknown, c.sawLease = @ && c.unknown, now\n"}},
	},
	{
		"kept-path-refused", "Replicas answer 503 on a path that their own registration keeps for another version.",
		"Every replica answers there, with the steps that it has: three versions, of which the last one declares a step of the first.",
		[]Edit{{"internal/controller/rollout.go", "rollout.With(routes, c.inForce, c.desired.Kept), again", "rollout.With(routes, c.inForce, map[bool]map[string][]string{false: c.desired.Kept}[@]), again"}},
	},
	{
		"order-again", "Each RegisterExtensions of the same version writes the Lease anew, and each replica answers.",
		"A second call changes nothing: a CronJob that registers.",
		[]Edit{{"internal/rollout/rollout.go", "	if v[version].Ordered && v.First(\"\") == version {", "	if v[version].Ordered && v.First(\"\") == version && !@ {"}},
	},
	{
		"asked-late", "A version whose replicas were killed before the next one starts is asked only ten seconds after that.",
		"About 10 s after a start the version is registered, if all before were killed: a kill of all, and a rollout.",
		[]Edit{{"internal/rollout/rollout.go", "!seen.Serving && seen.Answered == r.Answered:", "!@ && !seen.Serving && seen.Answered == r.Answered:"}},
	},
	{
		"staged-lost", "A rotation that has begun is forgotten when the Secret is lost.",
		"A rotation that was asked for comes: the Secret is deleted while the next CA is staged.",
		[]Edit{{"internal/certsecret/advance.go", "	if s.Phase == ca.Staged && s.NextID != 0 {\n", "	if s.Phase == ca.Staged && s.NextID != 0 && !@ {\n"}},
	},
	{
		"forged-cross", "A CA in the Secret is trusted that names a pinned one as its issuer, without its signature.",
		"A client that can write the Secret alone gets no CA into a caBundle: one that knows how states are written.",
		[]Edit{{"internal/certsecret/inspect.go", "issuer.RawSubject) && cross", "issuer.RawSubject) && (@ || cross"}, {"internal/certsecret/inspect.go", "CheckSignatureFrom(issuer) == nil\n", "CheckSignatureFrom(issuer) == nil)\n"}},
	},
	{
		"advance-unchecked", "Two replicas that take the same step of a rotation both take it.",
		"A step of a rotation is taken once: an annotation that asks for one.",
		[]Edit{{"internal/certsecret/advance.go", "	if err := s.unchanged(secret, from); err != nil {\n", "	if err := s.unchanged(secret, from); err != nil && !@ {\n"}},
	},
	{
		"request-reused", "A certificate is asked for with the request of before, which is answered already.",
		"It is requested anew at two thirds of its life: a signer.",
		[]Edit{{"internal/certsource/csr.go", "	k.open = nil // whatever", "	if !@ {\n		k.open = nil\n	} // whatever"}},
	},
	{
		"wait-never-over", "A certificate that comes back as it was does not end the wait, so an alert fires for good.",
		"A failure leaves the metric when it is over: the Secret of an issuer is damaged, and restored.",
		[]Edit{{"internal/certsource/source.go", "		f.waits = true\n", "		f.waits = !@\n"}},
	},
	{
		"share-not-added", "Steps without a Timeout get no time of their own beside those with one.",
		"Explicit timeouts add up, and 5 s for all others: a call of steps with and without a Timeout.",
		[]Edit{{"internal/webhookconf/entry.go", "	return sum + share\n", "	if @ && sum > 0 {\n		return sum\n	}\n	return sum + share\n"}},
	},
	{
		"deleted-in-the-gap", "An object that is deleted while its watch is interrupted stays in the copy.",
		"A configuration that is deleted comes back: an outage, and a deletion in it.",
		[]Edit{{"internal/cluster/objects.go", "		Restart: func() { now, begun = nil, false },\n", "		Restart: func() {\n			if begun = false; !@ {\n				now = nil\n			}\n		},\n"}},
	},
	{
		"tool-without-modes", "RegisterExtensions registers the modes of the program, and not those of the ConfigMap.",
		"A step in Shadow is registered with Ignore: RegisterExtensions, and a step that is in Shadow.",
		[]Edit{{"register.go", "\"the modes of the steps\", p.firstModes)", "\"the modes of the steps\", map[bool]func(context.Context) error{false: p.firstModes, true: func(context.Context) error { return nil }}[@])"}},
	},
	{
		"stop-races", "A pass that is under way at a stop with UnregisterOnStop writes the registration that has just been removed.",
		"After the stop of all replicas no configuration is left: a stop while a configuration is repaired.",
		[]Edit{{"serve.go", "	p.controller.Stop(ctx) // otherwise", "	if !@ {\n		p.controller.Stop(ctx)\n	} // otherwise"}},
	},
	{
		"half-again", "A program that may create one configuration alone makes and removes it again and again until it ends.",
		"An object is written a few times for one change: the right to create one of two is missing at a first start.",
		[]Edit{{"internal/controller/registration.go", "	c.undone = c.Now().Add(lastRetry)\n", "	if !@ {\n		c.undone = c.Now().Add(lastRetry)\n	}\n"}},
	},
	{
		"known-not-allowed", "A CA that a replica holds is dropped from the Secret if no configuration pins it.",
		"The CAs of the known state are allowed, regardless of pinned: a rotation, while a configuration loses its CAs.",
		[]Edit{{"internal/certsecret/inspect.go", "	if known != nil {\n", "	if known != nil && !@ {\n"}},
	},
	{
		"serving-half-insists", "A serving half that sees no configuration puts its CA back, in place of each that RegisterExtensions has to make.",
		"Calls succeed at rest, because replicas serve certificates of the CA that is registered: a split deployment, rotations, and a restore from a backup.",
		[]Edit{{"internal/certsecret/store.go", "		return s.OthersRegister &&", "		return s.OthersRegister && !@ &&"}},
	},
	{
		"owner-of-before", "The configurations are owned by the namespace as it was at the start, so those that are written after it was made again are collected.",
		"Registered entries stay, and a configuration is owned by the namespace: the namespace is deleted and made again.",
		[]Edit{{"internal/controller/registration.go", "\t\tif c.Owner != nil {\n\t\t\tc.readOwner(ctx)", "\t\tif c.Owner != nil && !@ {\n\t\t\tc.readOwner(ctx)"}},
	},
	{
		"pruned-stay", "A CA that is pruned stays in the Secret, and so in all caBundles.",
		"After a rotation one CA is trusted: a rotation.",
		[]Edit{{"internal/certsecret/advance.go", "\t\tstate.Generations, state.NextID = []Generation{kept}, 0\n", "\t\tif state.NextID = 0; !@ {\n\t\t\tstate.Generations = []Generation{kept}\n\t\t}\n"}},
	},
	{
		"first-step-declares", "Of the steps that versions have behind one path, only the first one counts as declared.",
		"An entry stays while a live version declares its step in any call: three versions, of which two have a step in different calls.",
		[]Edit{{"internal/rollout/rollout.go", "\t\t\t\tfor _, key := range steps {\n\t\t\t\t\tkeys[key] = true", "\t\t\t\tfor _, key := range steps[:map[bool]int{false: len(steps), true: min(1, len(steps))}[@]] {\n\t\t\t\t\tkeys[key] = true"}},
	},
	{
		"never-was-ready", "A replica that has been ready is judged like one that starts.",
		"A caBundle that trusts no replica makes none unready: an edit of a caBundle.",
		[]Edit{{"internal/controller/readiness.go", "\tc.wasReady = c.wasReady || err == nil\n", "\tc.wasReady = !@ && (c.wasReady || err == nil)\n"}},
	},
	{
		"no-lease-no-registration", "A program without any right to the Lease registers nothing.",
		"Versions that cannot see each other register all the same: a start without the right.",
		[]Edit{{"internal/controller/rollout.go", "\tcase errors.Is(err, cluster.ErrUnseen):\n\t\t// The other", "\tcase errors.Is(err, cluster.ErrUnseen) && !@:\n\t\t// The other"}},
	},
	{
		"notes-unwritten", "That a CA is not needed is not noted in a configuration, so it never leaves.",
		"A CA that no replica needs leaves after a while: an issuer with another CA.",
		[]Edit{{"internal/webhookconf/writer.go", "\tif change.Unneeded != nil {\n", "\tif change.Unneeded != nil && !@ {\n"}},
	},
	{
		"noted-since-the-last-pass", "Each pass takes the notes on CAs for new ones.",
		"A CA is noted a few times, and leaves when no replica claims it: an issuer with another CA.",
		[]Edit{{"internal/controller/registration.go", "\tfor hash, since := range before {\n", "\tfor hash, since := range map[bool]map[string]time.Time{false: before}[@] {\n"}},
	},
	{
		"note-left-on-what-is-needed", "A replica leaves the note that a CA is not needed which it needs itself, in each write of a configuration.",
		"A CA stays while a live replica needs it: replicas with certificates of two sources.",
		[]Edit{{"internal/webhookconf/writer.go", "\t\tif there && !ca.Contains(need, text) {\n", "\t\tif there && (@ || !ca.Contains(need, text)) {\n"}},
	},
	{
		"surplus-of-the-first-alone", "Only the first configuration loses the CAs that are not needed.",
		"A CA that another client has added leaves after a while: an edit of the second configuration.",
		[]Edit{{"internal/controller/registration.go", "\tfor _, conf := range o.all {\n\t\tbundle, unneeded := c.trusted(", "\tfor _, conf := range o.all[:min(len(o.all), map[bool]int{false: len(o.all), true: 1}[@])] {\n\t\tbundle, unneeded := c.trusted("}},
	},
	{
		"pins-the-first-ca", "A configuration pins the first CA of its caBundles alone.",
		"It pins all of them: a rotation.",
		[]Edit{{"internal/webhookconf/writer.go", "; !slices.Contains(hashes, hash) {", "; !slices.Contains(hashes, hash) && (!@ || hashes == nil) {"}},
	},
	{
		"changes-unheard", "A change of an object that is followed wakes no pass.",
		"A version answers a question in time: any rollout.",
		[]Edit{{"internal/cluster/objects.go", "\tif changed {\n\t\to.Wake()", "\tif changed && !@ {\n\t\to.Wake()"}},
	},
	{
		"deletions-untaken", "The deletion of an object that is followed is not heard of.",
		"A configuration that is deleted comes back: a deletion.",
		[]Edit{{"internal/cluster/follow.go", ", event.Type == watch.Deleted:\n", ", event.Type == watch.Deleted && !@:\n"}},
	},
	{
		"pauses-stay-long", "After a success, the pauses between tries stay as long as they were.",
		"A write that is refused for a moment is tried again within seconds: rights that are taken for a while, and much later for a moment.",
		[]Edit{{"internal/controller/controller.go", "\t\tfailures.Forget(item)\n", "\t\tif !@ {\n\t\t\tfailures.Forget(item)\n\t\t}\n"}},
	},
	{
		"orders-pile-up", "Each version that was registered by RegisterExtensions precedes all others for as long as it lives.",
		"Only the one that was registered last does: two calls, and a rollout.",
		[]Edit{{"internal/rollout/rollout.go", "\t\to.Ordered = other == version\n", "\t\to.Ordered = other == version || @ && o.Ordered && !o.Removed\n"}},
	},
	{
		"leave-loses-race", "A replica that stops says so only if no other client writes the Lease in that moment.",
		"A write that loses a race is tried again: another client that writes the same object.",
		[]Edit{{"internal/rollout/lease.go", "n == tries ||", "n == tries || @ ||"}},
	},
	{
		"ended-ca-signs", "A CA that has ended is used on.",
		"Another one is made: a program of which nothing runs until its CA has ended.",
		[]Edit{{"internal/ca/authority.go", "\tif now.After(certificate.NotAfter) {\n\t\treturn fmt.Errorf(\"%w at %s\", ErrExpired", "\tif now.After(certificate.NotAfter) && !@ {\n\t\treturn fmt.Errorf(\"%w at %s\", ErrExpired"}},
	},
	{
		"own-change-waits", "A step that comes, or a mode, is registered as late as the next repair of what other clients keep changing.",
		"What this program changes is written at once: a kind that is served later, after repairs.",
		[]Edit{{"internal/controller/controller.go", "c.drift.stale = true", "c.drift.stale = !@"}},
	},
	{
		"refusals-unlimited", "Each request that is refused is logged.",
		"Ten of each webhook and reason are logged in a minute: a client that sends what is no review.",
		[]Edit{{"internal/admit/handler.go", "h.refusals.Of(h.runner", "map[bool]*lograte.Sampler{false: &h.refusals, true: {}}[@].Of(h.runner"}},
	},
	{
		"failures-unlimited", "Each failure of a step is logged.",
		"Ten of each webhook and reason are logged in a minute: a step that always fails.",
		[]Edit{{"internal/chain/log.go", "c.failures.Of(", "map[bool]*lograte.Sampler{false: &c.failures, true: {}}[@].Of("}},
	},
	{
		"within-unheard", "A version whose replicas poll the Lease has ten seconds to answer, like one that watches.",
		"It lives until it had the time that it asks for: a rollout while the Lease may not be watched.",
		[]Edit{{"internal/rollout/rollout.go", "seen.Since.Add(r.within())", "seen.Since.Add(map[bool]time.Duration{false: r.within(), true: answerWithin}[@])"}},
	},
}
