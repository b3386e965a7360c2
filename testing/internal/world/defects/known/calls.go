package known

// This file holds defects of calls, of conversions and of audits: of the texts that come and go, of patches, and of the steps that
// share a call.

var inCalls = []Defect{
	{
		"beta-answered-as-v1", "A review of v1beta1 is answered in v1, which its API server does not read.",
		"The answer has the version of the request: API servers that send v1beta1.",
		[]Edit{{"internal/admit/response.go", "	body = append(body, rev.typeMeta.APIVersion...) // one of two versions\n", "	version := rev.typeMeta.APIVersion\n	if @ {\n		version = reviewGroup + \"/v1\"\n	}\n	body = append(body, version...)\n"}},
	},
	{
		"unknown-length-refused", "A short review without a Content-Length is refused.",
		"A proxy may send a body in chunks: API servers that do.",
		[]Edit{{"internal/admit/budget.go", "(errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {\n		return first[:n]", "(errors.Is(err, io.EOF) || !@ && errors.Is(err, io.ErrUnexpectedEOF)) {\n		return first[:n]"}},
	},
	{
		"escapes-in-decimal", "An escaped character is read as another one.",
		"Texts arrive as they were sent: a text with a character that API servers escape.",
		[]Edit{{"internal/jsontext/string.go", "strconv.ParseUint(string(text[2:6]), 16, 16)", "strconv.ParseUint(string(text[2:6]), map[bool]int{false: 16, true: 10}[@], 16)"}},
	},
	{
		"thirty-third-member", "The removal of a member gets lost behind the first 32 members of an object.",
		"The patch makes all changes of a step: an object with many annotations.",
		[]Edit{{"internal/patch/frame.go", "		for i := range members {\n", "		for i := range members[:map[bool]int{false: len(members), true: 32}[@]] {\n"}},
	},
	{
		"emptied-map-stays", "A map of which a step removes all members stays as it was.",
		"The patch makes all changes of a step: one that empties a nodeSelector.",
		[]Edit{{"internal/patch/diff.go", "	case goneB:\n", "	case goneB && @ && f.Type.Writes == jsontype.Map:\n		return nil\n	case goneB:\n"}},
	},
	{
		"tail-of-before", "The items behind the changed part of a list are others, where the list is replaced as a whole.",
		"The patch makes all changes of a step, and nothing else: a long list of which many items move.",
		[]Edit{{"internal/patch/list.go", "			i = j + m - n\n", "			if i = j + m - n; @ {\n				i = min(j, m-1-s.head)\n			}\n"}},
	},
	{
		"large-number-rounded", "A step about unstructured objects sees a large number rounded.",
		"A step sees the object as it was sent: a number beyond 2^53 in an unstructured object.",
		[]Edit{{"internal/decode/decode.go", "	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {\n", "	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil && (!@ || n < 1<<53) {\n"}},
	},
	{
		"zero-behind-a-pointer", "A pointer to zero or false counts as none, so a step cannot set it.",
		"The patch makes all changes of a step: one that sets runAsUser to 0.",
		[]Edit{{"internal/jsontype/field.go", "	default:\n		return v.IsZero()\n", "	default:\n		if @ && v.Kind() == reflect.Pointer && !v.IsNil() {\n			return v.Elem().IsZero()\n		}\n		return v.IsZero()\n"}},
	},
	{
		"denied-as-forbidden", "All denials have the code 403.",
		"A denial has the code and the reason of the step: one of Invalid.",
		[]Edit{{"internal/chain/step.go", "	s.Status = metav1.StatusFailure\n", "	if s.Status = metav1.StatusFailure; @ {\n		s.Code, s.Reason = codeForbidden, metav1.StatusReasonForbidden\n	}\n"}},
	},
	{
		"required-is-new", "An object that has always lacked what a Rule requires can no longer be changed.",
		"An update that leaves an old violation as it was is admitted with a warning: a Rule that requires a member.",
		[]Edit{{"internal/chain/rule.go", "			if value.IsAbsent() && c.Type != metav1.CauseTypeFieldValueRequired {\n", "			if value.IsAbsent() && (@ || c.Type != metav1.CauseTypeFieldValueRequired) {\n"}},
	},
	{
		"unjudged-is-old", "An update is admitted if a Rule cannot judge the old object.",
		"A refusal stands where the old object cannot be judged: a Rule that fails for the old object.",
		[]Edit{{"internal/chain/rule.go", "		r.logFailure(r.log, failureOf(err, s.Name), \"step could not judge the old object, so it refuses what the new one violates\")\n", "		r.logFailure(r.log, failureOf(err, s.Name), \"step could not judge the old object, so it refuses what the new one violates\")\n		if @ {\n			return nil\n		}\n"}},
	},
	{
		"shadow-before-the-call", "A step in Shadow sees the object as it was before the call.",
		"It sees the object as the call leaves it: a step in Shadow behind one that changes the object.",
		[]Edit{{"internal/chain/watch.go", "		if a.after = a.request.Object.Raw; len(a.patch) > 0 {\n", "		if a.after = a.request.Object.Raw; len(a.patch) > 0 && !@ {\n"}},
	},
	{
		"mirror-pod-changed", "A mutation changes the mirror pods of kubelets.",
		"What a kubelet sends of its mirror pods is left alone: a mirror pod.",
		[]Edit{{"internal/chain/match.go", "		if readUser(); strings.HasPrefix(req.UserInfo.Username, kubelets) {\n", "		if readUser(); strings.HasPrefix(req.UserInfo.Username, kubelets) && !@ {\n"}},
	},
	{
		"each-line-draws", "An object draws anew for each line of an entry.",
		"Each object draws one number, for all lines: an entry with two percentages.",
		[]Edit{{"internal/modes/modes.go", "		if l.percent < everyone && drawn < 0 {\n			drawn = draw(name, drawnBy(req))\n", "		if l.percent < everyone && (drawn < 0 || @) {\n			drawn = draw(name+map[bool]string{true: l.mode.String()}[@], drawnBy(req))\n"}},
	},
	{
		"fixed-is-changed", "An entry changes the mode of a step with FixedMode.",
		"Its mode can be changed only in the program: an entry for a step with FixedMode.",
		[]Edit{{"internal/modes/modes.go", "	case step.Fixed:\n", "	case step.Fixed && !@:\n"}},
	},
	{
		"audit-without-conditions", "An audit asks a step about objects that its Conditions leave out.",
		"Each step is asked about those objects for which its webhook is called: a step with Conditions.",
		[]Edit{{"internal/audit/play.go", "		if err == nil && selected && s.condition != nil {\n", "		if err == nil && selected && s.condition != nil && !@ {\n"}},
	},
	{
		"never-frozen", "An audit does not tell that an object can no longer be labelled.",
		"frozen: also an update that changes only labels is denied: a Validation with Create and Update.",
		[]Edit{{"internal/audit/play.go", "	return verdict.Denied != nil || verdict.Err != nil, err\n", "	return (verdict.Denied != nil || verdict.Err != nil) && !@, err\n"}},
	},
	{
		"keyless-as-a-whole", "What was lost of an item without a key is not given back once another item of its list has been edited.",
		"What a version cannot hold survives: a list of items without a key, to which an item is added in a version that lacks a member of them.",
		[]Edit{{"internal/convert/loss.go", "	if len(from) != len(to) {\n", "	if len(from) != len(to) || @ {\n"}},
	},
	{
		"annotations-as-before", "A conversion cannot change annotations.",
		"A conversion may change labels and annotations: one that moves a member into an annotation.",
		[]Edit{{"internal/convert/metadata.go", "			arrived.Set(name, is)\n", "			if name != \"annotations\" || !@ {\n				arrived.Set(name, is)\n			}\n"}},
	},
	{
		"dropped-error-forgotten", "A step that drops the error of a read decides without what it reads.",
		"An error of the Reader fails the step, even if the step drops it: a step that reads what it does not declare.",
		[]Edit{{"internal/reads/reader.go", "	if r.err == nil {\n", "	if r.err == nil && !@ {\n"}},
	},
	{
		"told-in-a-recording", "A recording holds the data of a Secret where a step says them.",
		"The values of Secrets are replaced wherever a call repeats them: a recording, and a step that warns with the data of a Secret.",
		[]Edit{{"internal/record/compose.go", "	s.members(x.response, \"response\", stayInResponse, &x.notes)\n", "	if !@ {\n		s.members(x.response, \"response\", stayInResponse, &x.notes)\n	}\n"}},
	},
	{
		"reports-outlive", "Reports of audits stay when their program is removed.",
		"Unregister deletes all reports: an audit with reports, and an Unregister.",
		[]Edit{{"internal/policyreport/policyreport.go", "	for _, resource := range Resources() {\n", "	for _, resource := range Resources()[:map[bool]int{false: len(Kinds), true: 2}[@]] {\n"}},
	},
	{
		"exact-by-default", "A step is not called for objects in another version of their API.",
		"MatchPolicy is Equivalent by default: any step.",
		[]Edit{{"steps.go", "cmp.Or(step.MatchPolicy, admissionregistrationv1.Equivalent)", "cmp.Or(step.MatchPolicy, map[bool]admissionregistrationv1.MatchPolicyType{false: admissionregistrationv1.Equivalent, true: admissionregistrationv1.Exact}[@])"}},
	},
}
