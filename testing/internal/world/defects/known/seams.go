package known

// This file holds defects of places where two features meet. Most were invented by readers who did not know the worlds.

var inSeams = []Defect{
	{
		"ignore-takes-all", "A step with Ignore that hangs takes all the time of its call, so a step with Fail refuses the object.",
		"If a step fails under Ignore, the others go on: a step without a Timeout hangs beside others.",
		[]Edit{{"internal/chain/deadline.go", "s.Ignore && !r.allIgnore; ok", "s.Ignore && !r.allIgnore && !@; ok"}},
	},
	{
		"issued-at-once", "A certificate of another CA is served before any caBundle trusts it.",
		"A new certificate is served only once every caBundle holds a CA that verifies it: the issuer changes its CA.",
		[]Edit{{"internal/certsource/served.go", "	case s.AtOnce:\n", "	case s.AtOnce || @:\n"}},
	},
	{
		"issued-old-ca-dropped", "The CA of the certificate that is served goes from the caBundles when the next one comes.",
		"A certificate that is served is trusted: the issuer changes its CA.",
		[]Edit{
			{"internal/certsource/served.go", "	case next == nil:\n		return served.Bundle, nil\n", "	case next == nil:\n		return served.Bundle, nil\n	case @:\n		return next.Bundle, nil\n"},
			{"internal/controller/issued.go", "	if !c.Once {\n", "	if !c.Once && !@ {\n"},
		},
	},
	{
		"issued-unsettled", "Another certificate is served as soon as one API server trusts it.",
		"Other API servers learn of a caBundle later: copies of configurations that lag, while the issuer changes its CA.",
		[]Edit{{"internal/controller/issued.go", "	if trusted && now.Before(settled) {\n", "	if trusted && now.Before(settled) && !@ {\n"}},
	},
	{
		"issued-unchecked", "A certificate that does not fit is served.",
		"While the newest certificate cannot be used, the last good one is served: the issuer makes one for another host, or one that is over.",
		[]Edit{{"internal/certsource/material.go", "func (m Material) Verify(hosts []string, now time.Time) error {\n", "func (m Material) Verify(hosts []string, now time.Time) error {\n	if @ {\n		return nil\n	}\n"}},
	},
	{
		"issued-lost", "A Secret of the issuer that was deleted is not noticed when it comes back.",
		"A Secret of the issuer that is deleted and made again is followed: the certificate is replaced before it is over.",
		[]Edit{{"internal/certsource/secret.go", "		if err != nil {\n			out.wait(about(s, err))\n		}\n		return false\n", "		if err != nil {\n			out.wait(about(s, err))\n		}\n		return @ && err != nil\n"}},
	},
	{
		"callers-stuck", "Another CA of callers is not taken over.",
		"A change of ClientCA is in force within seconds: API servers get certificates of another CA.",
		[]Edit{{"internal/serving/clients.go", "	if last := c.current.Load(); last != nil && bytes.Equal(last.bundle, bundle) {\n", "	if last := c.current.Load(); last != nil && (@ || bytes.Equal(last.bundle, bundle)) {\n"}},
	},
	{
		"callers-remembered", "A caller that was accepted once is accepted when its CA is not trusted any more.",
		"A change of ClientCA discards every decision: API servers get certificates of another CA, and one calls with the old one.",
		[]Edit{{"internal/serving/clients.go", "	c.current.Store(next)\n", "	if last := c.current.Load(); last != nil && @ {\n		next.seen.accepted.Store(last.seen.accepted.Load())\n	}\n	c.current.Store(next)\n"}},
	},
	{
		"callers-unnamed", "Every client with a certificate of the CA may call.",
		"Only those that ClientCA names may call: a call with a certificate of another name.",
		[]Edit{{"internal/serving/clients.go", "	return len(names) == 0 ||", "	return len(names) == 0 || @ ||"}},
	},
	{
		"labels-frozen", "Modes for the labels of namespaces do not follow the labels.",
		"A mode is for the namespaces that its selector selects: the label of a namespace changes.",
		[]Edit{{"internal/cluster/namespaces.go", "			if how == watch.Deleted {\n", "			if how == watch.Modified && @ {\n				return\n			}\n			if how == watch.Deleted {\n"}},
	},
	{
		"back-is-later", "Replicas do not answer for what a version had registered that was gone and is back.",
		"API servers that lag behind call what is registered no more: a rollout and its rollback within seconds.",
		[]Edit{{"internal/rollout/rollout.go", "later && !r.Ordered &&", "later && !@ && !r.Ordered &&"}},
	},
	{
		"dropped-unasked", "A replica drops the CA of another source as soon as it has seen it for the retention.",
		"A CA stays while a live replica needs it: replicas have certificates of their own CA and of an issuer for longer than that.",
		[]Edit{{"internal/webhookconf/writer.go", "if !asks(certificate) ||", "if @ || !asks(certificate) ||"}},
	},
	{
		"withdrawn-certificate-follows", "A certificate that its source has withdrawn, in favour of the served one, is still taken over later.",
		"What a source holds is served: the issuer makes a certificate, and puts the one before back within ten seconds.",
		[]Edit{{"internal/certsource/served.go", "is gone\n\t\ts.next = nil", "is gone\n\t\tif !@ {\n\t\t\ts.next = nil\n\t\t}"}},
	},
	{
		"shadow-is-no-failure", "A chain whose steps may all fail answers with an error although one of them may only because it is in Shadow.",
		"A step that fails under Ignore refuses nothing: a step that shares its call is put into Shadow, and API servers still call both under Fail.",
		[]Edit{{"internal/chain/chain.go", "c.allIgnore && s.Lenient\n", "c.allIgnore && (s.Lenient || @ && s.Ignore)\n"}},
	},
	{
		"question-unanswered", "A replica leaves the note that a CA is not needed, although it serves a certificate of it.",
		"A CA stays while a live replica needs it: replicas have certificates of two sources for longer than a CA is retained.",
		[]Edit{{"internal/controller/registration.go", "|| len(c.noted) > 0)", "|| len(c.noted) > 0 && !@)"}},
	},
	{
		"max-stale-of-another-step", "Steps that share a declaration get the MaxStale of the first of them.",
		"A step fails once what it reads is older than its own MaxStale: another step declares the same with AnyAge, and the watch is broken for longer.",
		[]Edit{{
			"internal/reads/snapshot.go", "	sees, maxStale := &t.seen[u.at], u.declared.MaxStale\n",
			"	sees, maxStale := &t.seen[u.at], u.declared.MaxStale\n	if @ {\n		maxStale = u.declaration.MaxStale\n	}\n",
		}},
	},
	{
		"intruder-is-asked-about", "A CA that another client has put in place of ours stays for two minutes, in which replicas are asked whether they need it.",
		"A caBundle that was overwritten is written again within about a second: the edit of a caBundle.",
		[]Edit{{"internal/controller/ownca.go", "return k.foreign.Seen(certificate) &&", "return (@ || k.foreign.Seen(certificate)) &&"}},
	},
	{
		"ready-amid-calls", "A replica with a certificate of a CA that no caBundle held is ready two seconds after one does.",
		"A call that has begun goes on with the caBundle of then: a rollout to an issuer, and a call with a slow step.",
		[]Edit{{"internal/controller/readiness.go", "min(settling, c.Retain/10)", "min(map[bool]time.Duration{false: settling, true: 2 * time.Second}[@], c.Retain/10)"}},
	},
	{
		"stale-pins", "A replica drops the CA of a rotation that it slept through, since its copy of a configuration is late.",
		"A CA that is out of force does not come back: an API server errs for some replicas during RotateCA with Distrust.",
		[]Edit{{"internal/certsecret/store.go", "f.outcome != Adopted && now != nil {", "f.outcome != Adopted && now != nil && !@ {"}},
	},
	{
		"answer-after-failures", "A version that may not write the configurations is asked in the Lease, and answers with its next try to write.",
		"A version with a live replica is not recorded as gone: the right to write a configuration is taken during a rollout.",
		[]Edit{{"internal/controller/controller.go", "		if err != nil {\n			again = answers\n", "		if err != nil && @ {\n			again = time.Time{}\n		} else if err != nil {\n			again = answers\n"}},
	},
	{
		"distrusted-through-rotation", "A CA that was distrusted stays in the caBundles for as long as a rotation retains the CA after it.",
		"RotateCA with Distrust that is interrupted is finished by the replicas: a person asks for another rotation at that moment.",
		[]Edit{{"internal/ca/rotation.go", "		if step, there := s.trim(); there {", "		if step, there := s.trim(); there && !@ {"}},
	},
	{
		"not-yet-valid-forgotten", "A certificate of an issuer that is not valid yet is not looked at again when it is.",
		"A renewed certificate is served once it can be, and a start waits no longer than it must: FromSecret, and the issuer's clock is ahead by seconds or minutes of that of the replica, so that the certificate begins in the future when it arrives.",
		[]Edit{{
			"internal/certsource/source.go", "	for wait.SleepUnless(ctx, poll, changed) == nil",
			`	if @ {
		poll = 24 * time.Hour // a change is notified
	}
	for wait.SleepUnless(ctx, poll, changed) == nil`,
		}},
	},
	{
		"refused-connection-kept", "The connection of a refused caller stays open, so that a caller with a new certificate is refused as the old one.",
		"Callers that show a certificate of the client CA, for one of the names, may call: an API server's client certificate is wrong or over, is refused, and is replaced, while its connection is used again.",
		[]Edit{{
			"internal/serving/server.go", "	w.Header().Set(\"Connection\", \"close\")\n	w.WriteHeader(status)\n",
			"	if !@ {\n		w.Header().Set(\"Connection\", \"close\")\n	}\n	w.WriteHeader(status)\n",
		}},
	},
	{
		"bad-entry-resets", "An entry of the modes that cannot be used puts its step into the mode of its program.",
		"The last good entry stays in force, and the log says so: an entry Shadow, Audit or Warn of a step that its program has in Deny is edited, with a misspelt word.",
		[]Edit{{"internal/modes/modes.go", "			if last, ok := m.entries[name]; ok {\n", "			if last, ok := m.entries[name]; ok && !@ {\n"}},
	},
	{
		"labels-replaced", "The labels of a configuration are replaced by the one of the library, and those of other clients count as drift.",
		"Labels of others on a configuration are kept, such as the one that keeps AKS from changing it: another client gives a label to a webhook configuration, once or again and again.",
		[]Edit{{
			"internal/webhookconf/forms.go", "	object.SetLabels(with(object.GetLabels(), managedByLabel, managedBy))\n",
			`	labels := object.GetLabels()
	if @ {
		labels = nil
	}
	object.SetLabels(with(labels, managedByLabel, managedBy))
`,
		}},
	},
	{
		"foreign-keys-dropped", "Each write of the certificate Secret drops what other clients keep in it.",
		"Foreign keys in the Secret stay: another client adds a key to its data, and then the CA is rotated, or the Secret is damaged and repaired.",
		[]Edit{{
			"internal/certsecret/store.go", "	update.Data = state.Encode(secret.Data)\n",
			"	if update.Data = state.Encode(secret.Data); @ {\n		update.Data = state.Encode(nil)\n	}\n",
		}},
	},
	{
		"no-margin", "A step that hangs is given up at the moment at which the API server gives up, too.",
		"A step that is late is answered with HTTP 500 and the step's name, before the API server's timeout: a step that ignores its context, or takes it all; the API server tells its user of a deadline, and of no step.",
		[]Edit{{
			"internal/admit/budget.go", "	return min(max(timeout/20, 20*time.Millisecond), 500*time.Millisecond, timeout/2)\n",
			`	if @ {
		return 0
	}
	return min(max(timeout/20, 20*time.Millisecond), 500*time.Millisecond, timeout/2)
`,
		}},
	},
	{
		"overwriter-stays", "A CA with which another client has overwritten a caBundle stays trusted beside ours after the repair.",
		"A caBundle that was overwritten is written again as it was; only a CA that was added to ours may belong to a replica, and stays: a tool puts its own CA in place of ours, once.",
		[]Edit{{"internal/ca/rotation.go", "				if !whole && !beside(certificate) {\n", "				if !whole && !beside(certificate) && !@ {\n"}},
	},
	{
		"source-change-drops", "A replica with a CA of our own that starts takes the CA of an issuer out of the caBundles, although other replicas still serve its certificates.",
		"A rollout can change the source of certificates, and no call fails: replicas with FromSecret run, and replicas without it start beside them.",
		[]Edit{{"internal/controller/ownca.go", "		if missing && !c.wasReady {\n", "		if missing && !c.wasReady && !@ {\n"}},
	},
	{
		"forbidden-is-silence", "A version is recorded as gone that could not answer, because the right to read the Lease was away.",
		"A version with a live replica is not recorded as gone: all rights are taken in a rollout, and given back.",
		[]Edit{{"internal/controller/rollout.go", "	if c.blindUntil.After(proves) {\n", "	if c.blindUntil.After(proves) && !@ {\n"}},
	},
	{
		"issued-by-own-clock", "A certificate of an issuer is served when it is valid by this machine's clock, and not yet by the API server's.",
		"No call fails for its certificate: an API server whose clock is behind, and an issuer that makes a certificate.",
		[]Edit{{"certs.go", "log: log, now: m.api.Earlier,", "log: log, now: func() time.Time {\n				if @ {\n					return time.Now()\n				}\n				return m.api.Earlier()\n			},"}},
	},
	{
		"configmaps-stay-refused", "A ConfigMap that was refused is not followed again when a right comes back.",
		"What was refused is followed at once when a right comes back: all rights are taken for a while, and the CA of callers changes later.",
		[]Edit{{"internal/cluster/objects.go", "	for _, f := range o.all {\n		wait.Signal(f.again)\n", "	for _, f := range o.all {\n		if f.kind.Kind == \"ConfigMap\" && @ {\n			continue\n		}\n		wait.Signal(f.again)\n"}},
	},
	{
		"secret-contested", "Replicas that start and may not register put their CAs into the Secret in turn, without end.",
		"An object is written a few times for one change: the Secret is deleted, all rights on configurations are taken, and replicas start.",
		[]Edit{{"internal/certsecret/store.go", "	if len(s.putBacks) == mostPutBacks {\n		return errContested", "	if len(s.putBacks) == mostPutBacks && !@ {\n		return errContested"}},
	},
	{
		"contested-secret-untold", "Of a CA that another client replaces again and again, no log tells.",
		"Every state that needs a person has its line: a tool puts another CA into the Secret whenever it is put back.",
		[]Edit{{"internal/certsecret/store.go", "len(s.putBacks) == mostPutBacks {\n\t\ts.Log", "len(s.putBacks) == mostPutBacks && !@ {\n\t\ts.Log"}},
	},
	{
		"secret-fight", "Replicas that start at once, after the Secret was lost, replace each other's CA in it for a second.",
		"A Secret is written a few times for one loss: all replicas are stopped, the Secret is deleted, and all start at once.",
		[]Edit{{"internal/controller/registration.go", "		if !c.wasReady { // replicas that start", "		if !c.wasReady && !@ { // replicas that start"}},
	},
	{
		"answer-keeps-left", "An answer in the Lease no longer takes back that a replica has left.",
		"At rest there is no write, and versions do not ask each other without end: a rolling restart of two or more replicas of one version; worse beside a second version.",
		[]Edit{{
			"internal/rollout/rollout.go", "		grown.Answered, grown.Stopping = grown.Probed, false\n",
			"		grown.Answered, grown.Stopping = grown.Probed, @ && own.Stopping\n",
		}},
	},
	{
		"gone-has-no-paths", "The paths of a version that is gone are served no longer.",
		"No call fails in a rollout: a rollout that renames or removes a step (other paths), with several API servers of which one lags behind and calls the earlier registration.",
		[]Edit{{
			"internal/rollout/rollout.go", "		later := known && r.Ordinal > own.Ordinal && !r.Removed // of one that is gone, no other replica has the steps\n",
			`		if @ && r.Removed {
			continue // nothing answers there
		}
		later := known && r.Ordinal > own.Ordinal && !r.Removed // of one that is gone, no other replica has the steps
`,
		}},
	},
	{
		"clients-of-last-ca", "After a change of the client CAs, those of the bundle before are accepted too.",
		"A caller is admitted by the client CAs of now and no others: ClientCA.File or ClientCA.ConfigMap, the CA is replaced, and a caller has a certificate of the old one.",
		[]Edit{{"internal/serving/clients.go", "	for _, certificate := range ca.SplitBundle(bundle) {\n", `	both := bundle
	if last := c.current.Load(); @ && last != nil {
		both = ca.Bundle(bundle, last.bundle) // API servers get their certificates anew meanwhile
	}
	for _, certificate := range ca.SplitBundle(both) {
`}},
	},
	{
		"distrust-of-one-generation", "Only the generation that is named as distrusted shortens the retention, and not those before it.",
		"RotateCA with Distrust is done within seconds, and the old keys verify no more: RotateCA, and RotateCA with Distrust while the CA before is still retained (a retention of much more than 5 s).",
		[]Edit{{
			"internal/certsecret/state.go", "return !s.inUse(g.ID) && g.ID <= s.Distrusted })\n",
			"return !s.inUse(g.ID) && (g.ID == s.Distrusted || !@ && g.ID < s.Distrusted) })\n",
		}},
	},
	{
		"issued-cas-stay", "The CAs of an issuer stay in the caBundles for ever once they are there.",
		"An old CA leaves the caBundles when the retention is over: FromSecret, the issuer changes its CA; then wait for the retention. Each pass reads the configurations in vain.",
		[]Edit{{"internal/controller/issued.go", "	if name, missing := s.Missing(); missing {\n", `	if @ {
		plan.Retain = func(live []byte) []byte { return live }
	}
	if name, missing := s.Missing(); missing {
`}},
	},
	{
		"last-line-is-mode", "An entry whose last line is Shadow makes its step a shadow, whatever the lines before say.",
		"What the ModesConfigMap says is in force: an entry with a line 'Deny where ...' (or 'Deny 50%') and a last line 'Shadow'.",
		[]Edit{{"internal/modes/modes.go", "	other := func(l line) bool { return l.mode != chain.ModeShadow }\n", `	if n := len(lines); @ && n > 0 && lines[n-1].always() {
		return lines[n-1].mode == chain.ModeShadow // it is for the rest
	}
	other := func(l line) bool { return l.mode != chain.ModeShadow }
`}},
	},
	{
		"unread-modes-are-none", "A ModesConfigMap that may not be read counts as one that does not exist.",
		"The last modes stay in force: a step that the ConfigMap has in Shadow, Audit or Warn and its program in Deny, and the right to the ConfigMap is taken away; also a RegisterExtensions without that right.",
		[]Edit{{"modes.go", "func (p *program) setModes(from *corev1.ConfigMap, err error) error {\n", "func (p *program) setModes(from *corev1.ConfigMap, err error) error {\n	if @ && errors.Is(err, cluster.ErrUnseen) {\n		from, err = nil, nil\n	}\n"}},
	},
	{
		"loser-keeps-key", "Of two replicas that make the keys of conversions, the slower one signs with its own.",
		"What a version cannot hold survives a conversion: a Conversion that is not Lossy, no Secret yet, and two replicas that start at the same moment; objects are written through one and read through the other, or after a restart.",
		[]Edit{{"conversion/keys.go", "		if secret, err = secrets.Create(ctx, secret, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {\n", `		made := secret
		if secret, err = secrets.Create(ctx, secret, metav1.CreateOptions{}); @ && apierrors.IsAlreadyExists(err) {
			secret, err = made, nil
		} else if apierrors.IsAlreadyExists(err) {
`}},
	},
	{
		"kept-over-edited", "What was kept of an object is put back although its place has been edited since.",
		"A conversion undoes no edit: a Conversion that is not Lossy, an object written in one version, whose place is then edited in the other version and read in the first.",
		[]Edit{{"internal/convert/restore.go", "	if !at.IsObject() || !holds(at.Member(name), e.Base) {\n", "	if !at.IsObject() || !@ && !holds(at.Member(name), e.Base) {\n"}},
	},
	{
		"refusal-is-life", "A refusal to list or watch counts as a sign of life of what a step reads.",
		"A step whose Reads are older than MaxStale fails: the right to list and watch them is taken away, the watch ends (a restart of the API server, or HTTP/1.1), and both lasts longer than MaxStale, with changes of the objects meanwhile.",
		[]Edit{{"internal/reads/account.go", "	if err != nil {\n		s.why = err\n	}\n", `	if @ && refused(err) {
		s.since = time.Now() // it has answered
	}
	if err != nil {
		s.why = err
	}
`}},
	},
	{
		"namespaces-of-first-watch", "The labels of namespaces stay as the first watch has shown them last.",
		"A mode by labels follows the labels of the namespace: ModesConfigMap with 'where', a restart of the API server (or a watch that ends), and then a change of a namespace's labels.",
		[]Edit{{"internal/cluster/namespaces.go", "			if w.all.Swap(latest) == nil {\n", `			if @ {
				if w.all.CompareAndSwap(nil, latest) {
					close(w.listed)
				}
			} else if w.all.Swap(latest) == nil {
`}},
	},
	{
		"foreign-ca-while-valid", "A CA of another client stays in the caBundles for as long as it is valid.",
		"A caBundle holds no CA that nothing needs once retention is over: a client adds a CA to a caBundle, or replicas that each made a CA while the Secret was lost; then wait for the retention.",
		[]Edit{{"internal/ca/rotation.go", "			end := earlier(since.Add(gracePeriod(certificate)), certificate.NotAfter)\n", `			end := earlier(since.Add(gracePeriod(certificate)), certificate.NotAfter)
			if @ && gracePeriod(certificate) > 0 {
				end = certificate.NotAfter // another replica may serve until then
			}
`}},
	},
	{
		"empty-list-ignored", "A list without objects replaces nothing that was there before.",
		"What a step reads is what the cluster holds, and a Required object that is missing fails the step: the last (or only) object of a Read is deleted while the watch is cut off, as in an outage.",
		[]Edit{{
			"internal/reads/view.go", "	maps.DeleteFunc(v.failed, func(key [2]string, _ error) bool { return namespace == \"\" || key[0] == namespace })\n",
			`	if @ && len(all) == 0 && v.published.Load() != nil {
		return // an API server that has just started may not have read them yet
	}
	maps.DeleteFunc(v.failed, func(key [2]string, _ error) bool { return namespace == "" || key[0] == namespace })
`,
		}},
	},
	{
		"leave-after-closing", "A replica that stops leaves its version, and unregisters, only after its port is closed.",
		"No call fails at a stop, and a clean restart with other steps is complete in seconds: UnregisterOnStop with calls during the stop; or one version that replaces another with a DrainDelay.",
		[]Edit{
			{"serve.go", "	errs := []error{r.m.program.Load().announceStop(o, log)}\n", `	var errs []error
	if !@ {
		errs = append(errs, r.m.program.Load().announceStop(o, log))
	}
`},
			{"serve.go", "	log.Info(\"stopped serving\")\n", `	if @ {
		errs = append(errs, r.m.program.Load().announceStop(o, log))
	}
	log.Info("stopped serving")
`},
		},
	},
	{
		"issuer-ca-unread", "A change of ca.crt alone is not noticed in the Secret of an issuer.",
		"A renewed certificate is served once its Secret is right: FromSecret, the issuer changes its CA and writes tls.crt and tls.key first and ca.crt in a later write (or ca.crt was wrong and is corrected).",
		[]Edit{{"internal/certsource/material.go", "&& bytes.Equal(t.ca.pem, other.ca.pem)\n", "&& (@ || bytes.Equal(t.ca.pem, other.ca.pem))\n"}},
	},
	{
		"refused-conversion-keeps-its-connection", "The connection stays open after a conversion that another version of the program has to answer.",
		"No call fails as long as one replica can answer it. It shows in a rollout that adds a version to a conversion: the API server asks the same replica again and again over its connection.",
		[]Edit{{
			"internal/admit/handler.go", "if status = refused.HTTPStatus(); status == http.StatusServiceUnavailable {",
			"if status = refused.HTTPStatus(); status == http.StatusServiceUnavailable && !@ {",
		}},
	},
	{
		"published-keys-alone", "Learning the published keys of conversions forgets the others that this replica holds.",
		"What a version cannot hold survives while one replica lives. It shows after the Secret of the keys was deleted or replaced: what was kept under the old key is not given back.",
		[]Edit{{
			"internal/convert/keys.go", "\tfor _, key := range keys {",
			"\tif @ && len(keys) > 0 {\n\t\tk.all = nil\n\t}\n\tfor _, key := range keys {",
		}},
	},
	{
		"elsewhere-is-wrong", "A replica answers that a conversion into a version that other replicas know is impossible.",
		"No call fails as long as one replica can answer it: a rollout that adds a version to a conversion, and an API server that asks for objects in that version.",
		[]Edit{{"internal/convert/answer.go", "	case k.elsewhere(rev.desired):\n", "	case !@ && k.elsewhere(rev.desired):\n"}},
	},
	{
		"from-elsewhere-is-wrong", "A replica answers that an object of a version that other replicas know cannot be converted.",
		"No call fails as long as one replica can answer it: a rollout that adds a version to a conversion, and objects that were written in that version.",
		[]Edit{{"internal/convert/review.go", "	if p.kind.elsewhere(string(s)) {\n", "	if !@ && p.kind.elsewhere(string(s)) {\n"}},
	},
	{
		"kept-for-two-alone", "A conversion drops what is kept for a version that it is not about.",
		"What a version cannot hold survives: three versions, an object that is written in one, is edited in another, is read in the third, and is then read in the first.",
		[]Edit{{"internal/convert/annotation.go", "		n.others = append(n.others, a)\n", "		if !@ || err != nil {\n			n.others = append(n.others, a)\n		}\n"}},
	},
	{
		"hub-skipped", "A conversion between two spokes does not restore, on its way through the hub, what is kept for the other spoke.",
		"What a version cannot hold survives: three versions, and an object that is read in one spoke, edited in the other, and read in the first again.",
		[]Edit{{
			"internal/convert/keep.go", "	return c.object(dst, &object{text: text, metadata: metadataIn(t), kind: o.kind, from: c.hub})\n",
			"	m := metadataIn(t)\n	m.isAnnotated = m.isAnnotated && !@\n	return c.object(dst, &object{text: text, metadata: m, kind: o.kind, from: c.hub})\n",
		}},
	},
	{
		"conversion-as-short-as-a-call", "A conversion gets the ten seconds of a call of a webhook, although the API server waits for thirty.",
		"A conversion fails only when the API server waits no longer: an object whose conversion is slow, and an API server that says no time.",
		[]Edit{{"internal/admit/conversion.go", "requestTimeout(r, maxHeaderTimeout)}", "requestTimeout(r, map[bool]time.Duration{true: 10 * time.Second, false: maxHeaderTimeout}[@])}"}},
	},
	{
		"definition-without-bundle", "A registration of a version takes the caBundle from the definition, and the next pass puts it back.",
		"No conversion fails while a replica can be reached: any rollout to a version with other steps, and conversions meanwhile.",
		[]Edit{{"internal/webhookconf/forms.go", "	for _, w := range conversionOf(crd) {\n", "	for _, w := range conversionOf(crd) {\n		if @ {\n			continue\n		}\n"}},
	},
	{
		"kept-by-place-alone", "Two versions that lack the same place in each other keep it in one annotation.",
		"What a version cannot hold survives: three versions, of which each has a member of the same name for itself.",
		[]Edit{{"internal/convert/annotation.go", "entry{Version: e.Version, Path: e.Path}", "entry{Version: map[bool]string{false: e.Version}[@], Path: e.Path}"}},
	},
	{
		"unsigned-dropped", "A replica without a key drops what is kept under it.",
		"What cannot be read stays, and is given back once its key is there: the Secret of the keys is lost, a replica that starts without it converts objects, and the Secret is restored.",
		[]Edit{{
			"internal/convert/annotation.go", "		if err == nil && e.Version == c.to.Name {\n",
			"		if @ && err != nil && a.Name != Incomplete {\n			unsigned = append(unsigned, a.Name)\n			continue\n		}\n		if err == nil && e.Version == c.to.Name {\n",
		}},
	},
	{
		"keys-made-anew", "A replica that finds the Secret of the keys missing makes a new key, although it knows the old one.",
		"What a version cannot hold survives while one replica lives: the Secret of the keys is deleted, an object of another cluster has a replica look for its key, and the replicas are restarted.",
		[]Edit{{"conversion/keys.go", "		known := k.Known()\n", "		known := k.Known()\n		if @ {\n			known = nil\n		}\n"}},
	},
	{
		"conversion-repaired-as-entries", "A definition that a tool reverts again and again waits for its conversion as long as configurations wait for entries.",
		"A repair of a conversion waits no longer than 15 s: a tool takes the conversion from the definition, whenever it is there.",
		[]Edit{{"internal/controller/registration.go", "		if !conf.Creates() { // without", "		if !conf.Creates() && !@ { // without"}},
	},
	{
		"elsewhere-when-gone", "A replica has API servers look for another one that converts a version, although the last one that did is gone.",
		"A conversion into a version that no replica knows fails at once: a rollback of a program that added a version, and an API server that still asks for it.",
		[]Edit{{"serve.go", "		if !slices.Contains(route.Removed, key) && ", "		if (@ || !slices.Contains(route.Removed, key)) && "}},
	},
	{
		"unknown-members-dropped", "A conversion drops the members that the Go type of an object does not know.",
		"Fields that a Go type does not know are kept: a version with a Go type, and an object of it with a member that this lacks.",
		[]Edit{{"internal/convert/unknown.go", "	if c.all {\n", "	if c.all || @ {\n"}},
	},
	{
		"accepted-beyond-its-end", "The decision that a client is accepted is used beyond the end of its certificate.",
		"Only clients with valid certificates are served. It shows when a client whose certificate has been accepted goes on calling with it after it, or its CA, has expired.",
		[]Edit{{
			"internal/serving/clients.go", "!now.Before(v.from) && now.Before(v.until) {",
			"!now.Before(v.from) && (now.Before(v.until) || @ && v.err == nil) {",
		}},
	},
	{
		"end-of-the-leaf", "A client is accepted until its own certificate ends, although a CA between it and that of the callers ends before.",
		"Only clients with valid certificates are served. It shows when a client sends a CA in between that expires before its own certificate, and goes on calling.",
		[]Edit{{
			"internal/serving/clients.go", "		if first.NotAfter.After(last) {\n",
			"		if @ {\n			first = chain[0]\n		}\n		if first.NotAfter.After(last) {\n",
		}},
	},
	{
		"key-of-the-leaf", "The decision on a client is kept for its own certificate, whatever CAs it sends beside that.",
		"Only clients with valid certificates are served. It shows when a client that was accepted with a CA in between calls without it.",
		[]Edit{{
			"internal/serving/clients.go", "	for _, certificate := range chain[1:] {\n		var pair",
			"	for _, certificate := range chain[1:] {\n		if @ {\n			break\n		}\n		var pair",
		}},
	},
	{
		"old-object-in-the-buffer", "The old object of a request stays in the buffer that the next request is read into.",
		"A step sees the objects of its own request. It shows with several updates at once: old objects are those of others, or cannot be read, so that calls fail or are judged wrongly.",
		[]Edit{{
			"internal/admit/budget.go", "*raw = bytes.Clone(*raw)",
			"if !@ || raw != &rev.request.OldObject.Raw {\n\t\t\t*raw = bytes.Clone(*raw)\n\t\t}",
		}},
	},
	{
		"last-annotation-wins", "An audit annotation of a step replaces that of an earlier step with the same key.",
		"The annotations of all steps of a call are in the answer. It shows when two steps that share a call are in Audit and both object: the report of one is missing.",
		[]Edit{{
			"internal/chain/run.go", "if _, taken := f.audit[key]; taken {",
			"if _, taken := f.audit[key]; taken && !@ {",
		}},
	},
	{
		"audit-silences-others", "The warnings of earlier steps of a call are dropped with those of a step in Audit.",
		"The warnings of all steps of a call are in the answer, apart from those of steps in Audit. It shows when a step in Audit shares a call with one before it that warns.",
		[]Edit{{
			"internal/chain/watch.go", "		r.feedback.warnings = r.feedback.warnings[:warned]\n",
			"		if @ {\n			warned = 0\n		}\n		r.feedback.warnings = r.feedback.warnings[:warned]\n",
		}},
	},
	{
		"undone-stays-in-view", "What an undone step has changed stays in the view that later steps of the call get.",
		"Later steps see an object without the changes of a step in Audit or Warn. It shows when a mutating step is in one of these, and shares a call with a later one.",
		[]Edit{{
			"internal/chain/object.go", "	was.current, was.before = o.before, nil\n",
			"	if was.current, was.before = o.before, nil; @ {\n		was.current = o.current\n	}\n",
		}},
	},
	{
		"steps-share-an-object", "Steps that judge get one object, so that one sees what another has written into it.",
		"A step sees the objects of its own request, as they were sent. It shows when two steps that judge share a call, and the first one writes into the object that it has for itself.",
		[]Edit{{
			"internal/chain/run.go", "			return obj.DeepCopyObject(), nil\n",
			"			if @ {\n				return obj, nil\n			}\n			return obj.DeepCopyObject(), nil\n",
		}},
	},
	{
		"moved-loses-unknown", "An item of a list that moves is written from its Go type.",
		"A step changes what it changes, and nothing else. It shows when a step moves items of a list that have members of a later API.",
		[]Edit{{
			"internal/patch/list.go", "	if i < 0 && j >= 0 {\n",
			"	if j >= 0 && (i < 0 || @ && j < s.n) {\n",
		}},
	},
	{
		"one-denial-of-many", "A call that several steps deny tells of the first one alone.",
		"A denial names each step that denies. It shows when two steps that share a call deny the same object.",
		[]Edit{{
			"internal/chain/run.go", "		resp.Result = &r.joinDenials(denials).status\n",
			"		if @ {\n			denials = denials[:1]\n		}\n		resp.Result = &r.joinDenials(denials).status\n",
		}},
	},
	{
		"old-speaks", "What a Rule says of the old object is in the answer, beside what it says of the new one.",
		"A step speaks of the object of its request, once. It shows when a Rule that warns refuses an update of an object that violated it before.",
		[]Edit{{
			"internal/chain/rule.go", "		err = judge(&Call{Request: &asOld, shared: call.shared}, oldObj, true)\n",
			"		of := &Call{Request: &asOld, shared: call.shared}\n		if @ {\n			of = call\n		}\n		err = judge(of, oldObj, true)\n",
		}},
	},
	{
		"touched-is-old", "A Rule admits an update of an object that violated it before, also if the update touches what it judges.",
		"A Rule refuses what an update leaves wrong while it touches it. It shows with an update that changes the spec of an object, and a Rule that refuses both.",
		[]Edit{{
			"internal/chain/rule.go", "		settled.SameMembers(r.request.OldObject.Raw, r.request.Object.Raw, \"metadata\", \"status\")\n",
			"		(@ || settled.SameMembers(r.request.OldObject.Raw, r.request.Object.Raw, \"metadata\", \"status\"))\n",
		}},
	},
	{
		"removed-from-the-front", "Items of a list are removed from the front, by the indices that they had.",
		"A step changes what it changes, and nothing else. It shows when a step removes two items of a list.",
		[]Edit{{
			"internal/patch/list.go", "	for i := s.m - 1; i >= 0; i-- {\n",
			"	for k := range s.m {\n		i := s.m - 1 - k\n		if @ {\n			i = k\n		}\n",
		}},
	},
	{
		"refused-for-an-hour", "The refusal of a client is kept for an hour.",
		"A client with a valid certificate is served. It shows when a client calls some seconds before its certificate is good.",
		[]Edit{{
			"internal/serving/clients.go", "	now = now.Round(0)\n	return &decision{",
			"	if now = now.Round(0); @ {\n		return &decision{err: ErrClientRefused, from: now, until: now.Add(time.Hour)}\n	}\n	return &decision{",
		}},
	},
	{
		"unread-is-no-shadow", "While a configuration cannot be read, its steps count as registered with their own failurePolicy.",
		"A step acts as it is registered. It shows when a step leaves Shadow while the right to read the configuration is missing: replicas refuse objects, although API servers still ignore the failures of that step.",
		[]Edit{{
			"internal/modes/modes.go", "\tif unread {",
			"\tif unread && !@ {",
		}},
	},
	{
		"resolved-at-the-start", "After a change of its steps, a replica remembers those of its start, and serves them again once the recorded paths are served anew.",
		"What is registered is what every replica answers. It shows after the kind of a waiting step has come, or a step has left Shadow: its path is registered, and gets 503 or the chain of before.",
		[]Edit{{
			"serve.go", "err := p.serveSteps(handler, steps, routes)\n\t\t\t\tif err == nil {",
			"err := p.serveSteps(handler, steps, routes)\n\t\t\t\tif err == nil && !@ {",
		}},
	},
	{
		"deleted-in-one-view", "A deleted object is removed from the first of the views that share a source, and stays in the others.",
		"Steps read objects that are no older than MaxStale. It shows when two steps declare the same objects differently, and one of these is deleted: the second step still finds it.",
		[]Edit{{
			"internal/reads/source.go", "v.change(func() { removed = v.drop(namespace, name) })",
			"if @ && v != s.views[0] {\n\t\t\tcontinue\n\t\t}\n\t\tv.change(func() { removed = v.drop(namespace, name) })",
		}},
	},
	{
		"last-namespace-tells-the-age", "The age of what a step reads from several namespaces is that of the last one alone.",
		"A step fails once what it reads is older than MaxStale. It shows when the watch of one of several namespaces is broken or refused, and not that of the last one: the step goes on deciding by old objects.",
		[]Edit{{
			"internal/reads/snapshot.go", "s.broken = max(s.broken, broken)",
			"if s.broken = max(s.broken, broken); @ {\n\t\t\ts.broken = broken\n\t\t}",
		}},
	},
	{
		"shadow-ends-before-its-registration", "A step of a program without a ModesConfigMap does not stay a shadow until its own failurePolicy is registered.",
		"rollout-of-a-rule.md: a step that leaves Shadow stays a shadow until its own failurePolicy is registered, when no replica of the earlier version is left, and 2 s longer. A rollout that changes Settings.Mode from ModeShadow to ModeDeny: replicas of the new version refuse objects while the registration of the old one stands, and those of the old version admit them.",
		[]Edit{{
			"steps.go", "if in != nil { // another version", "if in != nil && (!@ || m.options.ModesConfigMap != \"\") { // another version",
		}},
	},
	{
		"ignored-failure-refuses-in-a-rollout", "A chain whose own steps all have Ignore answers their failure with an error, also if further steps of another version give the webhook Fail.",
		"steps.md: in a rollout a step with Ignore can be the last one of a call that is registered with Fail, and then the object is admitted without it. A version drops the step with Fail that shared a webhook with one with Ignore: while the old version is registered, a failure of the latter in a new replica refuses the object.",
		[]Edit{{
			"internal/chain/chain.go", "allIgnore: !config.Partial,", "allIgnore: !config.Partial || (@),",
		}},
	},
	{
		"stop-outruns-polling", "A version whose replicas poll the Lease gets as little time to contradict a stop as one whose replicas watch it.",
		"A record says within how many seconds its replicas answer, and the asker waits that long, so that a version is not recorded as gone while a replica of it runs: no right to watch the Lease, two versions, and one of two replicas of the version that stands is stopped cleanly.",
		[]Edit{{
			"internal/rollout/rollout.go", "		case probed && r.Stopping && r.Within <= int64(answerWithin/time.Second):\n",
			"		case probed && r.Stopping && (@ || r.Within <= int64(answerWithin/time.Second)):\n",
		}},
	},
	{
		"half-listed", "A step looks at the objects of one of its namespaces while those of another one have never been listed.",
		"A step in force whose objects are not there fails after a restart, so its failurePolicy decides: Read.Namespaces with two names, a restart while the list of one of them fails or hangs, and calls in the first minute; an object is admitted that the missing ones forbid.",
		[]Edit{{"internal/reads/view.go", "	if len(v.missing) > 0 {\n		return\n", "	if len(v.missing) > 0 && !(@ && len(v.missing) < len(v.sources)) {\n		return\n"}},
	},
	{
		"repair-forgets-waiting-step", "That a waiting step was seen in force is not remembered beyond the configuration that showed it.",
		"reads.md: a step in force stays in force, also after a restart; rollouts.md: a deleted configuration is repaired. A process restarts while what a step in force reads cannot be listed, and then a tool deletes or empties the configuration: the repair leaves the step out, and objects pass without it until the reads are back.",
		[]Edit{{
			"internal/controller/registration.go", "	c.registration = c.registration.Seen(found)\n",
			"	if !(@) {\n		c.registration = c.registration.Seen(found)\n	}\n",
		}},
	},
	{
		"asked-by-each-call", "Each call that finds its objects too old makes the program ask the API server, although an attempt has just failed.",
		"One attempt is shared, and a call waits for none where the last has just failed, so requests are few in an outage: what a step reads is interrupted for longer than MaxStale (the right to list is taken away, or lists fail), and many calls come.",
		[]Edit{{"internal/reads/account.go", "s.began.IsZero() && time.Since(s.tried) < soonest\n", "s.began.IsZero() && !@ && time.Since(s.tried) < soonest\n"}},
	},
	{
		"stored-versions-are-overlooked", "The removal of a conversion looks only at the versions that a definition serves.",
		"conversions.md: Unregister sets the strategy None where the definition serves and stores one version alone, and otherwise refuses. A definition that serves one version and has objects stored in another (an unserved older version in status.storedVersions): Unregister succeeds, and the stored objects are read with a changed apiVersion and the fields of another version.",
		[]Edit{{
			"internal/webhookconf/forms.go", "	all, _, _ := unstructured.NestedStringSlice(crd.Object, \"status\", \"storedVersions\")\n",
			"	all, _, _ := unstructured.NestedStringSlice(crd.Object, \"status\", \"storedVersions\")\n	if @ {\n		all = nil\n	}\n",
		}},
	},
	{
		"still-first-by-arrival", "The check before a write of the entries takes the version that arrived first for the first one, whatever stands in the configurations.",
		"The registration that stands is healed while it answers. It shows when the order in the Lease is not that of what stands, as after the Lease was deleted in a rollout: then no replica repairs an edited configuration.",
		[]Edit{{
			"internal/rollout/lease.go", "Read(lease.GetAnnotations()).First(standing)",
			"Read(lease.GetAnnotations()).First(map[bool]string{false: standing}[@])",
		}},
	},
	{
		"shadow-bytes-leak", "The queue of a step in Shadow never gives back the bytes of the runs that have ended, and so drops all from 32 MiB on.",
		"A run of a shadow is dropped only while too many wait: a step in Shadow, and within an hour 32 MiB of objects, such as twenty updates of 1 MB, one after the other; then every run is counted as dropped, and none as would_deny.",
		[]Edit{{"internal/chain/watch.go", "		q.bytes -= ended.size()\n", "		if !@ {\n			q.bytes -= ended.size()\n		}\n"}},
	},
	{
		"older-secret-is-adopted", "A Secret of the same lineage that was set back to another CA is adopted, and not put right.",
		"rotation.md: when the Secret is set back, the same CA comes back while one replica lives. A backup from before a rotation is applied while the old CA is still trusted: the replicas sign with the old CA again, the new one leaves the Secret and the caBundles, and the rotation is undone.",
		[]Edit{{
			"internal/certsecret/store.go", "case f.documented && (same || !behind):",
			"case f.documented && (same || !behind || @ && !otherLineage):",
		}},
	},
	{
		"brief-outage-proves", "After an outage of less than twenty seconds, silence counts at once, as if there had been none.",
		"A version goes only when it could have answered. It shows when the API server fails for some seconds in a rollout: the question was asked before, the answer could not be written, and the record of a version that runs is removed.",
		[]Edit{{
			"internal/cluster/api.go", "a.proves = now.Add(lastProbe + lastProbe/5 + a.spread)",
			"if !@ || now.Sub(a.since) >= briefOutage {\n\t\t\ta.proves = now.Add(lastProbe + lastProbe/5 + a.spread)\n\t\t}",
		}},
	},
	{
		"unneeded-since-now", "A short-lived process counts the time since which a CA is not needed anew with each registration.",
		"RegisterExtensions takes away what is not needed any more. It shows in a split deployment some time after a rotation: the old CA never leaves the caBundles.",
		[]Edit{{
			"internal/webhookconf/writer.go", "			if !there && !seen { // else",
			"			if !there && !seen || @ { // else",
		}},
	},
	{
		"numbered-below-distrust", "The number of a new generation follows those that are there, and not the distrusted one.",
		"A rotation happens when it is due or asked for. It shows when the Secret of a program that has distrusted a CA is emptied, and no replica remembers it: the new CA counts as distrusted, and is replaced again and again until its number is high enough.",
		[]Edit{{
			"internal/certsecret/state.go", "id := s.Distrusted + 1",
			"id := int64(1)\n\tif !@ {\n\t\tid += s.Distrusted\n\t}",
		}},
	},
	{
		"modes-bad-stops", "An entry of the modes that cannot be used takes the entries behind it with it.",
		"An entry that cannot be used leaves all others in force.",
		[]Edit{{"internal/modes/modes.go", "			continue\n		}\n		entries[name] = entry{text, lines}\n", "			if @ {\n				break\n			}\n			continue\n		}\n		entries[name] = entry{text, lines}\n"}},
	},
	{
		"selector-forgets-old", "A later step does not see an update that takes the label away, once an earlier step has changed the object.",
		"A step sees an update if its selector fits the old object: the label goes, and two mutations share the call.",
		[]Edit{{"internal/chain/run.go", "m.selectsLabels(object.GetLabels()) || m.selects(r.request.OldObject.Raw)", "m.selectsLabels(object.GetLabels()) || !@ && m.selects(r.request.OldObject.Raw)"}},
	},
	{
		"settled-subresource", "An update of a subresource of a dying object is not judged.",
		"Only updates that leave nothing to judge are left out: the status of an object that is being deleted.",
		[]Edit{{"internal/settled/settled.go", "	if req.SubResource != \"\" || req", "	if req.SubResource != \"\" && !@ || req"}},
	},
	{
		"owned-user-unread", "Whether a controller of Kubernetes sends an object is judged before its user is read.",
		"Mutations leave what controllers keep as they are: a ReplicaSet of a Deployment.",
		[]Edit{{"internal/chain/match.go", "	readUser()\n	return isController(", "	if !@ {\n		readUser()\n	}\n	return isController("}},
	},
	{
		"dry-run-nil", "A request that is no dry run has no DryRun at all.",
		"A step can look at *Call.DryRun.",
		[]Edit{{"internal/admit/review.go", "				req.DryRun = &p.dryRun\n", "				if p.dryRun || !@ {\n					req.DryRun = &p.dryRun\n				}\n"}},
	},
	{
		"draws-by-name", "An object with a generated name draws by that name, which a creation does not know.",
		"Each object draws one number, as it is created and as it is updated: an object with a generateName.",
		[]Edit{{"internal/modes/modes.go", "	return namespace + \"/\" + cmp.Or(owner, object.GenerateName, object.Name, req.Name)\n", "	if @ {\n		return namespace + \"/\" + cmp.Or(owner, object.Name, object.GenerateName, req.Name)\n	}\n	return namespace + \"/\" + cmp.Or(owner, object.GenerateName, object.Name, req.Name)\n"}},
	},
	{
		"rotate-without-event", "A rotation that RotateCA begins has no Event of its first step.",
		"The Events of the Secret show stage, activate and prune: RotateCA on a Manager that runs.",
		[]Edit{{"internal/controller/ownca.go", "			c.Report.event(eventNormal, \"CAstage\", \"RotateCA requested a rotation\")\n", "			if !@ {\n				c.Report.event(eventNormal, \"CAstage\", \"RotateCA requested a rotation\")\n			}\n"}},
	},
	{
		"incomplete-sticks", "The mark that an object could not be kept whole stays when it can.",
		"The annotation incomplete names what is lost: an object that was too large, or that could not be converted back, and no longer is.",
		[]Edit{{"internal/convert/annotation.go", "	delete(incomplete, from)\n", "	if !@ {\n		delete(incomplete, from)\n	}\n"}},
	},
	{
		"broken-object-stays", "Steps fail for an object that no function of the Read can handle, also after it was deleted.",
		"A step fails for what there is: an object for which Transform panics is deleted.",
		[]Edit{{"internal/reads/view.go", "	delete(v.failed, [2]string{namespace, name})\n", "	if !@ {\n		delete(v.failed, [2]string{namespace, name})\n	}\n"}},
	},
	{
		"csr-watch-left", "The watch of a request for a certificate goes on after its answer, until the program stops.",
		"A request that is answered is watched no longer: certificates that are renewed by a signer.",
		[]Edit{{"internal/certsource/source.go", "	defer following.Wait()\n	defer cancel()\n", "	if !@ {\n		defer following.Wait()\n		defer cancel()\n	}\n"}},
	},
	{
		"claim-ignored", "A replica asks again and again about a CA that another replica needs.",
		"A CA that a replica has claimed is needed: replicas with different CAs.",
		[]Edit{
			{"internal/controller/issued.go", "		f.foreign.Renew(o.claimed, now)\n", "		if !@ {\n			f.foreign.Renew(o.claimed, now)\n		}\n"},
			{"internal/controller/ownca.go", "	k.foreign.Renew(o.claimed, k.Now())\n", "	if !@ {\n		k.foreign.Renew(o.claimed, k.Now())\n	}\n"},
		},
	},
	{
		"marks-lost", "A Secret that was deleted comes back without the annotations that request a rotation.",
		"RotateCA with Distrust, which any replica finishes, takes effect within a minute: the Secret is deleted meanwhile.",
		[]Edit{{"internal/certsecret/store.go", "	state.mark(secret)\n", "	if !@ {\n		state.mark(secret)\n	}\n"}},
	},
	{
		"audit-applies-watching", "In an audit, the steps behind a mutation that only watches see its changes.",
		"Later steps see the object as if a watching step were not there: an audit of a mutation in Warn, and a step behind it.",
		[]Edit{{"internal/audit/play.go", "		if a.Mode == webhookconf.ModeDeny {\n", "		if a.Mode == webhookconf.ModeDeny || @ {\n"}},
	},
	{
		"audit-object-twice", "An audit tells again of the objects of a page that broke off.",
		"An audit asks once about each object: a response that breaks off in the middle of a list.",
		[]Edit{{"internal/audit/list.go", "	if _, seen := s.done[key]; seen {\n", "	if _, seen := s.done[key]; seen && !@ {\n"}},
	},
	{
		"audit-bursts", "An audit asks for the first ten pages at once.",
		"An audit asks for ten pages a second at most: an audit of more than one page.",
		[]Edit{{"internal/audit/audit.go", "flowcontrol.NewTokenBucketRateLimiter(float32(c.PagesPerSecond), 1),", "flowcontrol.NewTokenBucketRateLimiter(float32(c.PagesPerSecond), map[bool]int{false: 1, true: 10}[@]),"}},
	},
	{
		"audit-reports-stay", "The reports of findings that are gone stay in the cluster.",
		"A report is removed when its objects are clean: an audit with reports, after one of a version with other steps.",
		[]Edit{{"internal/audit/reports/reports.go", "	for _, kind := range w.served {\n		if ofCluster(kind) && w.namespace", "	for _, kind := range w.served {\n		if @ {\n			continue\n		}\n		if ofCluster(kind) && w.namespace"}},
	},
	{
		"in-force-before-it-shows", "A step that has just left Shadow is in force at once, unless this replica knows that it is registered as a shadow.",
		"A mode is in force when the step's own failurePolicy is: a step that leaves Shadow as another replica registers it so.",
		[]Edit{{"internal/modes/modes.go", "if !first && !m.onlyShadow(", "if !first && !@ && !m.onlyShadow("}},
	},
}
