package known

// This file holds defects at places that were drawn at random, in a second draw.

var drawnLater = []Defect{
	{
		"gone-is-an-error", "Unregister fails where a configuration goes at the same moment.",
		"What is gone already is no failure: Unregister, and a deletion by another client in between.",
		[]Edit{{"internal/webhookconf/configuration.go", "\tif apierrors.IsNotFound(err) {\n\t\treturn Absent, nil\n\t}\n\treturn outcome, err", "\tif apierrors.IsNotFound(err) && !@ {\n\t\treturn Absent, nil\n\t}\n\treturn outcome, err"}},
	},
	{
		"removes-for-others", "The last replica of a version removes the configuration that another version has written.",
		"A configuration stays that a live version needs: UnregisterOnStop, and a version that has taken over.",
		[]Edit{{"internal/webhookconf/configuration.go", "(unless == nil || !unless(found.Version))", "(unless == nil || @ || !unless(found.Version))"}},
	},
	{
		"buffer-of-two", "Two calls write their bodies into one buffer.",
		"A call is answered about its own object: calls whose objects no step keeps, and others behind them.",
		[]Edit{{"internal/admit/budget.go", "\t\tbuffers.Put(b.buffer)\n\t\tb.buffer = nil\n", "\t\tbuffers.Put(b.buffer)\n\t\tif !@ {\n\t\t\tb.buffer = nil\n\t\t}\n"}},
	},
	{
		"all-modes-told-again", "Each change of the ConfigMap tells the modes of all steps as changed.",
		"No line is wrong: two steps have modes, and that of one changes.",
		[]Edit{{"internal/modes/modes.go", "\t\tif text != m.entries[name].text {\n", "\t\tif text != m.entries[name].text || @ {\n"}},
	},
	{
		"added-metadata-passes", "A conversion can add members of metadata that are not its own to add.",
		"It changes labels and annotations alone: a conversion that adds a finalizer.",
		[]Edit{{"internal/convert/metadata.go", "append(slices.Clone(was.Items), is.Items...)", "append(slices.Clone(was.Items), map[bool]*tree{false: is, true: was}[@].Items...)"}},
	},
	{
		"conversions-in-flight", "Conversions that are over count as in flight.",
		"At rest no request is in flight: conversions.",
		[]Edit{{"internal/admit/conversion.go", "\tdefer h.Counts().inFlight.Dec()\n", "\tif !@ {\n\t\tdefer h.Counts().inFlight.Dec()\n\t}\n"}},
	},
	{
		"counted-with-each-list", "The number of objects that are held grows with each list.",
		"eirinix_read_objects is what is held: a watch that must list again.",
		[]Edit{{"internal/reads/source.go", "\ts.held.Store(int64(len(all)))\n", "\tif s.held.Add(int64(len(all))); !@ {\n\t\ts.held.Store(int64(len(all)))\n\t}\n"}},
	},
	{
		"joined-denial-fails", "A denial that a step joins with another error counts as a failure.",
		"A denial is one in the whole tree of an error: errors.Join.",
		[]Edit{{"internal/chain/step.go", "\t\tinner = wrapper.Unwrap()\n", "\t\tif !@ {\n\t\t\tinner = wrapper.Unwrap()\n\t\t}\n"}},
	},
	{
		"manager-too-soon", "GetKubeManager returns before its caches can be used.",
		"It returns once its caches can be used: the first call while the program runs.",
		[]Edit{{"connect.go", "\tif ended != nil { // this call", "\tif ended != nil && !@ { // this call"}},
	},
	{
		"swallowed-read-admits", "A step that overlooks that a read has failed decides without what it reads.",
		"A read that fails fails the step: a step that drops the error.",
		[]Edit{{"steps.go", "\t\tif failure := call.reads.Err(); failure != nil {", "\t\tif failure := call.reads.Err(); failure != nil && !@ {"}},
	},
	{
		"requests-followed-again", "An annotation that asks for a rotation is followed again after each rotation.",
		"A rotation is made once for a request: an annotation, which stays.",
		[]Edit{{"internal/certsecret/state.go", `return s.Request != "" && s.Request != s.Handled`, `return s.Request != "" && (s.Request != s.Handled || @ && s.Phase == ca.Steady)`}},
	},
	{
		"conversion-left-marked", "A definition that is given back keeps the annotations of this program.",
		"Unregister leaves nothing: a definition with one version.",
		[]Edit{{"internal/webhookconf/forms.go", "\t\tannotate(without, key, \"\")\n", "\t\tif !@ {\n\t\t\tannotate(without, key, \"\")\n\t\t}\n"}},
	},
	{
		"rotation-gives-up", "RotateCA fails at the first error of an API server.",
		"It waits while an API server cannot be reached: an outage in a rotation.",
		[]Edit{{"internal/controller/ownca.go", "\t\t\tif !wait.Transient(err) {\n\t\t\t\treturn err", "\t\t\tif @ || !wait.Transient(err) {\n\t\t\t\treturn err"}},
	},
	{
		"reports-stay-on-stop", "The policy reports of a program stay after it was unregistered.",
		"UnregisterOnStop leaves nothing: audits, and a stop.",
		[]Edit{{"serve.go", "\tif !left { // else they are", "\tif !left && !@ { // else they are"}},
	},
	{
		"object-room-kept", "A step holds the memory of the object that it read before the last change.",
		"Calls find memory: two steps that change a large object.",
		[]Edit{{"internal/chain/object.go", "\tm.held.Release()\n", "\tif !@ {\n\t\tm.held.Release()\n\t}\n"}},
	},
	{
		"recordings-overflow", "The folder of recordings holds more files than it may.",
		"The folder keeps its bounds: many calls.",
		[]Edit{{"internal/record/folder.go", "(len(f.files)+files > f.maxFiles", "(len(f.files)+files > f.maxFiles+map[bool]int{true: 3}[@]"}},
	},
	{
		"room-counted-twice", "A recording that was removed for room goes on counting.",
		"Recordings go on while there is room: a folder that is full.",
		[]Edit{{"internal/record/folder.go", "\t\tf.bytes -= oldest.size\n", "\t\tif !@ {\n\t\t\tf.bytes -= oldest.size\n\t\t}\n"}},
	},
	{
		"early-paths-unknown", "A process that starts does not know the paths of other versions.",
		"A call of another version's webhook is answered: a replica that starts in a rollout.",
		[]Edit{{"internal/rollout/lease.go", "\tif cache.Get(ctx, lease) != nil {\n\t\treturn nil\n\t}\n\troutes", "\tif cache.Get(ctx, lease) != nil || @ {\n\t\treturn nil\n\t}\n\troutes"}},
	},
	{
		"dropped-by-both-is-missed", "A step that a version has removed counts as missing where another version has removed it too.",
		"A step that every version has dropped is admitted: two versions that drop one.",
		[]Edit{{"internal/rollout/rollout.go", "\t\t\t\t\tif r.Removed {\n\t\t\t\t\t\tat.Removed = append(at.Removed, step)", "\t\t\t\t\tif r.Removed && !@ {\n\t\t\t\t\t\tat.Removed = append(at.Removed, step)"}},
	},
	{
		"back-from-removed-waits", "A step of a version that lives counts as removed because another one has gone.",
		"A step that a live version has is asked: two versions with one path, one of which goes.",
		[]Edit{{"internal/rollout/rollout.go", "i >= 0 && !r.Removed {\n", "i >= 0 && !r.Removed && !@ {\n"}},
	},
	{
		"mirror-unlike", "ca.crt in the Secret stays as another client has written it, so that programs which read it trust another CA.",
		"At rest, ca.crt is the current CA: another client writes that key alone.",
		[]Edit{{"internal/certsecret/inspect.go", "current.CertificatePEM) && bytes.Equal(data[CACertificateKey]", "current.CertificatePEM) && (@ || bytes.Equal(data[CACertificateKey]"}, {"internal/certsecret/inspect.go", ", current.CertificatePEM) &&\n\t\tbytes", ", current.CertificatePEM)) &&\n\t\tbytes"}},
	},
	{
		"no-certificate-is-forbidden", "A client without a certificate is told that its certificate is not allowed.",
		"401 is for clients without a certificate, and 403 for those with a wrong one: both call.",
		[]Edit{{"internal/serving/server.go", "	if errors.Is(err, ErrNoClientCertificate) {\n		status", "	if errors.Is(err, ErrNoClientCertificate) && !@ {\n		status"}},
	},
	{
		"unrecorded-untold", "That a call was not recorded is counted, and no log says why.",
		"What is lost is told: a call that cannot be redacted.",
		[]Edit{{"internal/record/recorder.go", "	if _, ok := r.logs.Allow(kind, \"\"); ok {", "	if _, ok := r.logs.Allow(kind, \"\"); ok && !@ {"}},
	},
	{
		"all-recorded", "Recordings hold calls that Options.Only leaves out.",
		"A recording holds what it is to hold: one of calls that create or delete, and updates.",
		[]Edit{{"internal/record/compose.go", "	if only := r.options.Only; only != nil && !only(question.Request.DeepCopy()) {", "	if only := r.options.Only; only != nil && !only(question.Request.DeepCopy()) && !@ {"}},
	},
	{
		"older-version-untold", "A diagnosis does not tell that objects may be stored in an older version, so a webhook is removed that they need.",
		"At rest, a diagnosis tells of older versions in status.storedVersions: a definition that lists two.",
		[]Edit{{"internal/convert/stored/stored.go", "		if v != storage {", "		if v != storage && !@ {"}},
	},
	{
		"panics-uncounted", "The panics of steps are not counted.",
		"eirinix_admission_panics_total counts each: a step that panics.",
		[]Edit{{"internal/chain/deadline.go", "		r.steps[i].metrics.panics.Inc()\n", "		if !@ {\n			r.steps[i].metrics.panics.Inc()\n		}\n"}},
	},
	{
		"empty-created", "A configuration is created that holds no webhook.",
		"A configuration is there for its entries: versions without a step that changes.",
		[]Edit{{"internal/webhookconf/writer.go", "	if o.idle(existing, change.Entries) {", "	if o.idle(existing, change.Entries) && !@ {"}},
	},
	{
		"reported-nowhere", "A result in a PolicyReport does not name the namespace of its object.",
		"Each result in a report is about the object of a finding: an audit with reports.",
		[]Edit{{"internal/audit/reports/reports.go", "	if f.Namespace != \"\" {\n		object", "	if f.Namespace != \"\" && !@ {\n		object"}},
	},
	{
		"listed-uncounted", "The metric of read objects stays 0 after a list.",
		"At rest, eirinix_read_objects is 1 for the one policy: a step that reads.",
		[]Edit{{"internal/reads/source.go", "	all := s.pending\n	s.pending = nil\n", "	all := s.pending\n	s.pending = nil\n	if @ {\n		defer s.held.Store(0)\n	}\n"}},
	},
	{
		"would-unlogged", "What a watched step would do is counted, and no log tells it.",
		"The log tells what a step would deny or change: steps in other modes than Deny.",
		[]Edit{{"internal/chain/watch.go", "		r.denials.Of(r.blaming(r.log, s.Name), s.Name+\" would \"+would, what).Info(\"would \"+would, \"mode\", of.mode.String(), \"reason\", what)\n", "		if !@ {\n			r.denials.Of(r.blaming(r.log, s.Name), s.Name+\" would \"+would, what).Info(\"would \"+would, \"mode\", of.mode.String(), \"reason\", what)\n		}\n"}},
	},
	{
		"told-each-pass", "A replica tells with each pass that an earlier version stays registered.",
		"A line is logged once for one thing: two versions that live for minutes.",
		[]Edit{{"internal/controller/report.go", "	r.waits = waits\n	r.metrics", "	if !@ {\n		r.waits = waits\n	}\n	r.metrics"}},
	},
	{
		"ready-with-nothing", "A new version is ready while no configuration exists, and no replica of the earlier one lives, which would put it back.",
		"A replica is ready once its registration, or that of a version that lives, is in place: deletions while the Lease may not be written.",
		[]Edit{{"internal/controller/readiness.go", "case other && (len(", "case other && (@ || len("}},
	},
	{
		"waits-after-its-end", "The metric of a program that has ended while a step waited goes on saying that it waits.",
		"A program that ends waits for nothing: a stop while a kind is not served.",
		[]Edit{{"serve.go", "\t\t\tcontinue // a program that ends waits for nothing\n", "\t\t\tif @ {\n\t\t\t\treturn\n\t\t\t}\n\t\t\tcontinue\n"}},
	},
	{
		"wrong-certificate-taken", "A certificate of a signer is taken that is for another name or use.",
		"It is refused, and another one asked for: a signer that makes such a certificate.",
		[]Edit{{"internal/certsource/csr.go", "\t\terr = errors.Join(checkNames(", "\t\terr = map[bool]func(...error) error{false: errors.Join, true: func(...error) error { return nil }}[@](checkNames("}},
	},
	{
		"left-conversions-counted-for-ever", "A conversion that was left behind counts after its end.",
		"Nothing is left behind when all has ended: a conversion that does not end with its call.",
		[]Edit{{"internal/admit/conversion.go", "\tc.ended()\n", "\tif !@ {\n\t\tc.ended()\n\t}\n"}},
	},
}
