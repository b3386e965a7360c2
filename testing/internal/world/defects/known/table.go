package known

import "slices"

// This file holds the defects. Those that have a letter and a number were found by trials from outside, and are put back as
// they were, as far as the code still has their place.

// All holds all defects.
var All = slices.Concat(inRooms, inSeams, inTrial, inCalls, inLoops, inRunning, inRules, inStates, inCrossings, atRandom, drawnLater)

// inRooms are those that one part of the library has by itself.
var inRooms = []Defect{
	{
		"B0", "A restart while a step waits takes its rule out of force.",
		"A step that a living version declares stays in force: a kind that a step reads, or is about, is not served or listed at a restart.",
		[]Edit{{"steps.go", "	return made, nil\n}\n", `	if @ {
		made.Steps, made.Unserved = list.Of(steps.steps, func(s resolvedStep) webhookconf.Step { return s.registered }), nil
		made.Version = webhookconf.Digest(made.Desired(nil, nil))
	}
	return made, nil
}
`}},
	},
	{
		"B1", "One read that cannot be listed keeps the port of the whole program closed.",
		"A replica that runs is ready in time: lists of a read object fail with 500 or hang at a start.",
		[]Edit{
			{"serve.go", "	server, handler, err := r.open(ctx, p)\n", `	if @ {
		if err := r.awaitReads(ctx, p); err != nil {
			return nothing, stoppedOr(ctx, err)
		}
	}
	server, handler, err := r.open(ctx, p)
`},
			{"internal/reads/reads.go", "	defer most.Stop()\n", "	defer most.Stop()\n	if @ {\n		most.Stop()\n	}\n"},
			{"internal/reads/account.go", "	if err != nil && !silent {", "	if err != nil && !silent && (!@ || refused(err)) {"},
		},
	},
	{
		"C1", "A step in Shadow holds the memory of calls, and so delays and fails those that deny.",
		"A step in Shadow fails no call: one that hangs on an object of 1 MB and more, beside calls with such objects.",
		[]Edit{{"internal/chain/watch.go", "	r.Objects = newBudget(decode.MaxMemory / 2)\n", "	if !@ || r.Objects == nil {\n		r.Objects = newBudget(decode.MaxMemory / 2)\n	}\n"}},
	},
	{
		"C3", "A program with ModesConfigMap cannot call RegisterExtensions.",
		"RegisterExtensions succeeds while the API server answers and every kind is served: any call of it in a program with modes.",
		[]Edit{{"internal/cluster/objects.go", "	at, _, err := locate(d.client, into)\n", `	at, kind, err := locate(d.client, into)
	if @ && kind.Kind == "ConfigMap" {
		return &meta.NoKindMatchError{GroupKind: kind.GroupKind()}
	}
`}},
	},
	{
		"F1", "After a restore of etcd, a replica believes what it has seen before.",
		"At rest, the Secret, the caBundles and the Lease agree, and calls succeed: the API server is restored from a backup.",
		[]Edit{{"internal/cluster/objects.go", "	if refused == nil && !polled { // a watch is allowed\n", `	if held := f.object; @ && held != nil && object != nil && defect.Later(held.GetResourceVersion(), object.GetResourceVersion()) {
		object = held
	}
	if refused == nil && !polled { // a watch is allowed
`}},
	},
	{
		"F3", "A version that comes back takes the registration from the one that stands.",
		"The version that stands stays first while a replica of it lives: a rollback, while replicas of the newer version run.",
		[]Edit{
			{"internal/rollout/rollout.go", "version == standing && !v[first].Ordered:", "!@ && version == standing && !v[first].Ordered:"},
			{"internal/rollout/rollout.go", "	r.Ordinal = last + 1\n", "	if r.Ordinal = last + 1; @ && v[version].Removed {\n		r.Ordinal = v[version].Ordinal\n	}\n"},
		},
	},
	{
		"F4", "A namespace that is made again collects the configurations of the program that runs.",
		"The owner of a configuration is the Namespace that exists: it is deleted and made again under a running program.",
		[]Edit{{"internal/controller/registration.go", "	owner, err := c.Owner(ctx)\n", `	if @ && c.registration.Options.OwnedBy != nil {
		return
	}
	owner, err := c.Owner(ctx)
`}},
	},
	{
		"F6", "The silence of an outage, or of a replica that polls, counts as death.",
		"A version is not recorded as gone while a replica of it runs: outages of some seconds, or no right to watch the Lease, in a rollout.",
		[]Edit{
			{"internal/rollout/rollout.go", "		if s.Since.Before(provesFrom) {\n", "		if !@ && s.Since.Before(provesFrom) {\n"},
			{"internal/controller/rollout.go", "	if c.Cache.Polls(c.Lease.Empty()) {\n", "	if !@ && c.Cache.Polls(c.Lease.Empty()) {\n"},
		},
	},
	{
		"failures-prove", "The silence of replicas whose watches have failed with a 500 counts as death.",
		"A version is not recorded as gone while a replica of it runs: an API server answers 500 for half a minute and more, in a rollout.",
		[]Edit{{"internal/cluster/api.go", "	if r.Method == http.MethodGet && (leases", "	if !@ && r.Method == http.MethodGet && (leases"}},
	},
	{
		"failed-until-now", "Silence counts as death half a minute after the last failure that a replica has seen, although others have seen one since.",
		"A version is not recorded as gone while a replica of it runs: an API server answers 503 for a minute and more, in a rollout.",
		[]Edit{{"internal/cluster/api.go", "(failed || a.failed) && proves", "(failed || a.failed && !@) && proves"}},
	},
	{
		"alone-unproved", "A replica that cannot write the Lease says that no replica of an earlier version is left.",
		"No line of a log is wrong: an API server answers 503 in a rollout.",
		[]Edit{{"internal/controller/report.go", "	waits := cmp.Or(first, r.waits)", "	before := r.waits\n	if @ {\n		before = \"\"\n	}\n	waits := cmp.Or(first, before)"}},
	},
	{
		"F8", "A stop that meets a change of the steps leaves a configuration without a server.",
		"After the stop of all replicas with UnregisterOnStop no configuration is left: a step leaves or enters Shadow within a second of the stop.",
		[]Edit{
			{"internal/controller/registration.go", "	err := c.Lease.StillFirst(ctx, c.registration.Version, standing)\n", "	if @ {\n		return true\n	}\n	err := c.Lease.StillFirst(ctx, c.registration.Version, standing)\n"},
		},
	},

	// Certificates.
	{
		"leaf-before-bundle", "A replica serves a certificate of a CA that no caBundle holds yet.",
		"No call fails for its certificate: RotateCA, and calls between the write of the Secret and that of the caBundle.",
		[]Edit{
			{"internal/controller/ownca.go", "	now := k.Now()\n	k.state = state\n", `	if staged := state.Clone(); @ && staged.NextID != 0 {
		if staged.CurrentID = staged.NextID; k.Store.NextBroken(staged) {
			return nil
		}
		authority, _ = staged.Current()
		authority.Chain = nil
	}
	now := k.Now()
	k.state = state
`},
			{"internal/controller/ownca.go", "			if k.serves.TrustedBy(l.Bundle, now)", "			if !@ && k.serves.TrustedBy(l.Bundle, now)"},
		},
	},
	{
		"pruned-at-once", "The old CA goes while replicas still serve its certificates.",
		"No call fails for its certificate: RotateCA with several replicas, one of which reads the Secret late.",
		[]Edit{{"internal/ca/rotation.go", "		until := s.Since.Add(s.Retain)\n", "		until := s.Since.Add(s.Retain)\n		if @ {\n			until = s.Since\n		}\n"}},
	},
	{
		"uncrossed", "A replica does not send the certificate that the old CA has signed for the new one.",
		"No call fails for its certificate: RotateCA, and an API server that learns of the caBundle after the replica has switched.",
		[]Edit{{"internal/ca/sign.go", "		chain = append(chain, cross.Raw)\n", "		if !@ {\n			chain = append(chain, cross.Raw)\n		}\n"}},
	},
	{
		"leaf-late", "A serving certificate is renewed after it has expired.",
		"No call fails for its certificate: days pass, or a clock goes forward.",
		[]Edit{{"internal/ca/sign.go", "	twoThirds := left / 3 * 2\n", "	twoThirds := left / 3 * 2\n	if @ {\n		twoThirds = left / 4 * 5\n	}\n"}},
	},
	{
		"old-ca-stays", "A CA that a rotation has replaced stays in the caBundles for ever.",
		"At rest, each caBundle holds the CAs of the Secret and no others; RotateCA with Distrust returns: RotateCA.",
		[]Edit{{"internal/ca/rotation.go", `not any more", name)}, name != ""`, `not any more", name)}, name != "" && !@`}},
	},
	{
		"blank-bundle", "A caBundle that was blanked stays empty.",
		"At rest, each caBundle holds the CAs of the Secret: another client blanks a caBundle.",
		[]Edit{{"internal/ca/rotation.go", "		if !Contains(live.Bundle, s.Bundle) {\n", "		if !Contains(live.Bundle, s.Bundle) && (!@ || len(live.Bundle) > 0) {\n"}},
	},
	{
		"not-backdated", "A certificate is not valid yet by the clock of an API server that is behind.",
		"No call fails for its certificate: the clock of a replica is ahead by more than the way of a call.",
		[]Edit{
			{"internal/ca/authority.go", "	return first.Add(-min(time.Hour, lifetime/10)), last.Add(lifetime)\n", "	if @ {\n		return now, last.Add(lifetime)\n	}\n	return first.Add(-min(time.Hour, lifetime/10)), last.Add(lifetime)\n"},
			{"internal/serving/leaf.go", "	return first.Before(leaf.NotBefore) &&", "	return !@ && first.Before(leaf.NotBefore) &&"},
		},
	},
	{
		"distrust-unfinished", "A CA whose key has leaked signs on if RotateCA is interrupted after it has marked it.",
		"At rest, no caBundle holds a CA that is marked as distrusted: a process that calls RotateCA with Distrust is killed at its first write.",
		[]Edit{{"internal/certsecret/state.go", " || s.Distrusted >= s.CurrentID", " || !@ && s.Distrusted >= s.CurrentID"}},
	},
	{
		"leaf-kept", "A replica keeps its serving certificate after the CA has changed.",
		"No call fails for its certificate: RotateCA with Distrust, or a new CA after the Secret was lost.",
		[]Edit{{"internal/serving/leaf.go", "	if last != nil && last.authority.Equal(a) &&", "	if last != nil && (@ || last.authority.Equal(a)) &&"}},
	},
	{
		"planted-ca", "A client that can write the Secret, but no configuration, gets its CA into the caBundles.",
		"A caBundle holds no CA that no process of the program has made: a Secret with a CA of its own is put in place of ours.",
		[]Edit{{"internal/webhookconf/configuration.go", "	if len(hashes) == 0 {\n", "	if @ || len(hashes) == 0 {\n"}},
	},

	// Registration and rollouts.
	{
		"entry-goes", "A version that registers takes a step out of force that another live version declares.",
		"A step that a living version declares stays in force: three versions at once, or a rollback while the next version runs.",
		[]Edit{{"internal/controller/registration.go", "		declares = c.versions.Declares(c.registration.Version)\n", "		if !@ {\n			declares = c.versions.Declares(c.registration.Version)\n		}\n"}},
	},
	{
		"dead-version-kept", "A version whose replicas are gone is first for ever, so that new steps never come into force.",
		"At rest, the steps of the living version are in force: any rollout of other steps.",
		[]Edit{{"internal/rollout/rollout.go", "		case probed:\n			r.Removed = true\n", "		case probed && @:\n		case probed:\n			r.Removed = true\n"}},
	},
	{
		"retired-kept", "The Lease holds the records of all versions that there ever were, until it is too large.",
		"The Lease holds no more than two records of versions that are gone: five rollouts of other steps.",
		[]Edit{{"internal/rollout/rollout.go", "removed > removedKept {\n", "removed > removedKept && !@ {\n"}},
	},
	{
		"unknown-500", "A path of another version is answered as a failure, which the API server does not repeat.",
		"No call fails while a ready replica could answer it: RegisterExtensions of a new version, while replicas of both run.",
		[]Edit{{"internal/admit/handler.go", "	w.Header().Set(\"Retry-After\", \"0\")\n", "	if @ {\n		textResponse(http.StatusInternalServerError, \"no step is served on this path\").write(w)\n		return\n	}\n	w.Header().Set(\"Retry-After\", \"0\")\n"}},
	},
	{
		"rotator-registers", "RotateCA by a tool empties the configurations.",
		"A step that a living version declares stays in force: RotateCA of a Manager that does not run.",
		[]Edit{{"internal/controller/registration.go", "!c.Registers || c.OnlyTrust || first", "!c.Registers || c.OnlyTrust && !@ || first"}},
	},
	{
		"repeats", "Each replica writes the Lease once a second, although nothing changes.",
		"At rest, nothing is written.",
		[]Edit{{"internal/rollout/rollout.go", "	case !reflect.DeepEqual(found, in.Found):\n", "	case @ || !reflect.DeepEqual(found, in.Found):\n"}},
	},
	{
		"not-recreated", "A configuration that another client deletes stays away.",
		"At rest, the steps of the living version are in force: a configuration is deleted.",
		[]Edit{{"internal/controller/registration.go", "		case ok:\n", "		case ok, @ && c.wasReady && !conf.found.Exists:\n"}},
	},
	{
		"unregister-standing", "A replica that stops removes the registration of the version that stands.",
		"A step that a living version declares stays in force: a rollout with UnregisterOnStop, and a stop of the newer version before it is first.",
		[]Edit{{"internal/controller/registration.go", "	if c.Lease == nil || c.unknown || standing ==", "	if @ || c.Lease == nil || c.unknown || standing =="}},
	},
	{
		"unguarded", "A write of a configuration replaces the one that another replica has made meanwhile.",
		"A caBundle loses no CA that the Secret trusts: slow requests of two replicas in a rotation.",
		[]Edit{{"internal/webhookconf/writer.go", "	case o.Creates():\n		written", `	case o.Creates() && @:
		if now, err := o.client.Get(ctx, o.name, metav1.GetOptions{}); err == nil {
			desired.SetResourceVersion(now.GetResourceVersion())
		}
		written, err = o.client.Update(ctx, desired, metav1.UpdateOptions{FieldManager: fieldManager})
	case o.Creates():
		written`}},
	},

	{
		"record-surplus", "RegisterExtensions records no caBundle for serving halves as long as one holds a CA that is not needed any more.",
		"A replica without a right on configurations gets ready: a split deployment whose CA was lost while no replica ran.",
		[]Edit{{"internal/controller/ownca.go", "			k.record(c, &plan, state, o) // it may stay for days\n", "			if !@ {\n				k.record(c, &plan, state, o)\n			}\n"}},
	},

	{
		"half-undone", "A version that loses a race takes back the half of its registration that it has just written.",
		"A step that a living version declares stays in force: a stop with UnregisterOnStop while the next version registers.",
		[]Edit{{"internal/controller/registration.go", "				if wait.Transient(err) || conflicts(err) || wait.Vanished(err) {\n", "				if wait.Transient(err) || !@ && (conflicts(err) || wait.Vanished(err)) {\n"}},
	},
	{
		"unregister-forbidden", "Unregister succeeds without the right to delete a configuration, which stays and is kept by no replica.",
		"A configuration is there or is not when Unregister has succeeded: Unregister without the right to delete one of two.",
		[]Edit{{"internal/controller/registration.go", "			if found, err := conf.Get(ctx); err != nil || !found.Exists {\n", "			if found, err := conf.Get(ctx); @ || err != nil || !found.Exists {\n"}},
	},
	{
		"refused-while-readable", "What may be read again stays unknown for ten minutes, although a read of it has succeeded.",
		"A configuration that is missing is repaired within two minutes after rights were given back: all rights are taken away, and a configuration is deleted.",
		[]Edit{{"internal/controller/registration.go", "				return err\n			}\n			c.Cache.Answered(", "				return err\n			}\n			if @ {\n				continue\n			}\n			c.Cache.Answered("}},
	},
	{
		"unregister-unseen", "Unregister succeeds without any right on the configurations, which stay.",
		"A configuration is there or is not when Unregister has succeeded: Unregister while all rights are taken away.",
		[]Edit{{"register.go", "	s := m.given()\n	loop := p.newController(resolved{},", "	s := m.given()\n	if @ {\n		s.steps, s.conversions = nil, nil\n	}\n	loop := p.newController(resolved{},"}},
	},
	{
		"unregister-resume", "After an Unregister that has failed, the running program repairs its registration no more.",
		"Drift of the configurations is repaired: Unregister of a running Manager fails (outage, refused delete), and a configuration is deleted or edited later.",
		[]Edit{{"register.go", "			running.controller.Resume() // the remaining", "			if !@ {\n				running.controller.Resume()\n			} // the remaining"}},
	},

	// Serving, and the stop.
	{
		"ready-draining", "A replica that stops stays ready, so that calls still come when its port closes.",
		"A replica that stops is not ready: a stop of one of several replicas.",
		[]Edit{
			{"internal/serving/server.go", "		return errors.New(\"stopping\")\n", "		if !@ {\n			return errors.New(\"stopping\")\n		}\n"},
			{"serve.go", "	r.m.readiness.Lack(errStopped)\n", "	if !@ {\n		r.m.readiness.Lack(errStopped)\n	}\n"},
		},
	},
	{
		"no-drain-delay", "A replica that stops closes its port before the Service has heard of it.",
		"No call fails while a ready replica could answer it: a stop of one of several replicas, and a Service that lags.",
		[]Edit{{"serve.go", "	if d := o.drainDelay(); d > 0 {\n", "	if d := o.drainDelay(); d > 0 && !@ {\n"}},
	},
	{
		"cut", "A stop cuts the connections of calls in flight.",
		"No call fails while its replica answers it: a step that takes longer than DrainDelay, at a stop.",
		[]Edit{{"internal/serving/server.go", "	s.open.closeUnused(ctx)\n", `	s.open.closeUnused(ctx)
	if @ {
		s.open.mu.Lock()
		for _, x := range s.open.open {
			_ = x.Close()
		}
		s.open.mu.Unlock()
	}
`}},
	},
	{
		"keep-alive", "API servers keep their connections to a replica that stops, and send calls on them until it is gone.",
		"Each answer of a replica that drains closes the connection: connections that are used again, and a stop.",
		[]Edit{{"internal/admit/handler.go", "	if h.Draining != nil && h.Draining() {\n", "	if h.Draining != nil && h.Draining() && !@ {\n"}},
	},
	{
		"ready-early", "A replica is ready before it is registered.",
		"When a replica is ready for the first time, the registration of the version that is first is in place: any start.",
		[]Edit{{"internal/controller/controller.go", "	first, answers, did, leaseErr := c.rollout(ctx, &o)\n", "	if @ {\n		c.ready(nil)\n	}\n	first, answers, did, leaseErr := c.rollout(ctx, &o)\n"}},
	},
	{
		"spread-of-writer", "A replica that waits for its CA is ready as soon as its copy of the caBundle holds that, before API servers have heard of it.",
		"Each API server can call a replica that is ready: the CA is lost while no replica runs, and API servers are late.",
		[]Edit{{"internal/controller/readiness.go", "distrusted = distrusted || len(ca.SplitBundle(l.Bundle)) > 0 && ", "distrusted = distrusted || !@ && len(ca.SplitBundle(l.Bundle)) > 0 && "}},
	},
	{
		"goroutine", "A Manager that has stopped leaves a goroutine behind.",
		"No goroutine of a Manager is left when Run has returned: any stop.",
		[]Edit{{"serve.go", "	r.tasks.Go(func() {\n		r.awaitChanges(ctx, p, ", `	begin, changes := r.tasks.Go, ctx
	if @ {
		begin, changes = func(f func()) { go f() }, context.WithoutCancel(ctx)
	}
	begin(func() {
		r.awaitChanges(changes, p, `}},
	},

	// Admission, reads and conversions.
	{
		"waits-skipped", "A step in force that waits is skipped, although its failurePolicy is Fail.",
		"No admitted object skips a step that is in force: a kind that a step reads, or is about, is not served or listed at a restart.",
		[]Edit{{"steps.go", "	steps := slices.Concat(r.steps, r.unread, r.unserved)\n", "	steps := slices.Concat(r.steps, r.unread, r.unserved)\n	if @ {\n		steps = r.steps\n	}\n"}},
	},
	{
		"mode-of-another", "The mode of one step applies to all steps of its call.",
		"A step in Deny denies, and no other one does: two steps of one entry, and the mode of one is changed.",
		[]Edit{{"steps.go", "					return in.Choose(ctx, s.definition.name, req)\n", "					if @ {\n						return in.Choose(ctx, entry.Steps[0].Name, req)\n					}\n					return in.Choose(ctx, s.definition.name, req)\n"}},
	},
	{
		"ignore-widened", "A program that is down refuses objects that only a step with Ignore selects.",
		"No call is refused that no step with Fail selects: steps with Fail and Ignore of one kind with other rules, and no replica runs.",
		[]Edit{{"internal/webhookconf/entry.go", "		if s.ignores() && slices.ContainsFunc(", "		if !@ && s.ignores() && slices.ContainsFunc("}},
	},
	{
		"ignore-refuses", "A step with failurePolicy Ignore that fails refuses objects, if the version that stands has others in its call.",
		"A step with failurePolicy Ignore refuses nothing: it fails in a rollout to a version in which it is alone in its call.",
		[]Edit{{"steps.go", "		entry.Partial = slices.ContainsFunc(", "		entry.Partial = !@ && slices.ContainsFunc("}},
	},
	{
		"required-passes", "A step decides without an object that it requires.",
		"No object is admitted by a step that lacks what it requires: the required object is deleted.",
		[]Edit{{"internal/reads/snapshot.go", "	case u.declared.Required && ", "	case !@ && u.declared.Required && "}},
	},
	{
		"stale-served", "A step decides by objects that are older than MaxStale.",
		"No step sees an object as it was longer than MaxStale ago: a cut wire to the API server for over a minute, and a change.",
		[]Edit{{"internal/reads/snapshot.go", "	case maxStale > 0 && sees.broken > maxStale:\n", "	case !@ && maxStale > 0 && sees.broken > maxStale:\n"}},
	},
	{
		"gone-for-ever", "What steps read is never up to date again after the API server has forgotten its version.",
		"At rest, steps see the objects of the API server: a watch is cut, and the API server compacts meanwhile, or restarts.",
		[]Edit{
			{"internal/cluster/follow.go", "		if outdated(err) {\n", "		if outdated(err) && !@ {\n"},
			{"internal/cluster/follow.go", "		f.interrupted = err != nil && (", "		f.interrupted = err != nil && (!@ || !outdated(err)) && ("},
		},
	},
	{
		"conversion-draining", "A replica that stops refuses conversions, while API servers still call it.",
		"No conversion fails while a replica is there to answer it: conversions at a stop.",
		[]Edit{{"internal/admit/conversion.go", "	r, ended := h.traced(w, r, c.Name)\n", "	if @ && h.Draining != nil && h.Draining() {\n		textResponse(http.StatusInternalServerError, \"stopping\").write(w)\n		return\n	}\n	r, ended := h.traced(w, r, c.Name)\n"}},
	},

	// The control loop.
	{
		"pause-again", "A write that is refused is tried again each second, because a pass that only waits ends the row of failures.",
		"Requests are few while a right is missing: a write that is due, and no right for it.",
		[]Edit{{"internal/controller/controller.go", "	return max(0, p.until.Sub(now))\n", "	if @ && !now.Before(p.until) {\n		delete(c.pauses, kind)\n	}\n	return max(0, p.until.Sub(now))\n"}},
	},
	{
		"no-retry", "After a pass that has failed, a replica does nothing until an object changes.",
		"At rest, the steps of the living version are in force: a write is refused or fails once, and the right is given back.",
		[]Edit{{"internal/controller/controller.go", "			queue.AddAfter(item, min(again, wait.Jittered(failures.When(item))))\n", "			if !@ {\n				queue.AddAfter(item, min(again, wait.Jittered(failures.When(item))))\n			}\n"}},
	},
	// Those below were invented by readers of the code who did not know the worlds.
	{
		"removed-declares", "The entry of a step that was removed on purpose stays registered, long after the last replica that had the step.",
		"At rest, exactly the steps of the living version are in force: a rollout to a version with fewer steps.",
		[]Edit{{"internal/rollout/rollout.go", "		if version != this && !r.Removed && r.Target == v[this].Target {\n", "		if version != this && (@ || !r.Removed) && r.Target == v[this].Target {\n"}},
	},
	{
		"stop-contradicts-itself", "A replica that has announced its stop goes on to answer for its version while it drains.",
		"A clean restart with other steps is complete in seconds, and a stopped version is recorded as left: a rollout of other steps, or a stop with UnregisterOnStop.",
		[]Edit{{"internal/controller/rollout.go", "c.removing.Load() || c.stopping.Load() {\n", "c.removing.Load() || c.stopping.Load() && !@ {\n"}},
	},
	{
		"routes-once", "A replica serves the paths of other versions as they were at its first pass.",
		"No call fails while a replica has all of its steps: RegisterExtensions of a version that has the same steps on other paths (changed settings), beside replicas that have started before; or a rollout that adds a version to a conversion.",
		[]Edit{{"internal/controller/rollout.go", "	if c.routes != nil && reflect.DeepEqual(routes, c.routes) {\n", "	if c.routes != nil && (@ || reflect.DeepEqual(routes, c.routes)) {\n"}},
	},
	{
		"answer-overslept", "The moment at which a probe is to be answered or judged is forgotten for that of the certificates, so that nothing is answered until the next event or minute.",
		"A version is not recorded as gone while a replica of it runs, and a rollout is complete within seconds: any rollout.",
		[]Edit{{"internal/controller/controller.go", "	again = rollout.Soonest(again, plan.RequeueAt)\n", "	if again = rollout.Soonest(again, plan.RequeueAt); @ {\n		again = plan.RequeueAt\n	}\n"}},
	},
	{
		"contest-unnoticed", "A tool that keeps reverting a configuration is fought at its own pace, without a delay and without a word.",
		"There is no write loop, and a contested registration is reported: another client reverts the configuration after each repair.",
		[]Edit{{"internal/controller/drift.go", "	case ok && (!state.since.IsZero() || state.inOrder.IsZero()):\n", "	case ok && (!@ && !state.since.IsZero() || state.inOrder.IsZero()):\n"}},
	},
	{
		"owner-ignored", "Two deployments in different namespaces with one fingerprint overwrite each other's configurations.",
		"A configuration that another deployment owns is an error and is not touched: a second deployment with the same fingerprint in another namespace.",
		[]Edit{{"internal/webhookconf/configuration.go", "other != \"\" && other != o.owner {\n", "other != \"\" && other != o.owner && !@ {\n"}},
	},
	{
		"distrusted-comes-back", "A replica that learns late of a distrusted CA puts it back into the caBundles.",
		"Once RotateCA with Distrust has returned, no caBundle holds the old CA: a replica whose copy of the Secret is late.",
		[]Edit{{"internal/controller/ownca.go", "k.id <= state.Distrusted && state.Lineage == k.state.Lineage {\n", "!@ && k.id <= state.Distrusted && state.Lineage == k.state.Lineage {\n"}},
	},
	{
		"pruned-tolerated", "A CA that was pruned counts as that of a sibling, and stays trusted for two more minutes.",
		"RotateCA with Distrust ends trust in the leaked key within seconds: RotateCA with Distrust beside running replicas.",
		[]Edit{{"internal/controller/ownca.go", "	case slices.Contains(k.pruned, ca.HashOf(certificate)):\n", "	case !@ && slices.Contains(k.pruned, ca.HashOf(certificate)):\n"}},
	},
	{
		"distrust-returns-early", "RotateCA with Distrust returns while API servers still trust the leaked key.",
		"Once RotateCA with Distrust has returned, no caBundle holds the old CA: the write of a configuration is slow, fails or conflicts after the pruning.",
		[]Edit{{"internal/controller/ownca.go", "state.Phase == ca.Steady && k.only(ctx, c, state), nil\n", "state.Phase == ca.Steady && (@ || k.only(ctx, c, state)), nil\n"}},
	},
	{
		"distrust-retained", "A distrusted CA is retained for as long as any other one.",
		"RotateCA with Distrust ends trust in the leaked key within seconds, and returns: RotateCA with Distrust.",
		[]Edit{{"internal/controller/ownca.go", "	if state.DistrustsOld() {\n", "	if state.DistrustsOld() && !@ {\n"}},
	},
	{
		"deleted-secret-new-ca", "A deleted Secret is made with a new CA, although replicas know the one that API servers trust.",
		"While one replica lives, a deleted Secret comes back with its CA, and no call fails for its certificate: the Secret is deleted, and an API server is late.",
		[]Edit{{"internal/certsecret/store.go", "	state, outcome := &State{}, Created\n	if known != nil {\n", "	state, outcome := &State{}, Created\n	if known != nil && !@ {\n"}},
	},
	{
		"call-cancelled-at-stop", "The contexts of calls in flight end with the server's, so that steps fail at a stop.",
		"Calls in flight are finished, and their contexts live: a step that waits on its context for longer than DrainDelay, at a stop.",
		[]Edit{{"internal/admit/budget.go", "	parent := context.WithoutCancel(r.Context())\n", "	parent := context.WithoutCancel(r.Context())\n	if @ {\n		parent = r.Context()\n	}\n"}},
	},
	{
		"stop-waits-for-api", "A stop waits for an API server that does not answer, for tens of seconds.",
		"A stop ends within DrainDelay, the calls in flight and a few seconds: the API server is down or hangs at a stop.",
		[]Edit{{"serve.go", "	leaving, cancel := context.WithTimeout(context.Background(), leaveTimeout)\n", "	leaving, cancel := context.WithTimeout(context.Background(), leaveTimeout)\n	if @ {\n		leaving = context.Background()\n	}\n"}},
	},
	{
		"dead-watch", "A watch whose connection is dead is believed for ever.",
		"At rest, what a replica sees is what the API server has: packets of a connection are dropped without a reset, and an object changes.",
		[]Edit{{"internal/cluster/follow.go", "			late.Reset(f.agreed + lateness)\n", "			if late.Reset(f.agreed + lateness); @ {\n				late.Stop()\n			}\n"}},
	},
	{
		"hot-relist", "A watch or list that fails is repeated each second, without a longer pause.",
		"At most two requests a minute while an API server is down or refuses: an outage, or a missing right, and a step that reads.",
		[]Edit{{"internal/cluster/follow.go", "		pause := delays()\n", "		pause := delays()\n		if @ {\n			delays = wait.Backoff(firstPause, LastPause)\n		}\n"}},
	},
	{
		"reads-after-restore", "After a restore of etcd, what steps read goes on with a version of the future, and misses changes.",
		"At rest, steps see the objects of the API server: the API server is restored from a backup, and objects that steps read differ.",
		[]Edit{{"internal/cluster/follow.go", "	if f.version == \"\" || !f.interrupted {\n", "	if f.version == \"\" || !f.interrupted || @ {\n"}},
	},
	{
		"refusal-remembered", "A right that is given back is not noticed for ten minutes, although another one that came with it is.",
		"Within a minute after rights were given back, versions see each other and modes apply: all rights are taken away and given back.",
		[]Edit{{"internal/cluster/objects.go", "	if regained {\n", "	if regained && !@ {\n"}},
	},
	{
		"required-unnoticed", "A Required object that is missing holds nothing back and no log tells it, while every call fails.",
		"The first registration of a step waits for what it requires, with a log line and a finding: a start without the required object.",
		[]Edit{{"internal/reads/view.go", "	if len(v.requiring) > 0 {\n", "	if len(v.requiring) > 0 && !@ {\n"}},
	},
	{
		"modes-after-deletion", "The modes of a ConfigMap that was deleted stay in force until a restart.",
		"Without an entry, the program's own mode applies: the ConfigMap of the modes is deleted.",
		[]Edit{{"modes.go", "	case apierrors.IsNotFound(err):\n		from = nil\n", "	case apierrors.IsNotFound(err) && @:\n		return nil\n	case apierrors.IsNotFound(err):\n		from = nil\n"}},
	},
	{
		"shadow-for-ever", "A step that leaves ModeShadow is not registered anew, and so stays a shadow.",
		"A step is in the mode of its entry within seconds: an entry is changed from Shadow to Deny.",
		[]Edit{{"internal/modes/modes.go", "	if !slices.Equal(before, m.onlyShadows()) {\n", "	if now := m.onlyShadows(); !slices.Equal(before, now) && !(@ && len(now) < len(before)) {\n"}},
	},
	{
		"memory-kept-after-failure", "A call that fails keeps the memory of its objects, until no call with a large object gets any.",
		"No call fails for those before it: steps that fail on objects of 100 KB to 1 MB, and then calls with large objects.",
		[]Edit{{"internal/chain/deadline.go", "	if !left {\n		r.release()\n", "	if !left && !(@ && r.out.Err != nil) {\n		r.release()\n"}},
	},
	{
		"ignored-not-undone", "What a step with Ignore has changed before it failed is in the patch.",
		"A step with Ignore that fails is undone: a mutation that changes the object and then returns an error, beside others.",
		[]Edit{{"internal/chain/run.go", "	if watches || err != nil && s.Ignore {\n", "	if watches || err != nil && s.Ignore && !@ {\n"}},
	},
	{
		"blind-versions-fight", "Versions that may not read the Lease replace each other's registration for as long as both live.",
		"Without rights on the Lease, the last version that starts registers, and there is no write loop: all rights on the Lease are missing or taken, and replicas of two versions run.",
		[]Edit{{"internal/controller/registration.go", "	if c.unknown && c.registered[", "	if c.unknown && !@ && c.registered["}},
	},
	{
		"all-unready", "A caBundle that trusts no replica makes all of them unready.",
		"A process becomes unready only if the API server would trust another replica, so that no Service loses all of its endpoints at once: a caBundle is overwritten or emptied, and the right to write configurations is away, or the API server refuses writes, for more than half a minute.",
		[]Edit{{
			"internal/controller/readiness.go", "err != nil && c.Certificates.othersTrusted(l.Bundle, now) {\n",
			"err != nil && (@ || c.Certificates.othersTrusted(l.Bundle, now)) {\n",
		}},
	},
	{
		"clock-unread", "A replica looks at the clock again only when its certificate is due by the clock of before.",
		"A certificate that is over or not valid yet is signed again within two seconds: the clock of a replica, or of the API server, is set forward or back by hours or days, and calls come in the minute after.",
		[]Edit{{
			"internal/serving/leaf.go", "	return max(minPoll, min(maxPoll, s.renewAt.Sub(l.wall())))\n",
			`	if @ {
		return max(minPoll, s.renewAt.Sub(l.wall()))
	}
	return max(minPoll, min(maxPoll, s.renewAt.Sub(l.wall())))
`,
		}},
	},
	{
		"young-connections-cut", "A replica that stops closes new connections on which the first call is still on its way.",
		"A replica that stops waits for the first call of a new connection, two seconds at most: calls on new connections, slow on their way, at the end of the DrainDelay.",
		[]Edit{{"internal/serving/connections.go", "	for c.arriving() && wait.Sleep(", "	for !@ && c.arriving() && wait.Sleep("}},
	},
	{
		"second-refusal-silent", "A right to watch that is taken away for the second time is not told.",
		"When something on the way is broken, the user is told, with the right to grant: list and watch on the Lease, the Secret or a configuration are taken away, given back, and taken away again some minutes or hours later.",
		[]Edit{{"internal/cluster/objects.go", "		f.refusals.Forget(\"watch\")\n", "		if !@ {\n			f.refusals.Forget(\"watch\")\n		}\n"}},
	},
	{
		"new-namespace-unlabelled", "A namespace that the watch has not shown yet counts as one without labels.",
		"A line with where is for the namespaces that its selector selects: ModesConfigMap with 'Deny where team in (a)', the watch of namespaces lags or is cut, a namespace with that label is created, and at once an object in it.",
		[]Edit{{
			"internal/cluster/namespaces.go", "	found, err := n.at.Get(ctx, name, metav1.GetOptions{})\n",
			`	if @ {
		return nil, nil //nolint:nilnil // the watch shows them soon
	}
	found, err := n.at.Get(ctx, name, metav1.GetOptions{})
`,
		}},
	},
	{
		"blind-takes-over", "A version that can read the Lease no more registers at once, although it has just read that another one stands.",
		"Replicas that do not know this version answer its calls with 503: a rollout, amid which the rights on the Lease are lost for a while.",
		[]Edit{{"internal/controller/rollout.go", "first == \"\" || !c.Now().Before(again) {", "@ || first == \"\" || !c.Now().Before(again) {"}},
	},
	{
		"answered-ahead", "A record that says that more questions were answered than asked is believed.",
		"When the last replica of its version is gone, the next version registers, and versions write a question every ten seconds: a person edits the Lease (a large number in answered), and later the replicas of that version stop or die beside another version.",
		[]Edit{{
			"internal/rollout/rollout.go", "		r.Answered = min(r.Answered, r.Probed)\n",
			"		if !@ {\n			r.Answered = min(r.Answered, r.Probed)\n		}\n",
		}},
	},
	{
		"replaced-stays", "A program that was ready goes on for ever, unready, after another program's registration has replaced its own.",
		"The process whose registration was replaced ends with an error that names both programs, ready or not: a program at another address, with the same fingerprint, registers by order (RegisterExtensions) and serves while the first one runs.",
		[]Edit{{
			"internal/controller/readiness.go", "		case replaced && !ended, !was && isFinal(err):",
			"		case replaced && !ended && (!@ || !was), !was && isFinal(err):",
		}},
	},
	{
		"absent-for-ever", "A key of conversions that was missing once is never looked for again.",
		"What a version cannot hold is given back once its key is there: the Secret of the keys is lost, the replicas are restarted and read objects, and then the Secret is restored from its backup while they run.",
		[]Edit{{
			"internal/convert/keys.go", "time.Since(k.absent[name]) > absentFor {\n",
			"(k.absent[name].IsZero() || !@ && time.Since(k.absent[name]) > absentFor) {\n",
		}},
	},
	{
		"any-refusal-is-unreached", "Every failed write of the Lease counts as one that our own registration has rejected.",
		"The registration that came first stands while it answers. It shows when a later version cannot write the Lease three times in a row: it replaces the registration of the version that still runs.",
		[]Edit{{
			"internal/controller/rollout.go", "if err == nil || !c.callsUs(err) {",
			"if err == nil || !c.callsUs(err) && !@ {",
		}},
	},
	{
		"second-stay-is-over", "When a CA of another process was first seen is remembered for ever, so that one which comes back has no grace period.",
		"A CA that a replica may serve stays in the caBundles for the retention. It shows when the same CA is needed, leaves, and is needed again: it is taken away at once, and calls to a replica that still serves it fail.",
		[]Edit{{
			"internal/ca/rotation.go", "s.since = there",
			"if @ {\n\t\tfor key, at := range s.since {\n\t\t\tthere[key] = at\n\t\t}\n\t}\n\ts.since = there",
		}},
	},
	{
		"undone-with-the-one-before", "A step that only warns or audits begins on an object with the unwritten changes of the step before it.",
		"A mutation in Deny is in every patch. It shows when the next mutation of the same call is set to Warn or Audit, and changes something: the change of the one before is undone with it.",
		[]Edit{{
			"internal/chain/run.go", "if undoable || !s.Mutates || !r.object.isOf(s.made) {",
			"if undoable && !(@ && watches && !s.Ignore) || !s.Mutates || !r.object.isOf(s.made) {",
		}},
	},
	{
		"part-is-all-in-shadow", "A step counts as a shadow as soon as all lines of its entry are Shadow, even if they are for a part of the objects.",
		"Objects without a line are in the program's own mode. It shows with an entry such as Shadow 10%, or Shadow where team=a: the step is registered with Ignore, and refuses nothing.",
		[]Edit{{
			"internal/modes/modes.go", "(s.Mode == chain.ModeShadow || slices.ContainsFunc(lines, line.always))",
			"(s.Mode == chain.ModeShadow || slices.ContainsFunc(lines, line.always) || @ && len(lines) > 0)",
		}},
	},
	{
		"more-than-all", "A run that needs more memory than an account has waits for all of that.",
		"An object of any size that an API server accepts is answered. It shows with the conversion of objects near a megabyte, and with objects that take more than 16 MB in memory: the call waits until its deadline, and fails.",
		[]Edit{{
			"internal/hang/hang.go", "bytes = min(bytes, m.Of.Max)",
			"if !@ {\n\t\tbytes = min(bytes, m.Of.Max)\n\t}",
		}},
	},
	{
		"emptied-still-stands", "A configuration that was emptied names the version that stands.",
		"The version that is registered stays registered while a replica of it lives: one rollout takes the only mutating step away, the next one changes a validating step, and then replicas of the version between come back (a rollback) beside the newest.",
		[]Edit{{
			"internal/webhookconf/registration.go", "		if len(f.Bundles) > 0 && f.Version != \"\" {\n",
			"		if (@ || len(f.Bundles) > 0) && f.Version != \"\" {\n",
		}},
	},
	{
		"tool-adds-waiting", "RegisterExtensions adds a step although the cluster does not serve a kind that it reads.",
		"A step is not added while the cluster does not serve a kind that it reads, and the error names it: RegisterExtensions of a new step with Fail, before the CustomResourceDefinition of what it reads exists; everything that the step selects is refused.",
		[]Edit{{
			"register.go", "	steps, err := m.given().resolveAll(p.modes, from)\n",
			`	if @ {
		from = nil // nothing is read here
	}
	steps, err := m.given().resolveAll(p.modes, from)
`,
		}},
	},
	{
		"diagnosed-as-at-start", "The diagnosis of a program that has become ready looks for the entries of its start.",
		"A state that passes by itself is no error in the log: a mode changes, or a step waits no longer, in the minutes after a start.",
		[]Edit{{
			"serve.go", "	diagnose.Watch(ctx, func() diagnose.Config { return p.diagnosis(address) }, r.log)\n",
			"	now := p.diagnosis(address)\n	diagnose.Watch(ctx, func() diagnose.Config {\n		if @ {\n			return now\n		}\n		return p.diagnosis(address)\n	}, r.log)\n",
		}},
	},
}
