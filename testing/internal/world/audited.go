package world

// This file judges what audits tell, by what steps do to the objects that exist: by the labels of these, and by a reckoning of
// the world's own.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/audit"
)

// nothing is the result of a step that admits an object as it is. unasked is that of a step that does not select it.
const nothing, unasked, unsure audit.Result = "nothing", "unasked", "unsure"

// judges looks at the findings of an audit. The caller holds World.mu.
func (e *examination) judges(took time.Duration) {
	incomplete, ended := errors.AsType[*audit.IncompleteError](e.err)
	ended = ended || e.err == nil
	if e.rested && !e.cut && took > auditedSoon {
		e.breaks("%s takes %s, and nothing is in its way", e.name, took)
	}
	if e.rested && !e.cut && !ended {
		e.breaks("%s fails although nothing is in its way: %v", e.name, e.err)
	}
	if e.err != nil && !e.cut && !ended && (e.err.Error() == context.Canceled.Error() || e.err.Error() == context.DeadlineExceeded.Error()) {
		e.breaks("%s ends, and does not say what has failed: %v", e.name, e.err)
	}
	if ended && (len(e.summary.Gaps) > 0) != (incomplete != nil) {
		e.breaks("%s has %d gaps, and ends with: %v", e.name, len(e.summary.Gaps), e.err)
	}
	for _, g := range e.summary.Gaps {
		if g.Reason == "" || g.Remedy == "" {
			e.breaks("%s has a gap without a reason, or a remedy: %s", e.name, g)
		}
		if e.rested && g.Objects == 0 && !e.waits(g) {
			e.breaks("%s has a gap although nothing is in its way: %s", e.name, g)
		}
	}
	e.paces()
	e.keepsOff()
	e.prints()
	e.gapsWell(ended)
	found := map[string]audit.Finding{}
	for _, f := range e.told {
		key := f.Step + " " + f.Kind.Kind + " " + f.Namespace + "/" + f.Name
		if _, twice := found[key]; twice && f.Name != "" {
			e.breaks("%s tells twice of %s", e.name, key)
		}
		if found[key] = f; strings.Contains(f.Text(), strconv.Itoa(illImage)) {
			e.breaks("%s tells a value of an object: %s", e.name, f.Text())
		}
	}
	e.sums()
	for _, object := range e.stored {
		for _, step := range e.asks() {
			e.compares(object, step, found[step+" "+object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName()], ended)
		}
	}
	if ended && e.rested && e.options.PolicyReports {
		e.filed()
	} else if ended && e.options.PolicyReports {
		e.keeps()
	}
}

// waits reports whether a gap is that of a step that waits: for a policy, or for shops, which clusters need not serve.
func (e *examination) waits(g audit.Gap) bool {
	return g.Step == vault && e.lacks || g.Step == misprinted || g.Step == definitionName || (g.Step == reader || g.Step == looker || g.Step == ager) && (e.plan.Late || e.plan.Kinds)
}

// paces looks at how often lists were asked for.
func (e *examination) paces() {
	e.mu.Lock()
	defer e.mu.Unlock()
	pause := 100 * time.Millisecond
	if rate := e.options.PagesPerSecond; rate > 0 {
		pause = time.Duration(float64(time.Second) / rate)
	}
	for i := 1; i < len(e.listed); i++ {
		if apart := e.listed[i].Sub(e.listed[i-1]); apart < pause-time.Millisecond {
			e.breaks("%s asks for two pages within %s", e.name, apart)
		}
	}
}

// keepsOff looks at the writes of an audit: reports alone, and those if they are asked for.
func (e *examination) keepsOff() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, request := range e.wrote {
		if !e.options.PolicyReports || !strings.Contains(request, reportGroup) {
			e.breaks("%s writes: %s", e.name, request)
		}
	}
}

// asks returns the steps that the audit asks about objects.
func (e *examination) asks() []string {
	all := []string{lenient, keeper, ghost, witness}
	if e.release.reads {
		all = append(all, reader)
	}
	if e.release.sets {
		all = append(all, marker, stamper)
	}
	if e.release.converts {
		all = append(all, definitionName)
	}
	if !e.release.judges {
		all = append(all, lenient+"-sets")
	}
	for _, step := range plain {
		if e.release.has(step) {
			if all = append(all, step); !e.release.judges {
				all = append(all, step+"-sets")
			}
		}
	}
	for _, s := range e.release.boxes {
		all = append(all, s.name)
	}
	if chosen := e.options.Steps; len(chosen) > 0 {
		all = slices.DeleteFunc(all, func(step string) bool { return !slices.Contains(chosen, step) })
	}
	return all
}

// modeFor is the mode of a step that is in force for a namespace; nothing if that is not known. The caller holds World.mu.
func (e *examination) modeFor(step, namespace string) eirinix.Mode {
	m := e.modes[step]
	if s, of := e.boxStepOf(step); of {
		return cmp.Or(s.Mode, eirinix.ModeDeny)
	}
	switch {
	case step == ghost || step == witness:
		return eirinix.ModeShadow
	case !e.steady || !m.bad.IsZero() || e.misspelt(m) || e.runs && (!e.settledSince(m.since) || !m.since.Add(inMode).Before(e.began)) || !e.rested && e.plan.Modes:
		return ""
	case e.runs && e.declaresModes(step): // it can be registered as a shadow by another version
		return ""
	case m.text == "" && e.release.modes[step] != "":
		return e.release.modes[step]
	case namespace != "shop" && strings.Contains(m.text, " where "):
		_, m.text, _ = strings.Cut(m.text, " where "+gold)
		fallthrough
	case namespace != "shop":
		m.mode = eirinix.Mode(strings.TrimSpace(m.text))
	}
	if m.mode == "" {
		return eirinix.ModeDeny
	}
	return m.mode
}

// boxResults are the results of the steps about boxes for an object.
func (e *examination) boxResults(object *unstructured.Unstructured) map[string]examined {
	of := object.GetKind() + " " + object.GetName()
	if e.boxed == nil {
		e.boxed = map[string]map[string]examined{}
	}
	if e.boxed[of] == nil {
		e.boxed[of] = e.ofBox(object)
	}
	return e.boxed[of]
}

// result returns what a step says of an object.
func (e *examination) result(object *unstructured.Unstructured, step string) audit.Result {
	label := object.GetLabels()
	switch kind := object.GetKind(); {
	case isBoxStep(step):
		return e.boxResults(object)[step].result
	case kind == "Shop" && step == definitionName:
		return map[bool]audit.Result{true: nothing, false: audit.Drift}[object.GetName() == cleanShop]
	case kind == kindOfIt && (step == marker || step == stamper):
		return map[bool]audit.Result{true: audit.Drift, false: unasked}[object.GetName() == "free"]
	case kind != "Pod" || step == definitionName || step == marker || step == stamper:
		return unasked
	case step == ghost && !e.release.shadow || step == witness:
		return unasked
	case object.GetName() == "ill":
		return audit.Failed
	case step == reader:
		return map[bool]audit.Result{true: audit.Drift, false: unsure}[e.rested && !e.plan.Late && !e.plan.Kinds]
	case step == keeper && label[brokenRule] != "":
		return audit.Denied
	case step == lenient+"-sets" && label[failLabel] != "":
		return audit.Failed
	case step == lenient+"-sets":
		return audit.Drift
	case strings.HasSuffix(step, "-sets"):
		of := strings.TrimSuffix(step, "-sets")
		if notes := object.GetAnnotations(); notes["ran-"+of] == e.release.name && among(notes[orderKey], of) {
			return nothing
		}
		return audit.Drift
	case slices.Contains(plain, step) && among(label[denyLabel], step):
		return audit.Denied
	}
	return nothing
}

// compares compares the finding about a step and an object with the result of the step. The caller holds World.mu.
func (e *examination) compares(object *unstructured.Unstructured, step string, f audit.Finding, ended bool) {
	want, of := e.result(object, step), object.GetNamespace()+"/"+object.GetName()
	gap := slices.ContainsFunc(e.summary.Gaps, func(g audit.Gap) bool { return g.Step == step && g.Objects == 0 })
	is := f.Result
	if f.Step == "" {
		is = nothing
	}
	switch {
	case want == unsure:
		return
	case want == unasked:
		want = nothing
	case f.Step == "" && (!ended || gap):
		return
	}
	if s, boxed := e.boxStepOf(step); boxed && is != want {
		e.breaks("%s: step %s is told to say %q of %s %s (%s), and says %q: %+v of %v", e.name, step, is, object.GetKind(), object.GetName(), f.Text(), want, s, jsonOf(object.Object))
		return
	}
	if is != want {
		e.breaks("%s: step %s of %s is told to say %q of %s %s (%s), and says %q", e.name, step, e.release.name, is, object.GetKind(), of, f.Text(), want)
		return
	}
	if f.Step == "" {
		return
	}
	if mode := e.modeFor(step, object.GetNamespace()); mode != "" && f.Operation != "" && string(f.Mode) != string(mode) && (f.Mode != "" || !e.cut) {
		e.breaks("%s: step %s is in %s, and %q is told of %s", e.name, step, mode, f.Mode, of)
	}
	switch {
	case f.UID != object.GetUID():
		e.breaks("%s: %s has the uid %s, and not %s", e.name, of, object.GetUID(), f.UID)
	case is == audit.Denied && (!strings.Contains(f.Message, step+" denies") || f.Frozen != e.boxResults(object)[step].frozen):
		e.breaks("%s: step %s denies %s, and is told to say %q (frozen: %t)", e.name, step, of, f.Message, f.Frozen)
	case step == definitionName && !(slices.Contains(f.Paths, "/spec/note") && strings.Contains(f.Message, second+" cannot hold")):
		e.breaks("%s: of a shop with a note, which %s cannot hold, is told: %s (%v)", e.name, second, f.Message, f.Paths)
	case is == audit.Drift && object.GetKind() == "Pod" && !isBoxStep(step):
		e.drifts(object, step, f)
	}
}

// drifts compares the paths that a step would change with the pod before that step and after it. Before it are the changes of
// the steps in Deny. The caller holds World.mu.
func (e *examination) drifts(pod *unstructured.Unstructured, step string, f audit.Finding) {
	if pod.GetAnnotations()[orderKey] != "" || len(e.options.Steps) > 0 {
		return
	}
	notes := &unstructured.Unstructured{Object: map[string]any{}}
	said := map[string]string{}
	runs := func(by string) {
		switch of := strings.TrimSuffix(by, "-sets"); by {
		case reader:
			said["ran-"+reader] = "some"
		case lenient + "-sets":
			said[halfway] = "yes"
		default:
			said["ran-"+of] = e.release.name
			said[orderKey] = strings.TrimPrefix(said[orderKey]+"_"+of, "_")
		}
	}
	for _, by := range append([]string{reader, lenient + "-sets"}, changers()...) {
		if by == step {
			break
		}
		if e.result(pod, by) != audit.Drift || !slices.Contains(e.asks(), by) {
			continue
		}
		switch mode := e.modeFor(by, pod.GetNamespace()); mode {
		case "":
			return
		case eirinix.ModeDeny:
			runs(by)
		}
	}
	notes.SetAnnotations(said)
	before := e.reckoned(pod, notes)
	runs(step)
	notes.SetAnnotations(said)
	after := e.reckoned(pod, notes)
	if before == nil || after == nil {
		return
	}
	differ := func(path string) bool {
		was, is := reached(before.Object, path), reached(after.Object, path)
		none := func(v any) bool { list, ok := v.([]any); return v == nil || ok && len(list) == 0 }
		return !reflect.DeepEqual(was, is) && !(none(was) && none(is))
	}
	for _, path := range f.Paths {
		if list, _, in := strings.Cut(path, "/env/"); in {
			path = list + "/env"
		}
		if !differ(path) {
			e.breaks("%s: step %s is told to change %s of %s, which it leaves as it is (all: %v)", e.name, step, path, pod.GetName(), f.Paths)
		}
	}
	for _, path := range []string{"/metadata/annotations/ran-" + strings.TrimSuffix(step, "-sets"), "/metadata/annotations/" + orderKey, "/metadata/labels/" + dropped, "/spec/containers/0/env", "/spec/containers/0/args", "/spec/containers/0/image"} {
		if differ(path) && !slices.ContainsFunc(f.Paths, func(told string) bool {
			return strings.HasPrefix(told+"/", path+"/") || strings.HasPrefix(path+"/", told+"/")
		}) {
			e.breaks("%s: step %s changes %s of %s, which is not told (%v)", e.name, step, path, pod.GetName(), f.Paths)
		}
	}
}

// changers are the steps of versions that change pods.
func changers() (all []string) {
	for _, step := range plain {
		all = append(all, step+"-sets")
	}
	return all
}

// reached is what is at a path in a tree; nil for nothing.
func reached(tree any, path string) any {
	for name := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		switch at := tree.(type) {
		case map[string]any:
			tree = at[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(at) {
				return nil
			}
			tree = at[i]
		default:
			return nil
		}
	}
	return tree
}

// filed compares the reports in the cluster with the findings. The caller holds World.mu.
func (e *examination) filed() {
	want := map[string]int{}
	for _, f := range e.told {
		if f.Name != "" {
			gvr := strings.TrimSuffix(f.Resource.Resource+"."+f.Resource.Version+"."+f.Resource.Group, ".")
			want[fmt.Sprintf("%s/%s-%s-%s", f.Namespace, fingerprint, f.Step, gvr)]++
		}
	}
	for _, o := range e.api.Objects() {
		if !strings.HasSuffix(o.GetKind(), "PolicyReport") || e.options.Namespace != "" && o.GetNamespace() != e.options.Namespace {
			continue
		}
		results, _ := o.Object["results"].([]any)
		name := o.GetNamespace() + "/" + o.GetName()
		for _, one := range results {
			e.files(name, one)
		}
		kept := slices.ContainsFunc(e.summary.Gaps, func(g audit.Gap) bool {
			return g.Objects == 0 && strings.HasPrefix(o.GetName(), fingerprint+"-"+g.Step+"-")
		})
		if len(results) != want[name] && !kept {
			e.breaks("%s has told %d findings for the report %s, which holds %d", e.name, want[name], name, len(results))
		}
		delete(want, name)
	}
	for name, n := range want {
		e.breaks("%s has told %d findings for the report %s, and there is none", e.name, n, name)
	}
}

// results returns the numbers of results in the reports about pods, by namespace and name.
func (w *World) results() map[string]int {
	all := map[string]int{}
	for _, o := range w.api.Objects() {
		if results, _ := o.Object["results"].([]any); strings.HasSuffix(o.GetKind(), "PolicyReport") {
			all[o.GetNamespace()+"/"+o.GetName()] = len(results)
		}
	}
	return all
}

// keeps looks at the reports of an audit with gaps: each is as it was, or whole. The caller holds World.mu.
func (e *examination) keeps() {
	now := e.results()
	for _, step := range e.asks() {
		if !slices.Contains(plain, strings.TrimSuffix(step, "-sets")) {
			continue
		}
		whole := map[string]int{}
		for _, o := range e.stored {
			if is := e.result(o, step); o.GetKind() == "Pod" && is != nothing {
				whole[o.GetNamespace()]++
			}
		}
		for in, n := range whole {
			name := fmt.Sprintf("%s/%s-%s-pods.v1", in, fingerprint, step)
			if is, there := now[name]; there && is != n && is != e.kept[name] {
				e.breaks("%s has gaps, and the report %s holds %d results of %d (before: %d)", e.name, name, is, n, e.kept[name])
			}
		}
	}
}

// unreported looks for reports that a program has left in the cluster whose registration is removed.
func (w *World) unreported() {
	if w.plan.Converts {
		return // a definition with several versions keeps its conversion, and the registration with it
	}
	for name := range w.results() {
		w.violate("every replica has stopped with UnregisterOnStop, and there is still the report %s of an audit", name)
		return
	}
}
