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
}
