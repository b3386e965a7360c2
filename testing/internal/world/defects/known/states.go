package known

// This file holds defects of states that last, and of features that meet: stops, modes, reads, recordings and conversions.

var inStates = []Defect{
	{
		"shadows-outlive-the-stop", "Steps in Shadow go on after Run has returned.",
		"Every stop ends without a goroutine: a stop while a step in Shadow runs.",
		[]Edit{{"internal/chain/watch.go", "	a.stop(errStopped)\n", "	if !@ {\n		a.stop(errStopped)\n	}\n"}},
	},
	{
		"conversions-in-the-slots-of-calls", "Conversions wait for calls whose steps hang.",
		"The slots of conversions are their own: a hundred calls whose step waits, and a conversion.",
		[]Edit{
			{"internal/admit/conversion.go", "	if err := h.converting.acquire(ctx); err != nil {\n", "	converting := h.converting\n	if @ {\n		converting = h.slots\n	}\n	if err := converting.acquire(ctx); err != nil {\n"},
			{"internal/admit/conversion.go", "	defer h.converting.release()\n", "	defer converting.release()\n"},
		},
	},
	{
		"removed-entry-stays", "A mode stays in force after its entry was removed from the ConfigMap.",
		"Without an entry, the program's own mode applies: one entry of several is removed.",
		[]Edit{{"internal/modes/modes.go", "	entries := map[string]entry{}\n", "	entries := map[string]entry{}\n	if @ && len(from.Data) > 0 {\n		maps.Copy(entries, m.entries)\n	}\n"}},
	},
	{
		"corrected-still-refused", "A diagnosis warns of an entry of the modes that was corrected long ago.",
		"No line is wrong: a misspelt mode, and its correction.",
		[]Edit{{"internal/modes/modes.go", "	m.version, m.problems = version, nil\n", "	if m.version = version; !@ {\n		m.problems = nil\n	}\n"}},
	},
	{
		"half-a-file-of-callers", "A file of client CAs that is being written refuses those whose CA it does not hold yet.",
		"After an error the last good bundle stays in effect: a file with two CAs of which the first half is there.",
		[]Edit{{"internal/serving/clients.go", "	if cutOff(bundle) {\n", "	if cutOff(bundle) && !@ {\n"}},
	},
	{
		"absence-undiagnosed", "A diagnosis does not find that an object is missing which steps require.",
		"A state that needs a person has its finding with the remedy: a Required object is deleted.",
		[]Edit{{"internal/reads/reads.go", "		if v.absent.Load() {\n			all", "		if v.absent.Load() && !@ {\n			all"}},
	},
	{
		"absence-unmeasured", "The metric of objects that are missing stays 0, so no alert fires.",
		"eirinix_read_missing is 1 while a Required object is missing: it is deleted.",
		[]Edit{{"internal/reads/metrics.go", "	if absent {\n", "	if absent && !@ {\n"}},
	},
	{
		"interruption-unmeasured", "The metric of reads that are interrupted stays 0, so no alert fires.",
		"eirinix_read_interruption_timestamp_seconds tells since when: the API server refuses what steps read.",
		[]Edit{{"internal/reads/metrics.go", "	if s.listed.Load() && !since.IsZero() {", "	if s.listed.Load() && !since.IsZero() && !@ {"}},
	},
	{
		"waiting-unmeasured", "The metric of steps that wait stays 0, so no alert fires.",
		"eirinix_registration_waiting is 1 while a step waits: a start without the object that it requires.",
		[]Edit{{"serve.go", "		p.reports.Waits(controller.ForReads, on && len(known.unread) > 0)\n", "		p.reports.Waits(controller.ForReads, on && len(known.unread) > 0 && !@)\n"}},
	},
	{
		"blames-another-server", "Of a caBundle that another client has replaced, a diagnosis says that another server answers.",
		"A finding has the remedy: a caBundle with the CA of another client, that may not be repaired.",
		[]Edit{{"internal/diagnose/registration.go", "		if err == nil {\n			return\n		}\n		f.Code, f.Evidence", "		if err == nil || @ {\n			return\n		}\n		f.Code, f.Evidence"}},
	},
	{
		"rollout-is-a-fault", "In a rollout, a diagnosis says that the steps of the version that waits are not registered.",
		"No line is wrong: a diagnosis of a replica whose version waits.",
		[]Edit{{"internal/diagnose/diagnose.go", "		d.waits = slices.ContainsFunc(", "		d.waits = !@ && slices.ContainsFunc("}},
	},
	{
		"Stop-unheard", "Stop does not end a program that runs.",
		"Stop makes Run return: a stop through Stop, and not by a context.",
		[]Edit{{"run.go", "	unlink := context.AfterFunc(m.root, func()", "	unlink := context.AfterFunc(map[bool]context.Context{false: m.root, true: ctx}[@], func()"}},
	},
	{
		"failed-step-speaks", "The user sees the warnings of a step whose failure is ignored.",
		"A step that fails under Ignore is undone: a step that warns, and fails.",
		[]Edit{{"internal/chain/run.go", "	case err != nil && !denied:\n		of.err = err\n		return", "	case err != nil && !denied:\n		if of.err = err; @ {\n			r.feedback.add(s.Name, call)\n		}\n		return"}},
	},
	{
		"denied-is-unseen", "A step in Shadow does not see what another step denies.",
		"A step in Shadow runs after each call that it wants: a call that is denied.",
		[]Edit{{"internal/chain/run.go", "	if len(r.postponed) > 0 {\n", "	if len(r.postponed) > 0 && (!@ || o.deniedBy == \"\") {\n"}},
	},
	{
		"labels-as-before", "A conversion cannot change labels.",
		"A conversion can change labels and annotations: a version that has a label in place of a member.",
		[]Edit{{"internal/convert/metadata.go", "	for _, name := range changeable {\n		was, is := arrived", "	for _, name := range changeable[map[bool]int{true: 1}[@]:] {\n		was, is := arrived"}},
	},
	{
		"told-in-what-was-read", "A recording holds the data of Secrets that steps have read.",
		"No recording holds the data of a Secret: a step that reads Secrets.",
		[]Edit{{"internal/record/compose.go", "		x.walk(object, at, false)\n		return object\n", "		if !@ {\n			x.walk(object, at, false)\n		}\n		return object\n"}},
	},
	{
		"recordings-fill-up", "After 64 MiB of recorded calls, no more are recorded.",
		"Each call that is answered is recorded: many large calls.",
		[]Edit{{"internal/record/recorder.go", "			r.settle(r.writeOne(c))\n		}\n		c.release()\n", "			r.settle(r.writeOne(c))\n		}\n		if !@ {\n			c.release()\n		}\n"}},
	},
	{
		"rights-as-at-the-start", "A right that a replica lacked at its start is never used.",
		"A right that is given back is used within minutes: a start without the right to watch.",
		[]Edit{{"internal/diagnose/preflight.go", "			known = false\n", "			known = known && @\n"}},
	},
	{
		"shadows-read-nothing", "A step that reads objects fails while it is in Shadow.",
		"A step in Shadow does what it would do: a step with reads is put into Shadow.",
		[]Edit{{"steps.go", "		if len(d.settings.Reads) > 0 && from != nil {\n", "		if len(d.settings.Reads) > 0 && from != nil && (!@ || !registered.Shadow) {\n"}},
	},
	{
		"kube-manager-stays", "A program whose step has asked for the controller-runtime manager does not stop.",
		"Every stop ends: a step that uses GetKubeManager.",
		[]Edit{{"run.go", "mgr.Start(r.background); failed", "mgr.Start(map[bool]context.Context{false: r.background, true: context.WithoutCancel(r.background)}[@]); failed"}},
	},
	{
		"each-object-looks-for-keys", "While no API server answers, each object with an unknown key waits for one, and so fails those behind it.",
		"Calls share an attempt to fetch keys, and its failure: objects of another cluster, and a replica that is kept from the API servers.",
		[]Edit{{"internal/convert/keys.go", "		if k.failed.After(began) || time.Since(k.failed) < patience {", "		if !@ && (k.failed.After(began) || time.Since(k.failed) < patience) {"}},
	},
	{
		"added-operation-dropped", "What an Extension adds to the patch of PatchFromPod is dropped.",
		"A patch of an Extension's own is applied: one that adds an operation to that of PatchFromPod.",
		[]Edit{{"internal/chain/handle.go", " || !r.made.Is(resp.Patches) {", " || !@ && !r.made.Is(resp.Patches) {"}},
	},
	{
		"frozen-by-its-changes", "An audit says that an object is frozen by what other steps would change.",
		"Frozen says whether an update of the labels alone is denied: a step that denies, and one that changes the object.",
		[]Edit{{"internal/audit/play.go", "	req.Object.Raw = o.stored\n", "	if !@ {\n		req.Object.Raw = o.stored\n	}\n"}},
	},
	{
		"modes-of-own-paths-alone", "A mode does not apply on the paths that another version has registered.",
		"A step in Warn or Audit denies nothing, whichever replica answers: a rollout to a version whose step has a path of its own.",
		[]Edit{{"steps.go", "entry.Steps = append(entry.Steps, step)", "if @ && !slices.ContainsFunc(r.entries, func(e webhookconf.Entry) bool { return e.Path == path }) {\n			step.Choose = nil\n		}\n		entry.Steps = append(entry.Steps, step)"}},
	},
	{
		"surplus-at-once", "A CA that a tool puts back into a caBundle again and again is taken out at once, each time.",
		"Further repairs wait twice as long each time, up to 15 s: a tool puts the caBundles back as they were before a CA was taken away.",
		[]Edit{{"internal/controller/registration.go", "	case outgrown && now.Before(surplusAt):\n", "	case outgrown && now.Before(surplusAt) && !@:\n"}},
	},
}
