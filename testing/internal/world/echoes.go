package world

// This file is the echoes of steps: each step says which request it sees. All of them say it under one key, and callers compare
// it with the request that they have sent.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix"
)

const (
	echoKey  = "saw" // of an audit annotation
	greets   = "saw a request of"
	nonceKey = "nonce" // of an annotation that differs in each object
)

// said is the answer of a webhook to a request.
type said struct {
	hook
	ask
	response *admissionv1.AdmissionResponse // nil if the call has failed, which is ignored
	failed   error
}

// echo has a step say which request it sees, in an audit annotation and in a warning.
func echo(c *eirinix.Call, step string, old, object *corev1.Pod) {
	seen := func(pod *corev1.Pod, raw []byte) string {
		var typed, text string
		if pod != nil {
			typed = pod.Name + " " + pod.Annotations[nonceKey]
		}
		if len(raw) > 0 && string(raw) != "null" {
			var partial metav1.PartialObjectMetadata
			if err := json.Unmarshal(raw, &partial); err != nil {
				text = err.Error()
			} else {
				text = partial.Name + " " + partial.Annotations[nonceKey]
			}
		}
		if typed != text && pod != nil {
			return fmt.Sprintf("%q, and in JSON %q", typed, text)
		}
		return text
	}
	dry := "is"
	if c.DryRun == nil {
		dry = "may or may not be"
	} else if !*c.DryRun {
		dry = "is not"
	}
	dry += fmt.Sprintf(" by %v with %s as %s", c.UserInfo, plainly(c.Options.Raw), sentAs(c.Kind, c.RequestKind, c.Resource, c.RequestResource, c.SubResource, c.RequestSubResource))
	c.Annotate(echoKey, echoOf(step, c.UID, c.Operation, c.Namespace+"/"+c.Name, seen(old, c.OldObject.Raw), seen(object, c.Object.Raw), dry))
	c.Warn("%s %s %s", step, greets, c.UserInfo.Username)
}

// sentAs says of which kind a request is, and of which it was when the user sent it.
func sentAs(kind metav1.GroupVersionKind, was *metav1.GroupVersionKind, resource metav1.GroupVersionResource, from *metav1.GroupVersionResource, sub, fromSub string) string {
	return fmt.Sprintf("%v (%v) of %v (%v) %q (%q)", &kind, was, &resource, from, sub, fromSub)
}

// plainly is the one form of a JSON text.
func plainly(text []byte) string {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return fmt.Sprintf("%s (%v)", text, err)
	}
	return fmt.Sprint(v)
}

// echoOf is the text by which a step says which request it sees.
func echoOf(step string, id types.UID, operation admissionv1.Operation, name, old, object, dry string) string {
	return fmt.Sprintf("%s saw %s %s of %s: from %q to %q, which a dry run %s", step, operation, id, name, old, object, dry)
}

// echo is the same text of a request that was sent.
func (s said) echo(step string) string {
	var was, is string
	name := func(n, nonce string) string { return n + " " + nonce }
	if s.ask.old != nil {
		was = name(s.ask.old.GetName(), s.ask.old.GetAnnotations()[nonceKey])
	}
	if s.ask.object != nil {
		is = name(s.ask.object.GetName(), s.ask.object.GetAnnotations()[nonceKey])
	}
	dry := "is not"
	if s.dry {
		dry = "is"
	}
	dry += fmt.Sprintf(" by %v with %s as %s", userOf(s.by()), plainly(optionsFor(s.operation)), sentAs(s.ask.kind, &s.ask.kind, s.ask.resource, &s.ask.resource, s.ask.subresource, s.ask.subresource))
	return echoOf(step, s.response.UID, s.operation, s.namespace()+"/"+s.subject().GetName(), was, is, dry)
}

// annotated returns the values under a key, which all steps share. A later one has the name of its step before the key.
func (s said) annotated(key string) (all []string) {
	for k, value := range s.response.AuditAnnotations {
		if k == key || strings.HasSuffix(k, "."+key) {
			all = append(all, value)
		}
	}
	return all
}

// heard counts the echoes and the warnings in an answer, by step.
func (s said) heard() (echoes, warnings map[string]int, order []string) {
	echoes, warnings = map[string]int{}, map[string]int{}
	for _, value := range s.annotated(echoKey) {
		step, _, _ := strings.Cut(value, " ")
		echoes[step]++
	}
	for _, text := range s.response.Warnings {
		if step, _, ok := strings.Cut(text, " "+greets); ok {
			warnings[step]++
			order = append(order, step)
		}
	}
	return echoes, warnings, order
}

// inOrder are the names of steps in the order in which they are added.
var inOrder = func() []string {
	all := []string{reader, lenient + "-sets", lenient, keeper}
	for _, step := range plain {
		all = append(all, step+"-sets", step)
	}
	return all
}()

// hears looks at the echoes to a request: each step speaks once, of that request. The caller holds mu.
func (w *World) hears(s *apiServer, v verdict) {
	for _, one := range v.said {
		if one.response == nil {
			continue
		}
		for _, value := range one.annotated(echoKey) {
			if step, _, _ := strings.Cut(value, " "); value != one.echo(step) {
				w.breaks("%s: a step sees another request than its own: it %s, and was sent: %s", s.name, value, one.echo(step))
			}
		}
		echoes, warnings, order := one.heard()
		for step, n := range warnings {
			if n != 1 || echoes[step] != 1 {
				w.breaks("%s: the answer of %s holds %d warnings of step %s, and %d of its annotations", s.name, one.Name, n, step, echoes[step])
			}
		}
		for step, n := range echoes {
			if m := w.modes[strings.TrimSuffix(step, "-sets")]; n != 1 || warnings[step] != 1 && w.modes[step].mode == "" && m.text == "" && !w.declaresModes(step) {
				w.breaks("%s: the answer of %s holds %d annotations of step %s, and %d of its warnings", s.name, one.Name, n, step, warnings[step])
			}
		}
		if !slices.IsSortedFunc(order, func(a, b string) int { return slices.Index(inOrder, a) - slices.Index(inOrder, b) }) {
			w.breaks("%s: the steps of %s do not run in the order in which they are added: %v", s.name, one.Name, order)
		}
	}
}

// spoke counts the answers in which a step has said something.
func (v verdict) spoke(step string) (n int) {
	for _, one := range v.said {
		if one.response != nil {
			echoes, _, _ := one.heard()
			n += echoes[step]
		}
	}
	return n
}

// reports counts the answers that report the result of a step that watches.
func (v verdict) reports(step string, mode eirinix.Mode, would string) (n int) {
	for _, one := range v.said {
		switch {
		case one.response == nil:
		case mode == eirinix.ModeAudit:
			for _, value := range one.annotated("would-" + would) {
				if strings.HasPrefix(value, step+": ") {
					n++
				}
			}
		default:
			for _, text := range one.response.Warnings {
				if strings.HasPrefix(text, fmt.Sprintf("step %q would %s this: ", step, would)) {
					n++
				}
			}
		}
	}
	return n
}

// speaks looks at the answers to an admitted pod: each step that is in force speaks, and each that only watches reports its
// result. The caller holds mu.
func (w *World) speaks(s *apiServer, deny string, began time.Time, v verdict) {
	for _, step := range plain {
		if !w.mustRun(step, began) {
			continue
		}
		for _, name := range []string{step, step + "-sets"} {
			would := map[string]string{step: "deny"}[name]
			if name != step {
				would = "change"
			}
			if w.plan.Judges && name != step || w.declaresModes(name) && !w.strictly(name, began) {
				continue
			}
			m := w.modes[name]
			if m.mode != "" && (w.misspelt(m) || !w.settledSince(m.since) || !m.since.Add(inMode).Before(began)) {
				continue
			}
			if n := v.spoke(name); n > 1 && !w.moves(step) {
				w.breaks("%s: step %s runs %d times on a pod (called: %s)", s.name, name, n, v.entries())
			} else if m.mode != eirinix.ModeShadow && n == 0 {
				w.breaks("%s: step %s of every live version says nothing of a pod (called: %s)", s.name, name, v.entries())
			}
			if m.mode != eirinix.ModeWarn && m.mode != eirinix.ModeAudit || name == step && !among(deny, step) {
				continue
			}
			if n := v.reports(name, m.mode, would); n == 0 || n > v.spoke(name) {
				w.breaks("%s: %d answers tell what step %s in %s would %s (called: %s)", s.name, n, name, m.mode, would, v.entries())
			}
			if m.mode == eirinix.ModeAudit && slices.ContainsFunc(v.warnings, func(text string) bool { return strings.HasPrefix(text, name+" "+greets) }) {
				w.breaks("%s: step %s is in %s since %s, and the user sees its warning", s.name, name, m.mode, time.Since(m.since).Round(time.Second))
			}
		}
	}
}

// deniesWhole looks at a denial: it names each step of the call that denies, and holds its causes. The caller holds mu.
func (w *World) deniesWhole(s *apiServer, deny string, v verdict) {
	last := v.said[len(v.said)-1]
	if last.response == nil {
		return
	}
	echoes, _, _ := last.heard()
	for _, step := range plain {
		if among(deny, step) && echoes[step] > 0 && w.modes[step].mode == "" && w.modes[step].text == "" && !w.declaresModes(step) && !strings.Contains(v.denied, step+" denies") {
			w.breaks("%s: step %s denies a pod, and the denial does not say so: %s", s.name, step, v.denied)
		}
		if strings.Contains(v.denied, step+" denies") && step != "a" && (last.response.Result.Details == nil || !slices.ContainsFunc(last.response.Result.Details.Causes, func(c metav1.StatusCause) bool { return c.Field == step })) {
			w.breaks("%s: step %s denies a pod, and the denial does not hold its cause: %v", s.name, step, last.response.Result)
		}
	}
}
